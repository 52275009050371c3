# SPDX-License-Identifier: Apache-2.0
#
# The kernel of Python. Commands come as lines of JSON from fd 3, events go as such to
# fd 4, and fd 5 has a byte for each question whether they were taken. What subprocesses
# and C code write to fd 1 and 2 is the agent's to read.
#
# It runs with a dictionary of builtins of its own, so that a cell that replaces one
# does not reach it, and imports what costs time when it is first needed.

import ast
import base64
import builtins
import fcntl
import io
import json
import linecache
import math
import os
import select
import signal
import sys
import types
from _thread import RLock, get_ident
from codecs import getincrementaldecoder
from json.encoder import encode_basestring_ascii as quote

MAX_TEXT = 1 << 20  # characters of a text form
MAX_LINE = 24 << 20  # bytes of a result; the agent takes 32 MiB
MAX_TRACEBACK = 64 << 10
CHART = "application/vnd.caisson.chart+json"
DATA = "application/vnd.caisson.data+json"

# Where no program that a cell starts finds or inherits them.
commands = fcntl.fcntl(3, fcntl.F_DUPFD_CLOEXEC, 64)
events = fcntl.fcntl(4, fcntl.F_DUPFD_CLOEXEC, 64)
answers = fcntl.fcntl(5, fcntl.F_DUPFD_CLOEXEC, 64)
os.close(3)
os.close(4)
os.close(5)
null = os.open("/dev/null", os.O_RDONLY)
os.dup2(null, 0)
os.close(null)
os.environ.setdefault("MPLBACKEND", "Agg")


class State:
    cell = None  # the id of the cell that runs
    number = 0
    running = False  # a KeyboardInterrupt reaches the cell
    sending = 0  # calls of send by the main thread under way
    interrupted = False  # in one of these
    forked = False  # this is a child of the kernel, which does not speak
    unheard = 0  # questions to the agent without an answer
    failed = None  # how the cell failed
    flags = 0  # of the compiler, from "from __future__ import"
    loop = None
    note = ""  # for the first cell
    formatting = False  # IPython makes the forms of a value
    misformed = False  # and could not make one
    shown = set()  # ids of figures that the cell has shown


lock = RLock()
main_thread = get_ident()


def forked():
    State.forked = True
    for stream in (stdout, stderr):
        stream._held.clear()  # what the parent writes
    for fd in (commands, events, answers):
        try:
            os.close(fd)
        except OSError:
            pass


os.register_at_fork(after_in_child=forked)


def on_interrupt(*_):
    if not State.running or State.forked:
        if State.forked:
            raise KeyboardInterrupt
        return
    if State.sending:
        State.interrupted = True  # half a line would end the kernel
        return
    raise KeyboardInterrupt


def send(kind, rest):
    """Sends an event, rest being JSON behind a comma. Without a cell it is dropped."""
    main = get_ident() == main_thread
    if main:
        State.sending += 1
    try:
        with lock:
            if State.cell is None or State.forked:
                return
            line = memoryview(('{"id":%s,"type":"%s"%s}\n' % (quote(State.cell), kind, rest)).encode("ascii"))
            while line:
                line = line[os.write(events, line):]
    finally:
        if main:
            State.sending -= 1
    if main and State.interrupted and not State.sending:
        State.interrupted = False
        raise KeyboardInterrupt


class Stream(io.TextIOBase):
    """sys.stdout or sys.stderr: each line is an event."""

    encoding, errors, newlines, line_buffering, mode = "utf-8", "replace", None, True, "w"

    def __init__(self, kind, fd):
        self.name, self._kind, self._fd = "<%s>" % kind, kind, fd
        self._held, self._size = [], 0
        self.buffer = Bytes(self)

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError("write() argument must be str, not " + type(text).__name__)
        self._held.append(text)
        self._size += len(text)
        if self._size > 8192 or "\n" in text or "\r" in text:
            self.flush()
        return len(text)

    def flush(self):
        if not self._held:
            return
        with lock:
            text = "".join(self._held)
            self._held.clear()
            self._size = 0
        if State.forked:
            raw_write(self._fd, text.encode("utf-8", "replace"))
            return
        for at in range(0, len(text), 1 << 18):
            other = stderr if self is stdout else stdout
            if other._held:
                other.flush()
            send(self._kind, ',"text":' + quote(text[at:at + (1 << 18)]))

    def close(self):
        self.flush()

    def writable(self):
        return True

    def isatty(self):
        return False

    def fileno(self):
        return self._fd

    def reconfigure(self, **_):
        pass


class Bytes(io.BufferedIOBase):
    """The buffer of a Stream, for what writes bytes."""

    def __init__(self, stream):
        self._stream, self._decoder = stream, getincrementaldecoder("utf-8")("replace")
        self.raw, self.name, self.mode = self, stream.name, "wb"

    def write(self, data):
        self._stream.write(self._decoder.decode(bytes(data)))
        return memoryview(data).nbytes

    def flush(self):
        self._stream.flush()

    def close(self):
        self.flush()

    def writable(self):
        return True

    def fileno(self):
        return self._stream._fd


STARTS = {"os.system", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "subprocess.Popen"}


def before_program(event, _):
    """Has the agent take what was printed, so that what a program writes comes after it."""
    if event not in STARTS or State.cell is None or State.forked:
        return
    stdout.flush()
    stderr.flush()
    with lock:
        raw_write(events, b'{"heard":true}\n')
        State.unheard += 1
        while State.unheard > 0 and select.select((answers,), (), (), 2)[0]:  # its listener may be slow
            State.unheard -= len(os.read(answers, 64))


def raw_write(fd, data):
    data = memoryview(data)
    while data:
        data = data[os.write(fd, data):]


class Stdin(io.TextIOBase):
    """sys.stdin: there is none."""

    encoding, name = "utf-8", "<stdin>"

    def read(self, *_):
        return ""

    readline = read

    def readable(self):
        return True

    def close(self):
        pass

    def fileno(self):
        return 0


def no_input(prompt="", /):
    raise EOFError("a cell has no input: put the value in the code, or in a variable of an earlier cell")


stdout, stderr, stdin = Stream("stdout", 1), Stream("stderr", 2), Stdin()
sys.addaudithook(before_program)


def settle():
    """Puts right what a cell may have broken and the next one needs."""
    now = builtins.__dict__
    for name, value in ORIGINAL.items():
        if now.get(name) is not value and not callable(now.get(name)):
            now[name] = value
    builtins.input = no_input
    sys.stdout, sys.stderr, sys.stdin = sys.__stdout__, sys.__stderr__, sys.__stdin__ = stdout, stderr, stdin
    signal.signal(signal.SIGINT, on_interrupt)
    sys.settrace(None)
    sys.setprofile(None)
    sys.modules["__main__"] = module


# Forms of values.

METHODS = (
    ("text/html", "_repr_html_"), ("text/markdown", "_repr_markdown_"), ("image/svg+xml", "_repr_svg_"),
    ("image/png", "_repr_png_"), ("image/jpeg", "_repr_jpeg_"), ("application/pdf", "_repr_pdf_"),
    ("text/latex", "_repr_latex_"), ("application/json", "_repr_json_"), ("application/javascript", "_repr_javascript_"),
)


def is_a(value, module_name, name):
    return any(c.__name__ == name and c.__module__ == module_name for c in type(value).__mro__)


def text_of(value):
    try:
        text = repr(value)
        if not isinstance(text, str):
            raise TypeError("it is no string")
    except Exception as e:
        return "<%s whose repr failed: %s>" % (type(value).__name__, describe(e)[:200])
    return cut(str(text), MAX_TEXT)


def cut(text, limit):
    if len(text) <= limit:
        return text
    return "%s… (%d characters more)" % (text[:limit], len(text) - limit)


def describe(e):
    try:
        return "%s: %s" % (type(e).__name__, e)
    except Exception:
        return type(e).__name__


def forms_of(value):
    """The forms of a value where there is no IPython."""
    forms = {}
    if not isinstance(value, type) and getattr(value, "_no_such_method_of_any_object_", None) is None:
        bundle = getattr(value, "_repr_mimebundle_", None)
        if callable(bundle):
            made = guarded(bundle, {"include": None, "exclude": None})
            if isinstance(made, tuple) and made:
                made = made[0]
            if isinstance(made, dict):
                forms.update((k, v) for k, v in made.items() if isinstance(k, str) and v is not None)
        for mime, name in METHODS:
            method = getattr(value, name, None) if mime not in forms else None
            if callable(method):
                made = guarded(method, {})
                if isinstance(made, tuple) and made and mime != "application/json":
                    made = made[0]
                if made is not None:
                    forms[mime] = made
    if "text/plain" not in forms:
        forms["text/plain"] = text_of(value)
    add_forms(value, forms)
    return forms


def guarded(method, arguments):
    try:
        return method(**arguments)
    except Exception as e:
        stderr.write("%s: %s\n" % (getattr(method, "__qualname__", "a method for display"), describe(e)))


def add_forms(value, forms):
    """Adds the forms that we make: of figures, tables and pictures."""
    try:
        if is_a(value, "matplotlib.figure", "Figure"):
            State.shown.add(id(value))
            if "image/png" not in forms:
                forms["image/png"] = charts().picture(value)
            forms[CHART] = charts().chart(value)
        elif is_a(value, "pandas.core.frame", "DataFrame") or is_a(value, "polars.dataframe.frame", "DataFrame"):
            data = charts().table(value)
            if data is not None:
                forms[DATA] = data
        elif is_a(value, "PIL.Image", "Image") and "image/png" not in forms:
            out = io.BytesIO()
            (value if value.mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I") else value.convert("RGB")).save(out, "PNG")
            forms["image/png"] = out.getvalue()
    except Exception as e:
        stderr.write("a %s cannot be shown: %s\n" % (type(value).__name__, describe(e)))


loaded = None


def charts():
    """The part that knows figures and tables, which few cells need."""
    global loaded
    if loaded is None:
        loaded = types.ModuleType("charts")
        exec(compile(CHARTS, "<charts>", "exec"), loaded.__dict__)
    return loaded


def plain(value):
    """What JSON can carry."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if hasattr(value, "isoformat"):
        return str(value.isoformat()) if value == value else None  # no time at all is not itself
    if hasattr(value, "item"):
        try:
            item = value.item()
            return plain(item) if isinstance(item, (bool, int, float, str)) else str(value)
        except Exception:
            pass
    return cut(str(value), MAX_TEXT)


def encode(mime, value):
    if isinstance(value, (bytes, bytearray, memoryview)):
        value = base64.b64encode(value).decode("ascii")
    elif mime.endswith("json"):
        if isinstance(value, str) and mime == "application/json":
            try:
                value = json.loads(value)
            except ValueError:
                pass
    elif not isinstance(value, str):
        value = str(value)
    elif mime in ("image/png", "image/jpeg", "application/pdf"):
        value = "".join(value.split())
    elif mime == "text/plain":
        value = cut(value, MAX_TEXT)
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return json.dumps(plain(value))


def show(forms, main=False):
    """Sends a result."""
    encoded = {}
    for mime, value in forms.items():
        try:
            encoded[str(mime)] = encode(str(mime), value)
        except Exception as e:
            stderr.write("%s cannot be shown: %s\n" % (mime, describe(e)))
    notes = []
    while encoded and sum(map(len, encoded.values())) > MAX_LINE:
        mime = max(encoded, key=lambda m: len(encoded[m]))
        notes.append("%s of %d bytes was left out: it is too large" % (mime, len(encoded.pop(mime))))
    if notes:
        text = json.loads(encoded.get("text/plain", '""'))
        encoded["text/plain"] = quote("\n".join([text] * bool(text) + notes))
    if not encoded:
        return
    stdout.flush()
    stderr.flush()
    body = ",".join(quote(m) + ":" + v for m, v in list(encoded.items())[:64])
    send("display", ',"result":{"main":%s,"data":{%s}}' % ("true" if main else "false", body))


def display(*values, raw=False, **_):
    """Shows values in all their forms; with raw=True each is a dictionary of forms by MIME type."""
    for value in values:
        if raw and isinstance(value, dict):
            show(value)
        elif callable(getattr(type(value), "_ipython_display_", None)):
            value._ipython_display_()
        else:
            show(forms_of(value))


def show_figures():
    """Shows and closes all figures that are open."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    if pyplot is None or helpers is None:
        return
    try:
        for manager in helpers.Gcf.get_all_fig_managers():
            figure = manager.canvas.figure
            if id(figure) not in State.shown:
                show_value(figure)
    finally:
        pyplot.close("all")
        State.shown.clear()


def show_value(value):
    if shell is not None:
        forms, _ = shell.display_formatter.format(value)
        show(forms)
    else:
        show(forms_of(value))


# What is changed in modules of others when they are imported.

def change_pyplot(pyplot):
    def show(*_, **__):
        """Shows all open figures."""
        show_figures()
    pyplot.show = show
    figure = sys.modules.get("matplotlib.figure")
    if figure is not None:
        figure.Figure.show = lambda self, *_, **__: show_value(self)


def change_axes(axes):
    draw = axes.Axes.bxp

    def bxp(self, bxpstats, *args, **kwargs):
        bxpstats = list(bxpstats)
        self.__dict__.setdefault("_caisson_boxes", []).extend(bxpstats)
        return draw(self, bxpstats, *args, **kwargs)
    bxp.__doc__, bxp.__wrapped__ = draw.__doc__, draw
    axes.Axes.bxp = bxp


def change_image(image):
    image.Image.show = lambda self, *_, **__: show_value(self)
    write = image.Image.save

    def save(self, fp, *args, **kwargs):
        write(self, fp, *args, **kwargs)
        # A figure that matplotlib saves is shown by itself.
        if isinstance(fp, str) and not sys._getframe(1).f_globals.get("__name__", "").startswith("matplotlib"):
            show_value(self)
    save.__doc__, save.__wrapped__ = write.__doc__, write
    image.Image.save = save


CHANGED = {"matplotlib.pyplot": change_pyplot, "matplotlib.axes": change_axes, "PIL.Image": change_image}


class Finder:
    """Finds the modules that are changed, as others would."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in CHANGED:
            return None
        for finder in sys.meta_path:
            if finder is Finder or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = Loader(spec.loader)
                return spec
        return None


class Loader:
    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def create_module(self, spec):
        return self.inner.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.inner
        self.inner.exec_module(module)
        try:
            CHANGED[module.__name__](module)
        except Exception:
            pass


sys.meta_path.insert(0, Finder)


# Errors.

def report(error, frames=None):
    """Sends an exception as the cell's."""
    if isinstance(error, SystemExit):
        if error.code is None or error.code == 0:
            return
    stdout.flush()
    stderr.flush()
    name = type(error).__name__
    try:
        value = str(error)
    except Exception as e:
        value = "<%s raised by its str()>" % type(e).__name__
    if isinstance(error, KeyboardInterrupt):
        State.failed = "interrupted"
    elif State.failed is None:
        State.failed = "error"
    send("error", ',"error":{"name":%s,"value":%s,"traceback":%s}' % (
        quote(name), quote(cut(value, MAX_TRACEBACK)), quote(trace(error, frames))))


def trace(error, frames):
    """A traceback from the first line of a cell on."""
    try:
        import traceback
        frames = error.__traceback__ if frames is None else frames
        first = frames
        while first is not None and not first.tb_frame.f_code.co_filename.startswith("<cell "):
            first = first.tb_next
        if first is None and isinstance(error, SyntaxError):
            lines = traceback.format_exception_only(type(error), error)
        else:
            lines = traceback.format_exception(type(error), error, frames if first is None else first)
        text = "".join(lines).rstrip("\n")
    except BaseException as e:
        builtins.__dict__.update(ORIGINAL)
        text = "%s (and its traceback cannot be written: %s)" % (type(error).__name__, type(e).__name__)
    if len(text) > MAX_TRACEBACK:
        text = "%s\n…\n%s" % (text[:MAX_TRACEBACK // 4], text[-3 * MAX_TRACEBACK // 4:])
    return text


# Cells, where there is no IPython.

def remember(name, code):
    """Lets tracebacks show the lines of a cell."""
    linecache.cache[name] = (len(code), None, code.splitlines(True), name)
    linecache.cache.pop("<cell %d>" % (State.number - 1000), None)


def dedented(code):
    """The code without an indentation that all of it has."""
    lines = code.split("\n")
    first = next((l for l in lines if l.strip() and not l.lstrip().startswith("#")), "")
    margin = first[:len(first) - len(first.lstrip())]
    if not margin or any(l.strip() and not l.startswith(margin) for l in lines):
        return code
    return "\n".join(l[len(margin):] if l.startswith(margin) else l for l in lines)


def commands_of(code):
    """The code with lines that begin with ! or %pip made calls of a shell; None without any."""
    lines, found = code.split("\n"), False
    for i, line in enumerate(lines):
        bare = line.lstrip()
        if bare.startswith("!"):
            bare = bare.lstrip("!")
        elif bare.startswith("%pip "):
            bare = '"%s" -m %s' % (sys.executable, bare[1:])
        elif bare.startswith("%") and bare[1:2].isalpha() or bare.startswith("%%"):
            raise SyntaxError("magics need IPython, which is not installed here: %s" % bare.split()[0])
        else:
            continue
        lines[i], found = "%s__shell__(%s)" % (line[:len(line) - len(line.lstrip())], quote(bare)), True
    return "\n".join(lines) if found else None


def run_shell(command):
    import subprocess
    stdout.flush()
    stderr.flush()
    subprocess.call(["/bin/sh", "-c", command])


def parse(code, name):
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | State.flags
    return compile(code, name, "exec", flags, True)


def run_plain(code):
    """Runs a cell with the standard library alone."""
    name = "<cell %d>" % State.number
    code = dedented(code)
    remember(name, code)
    try:
        tree = parse(code, name)
    except SyntaxError:
        changed = commands_of(code)
        if changed is None:
            raise
        tree = parse(changed, name)
        builtins.__shell__ = run_shell
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
        ast.fix_missing_locations(last)
    quiet = code.rstrip().endswith(";")
    if tree.body:
        run_code(compile_tree(tree, name, "exec"))
    if last is not None:
        value = run_code(compile_tree(last, name, "eval"))
        if value is not None and not quiet:
            namespace["_"] = value
            if callable(getattr(type(value), "_ipython_display_", None)):
                value._ipython_display_()
            else:
                show(forms_of(value), main=True)


def compile_tree(tree, name, mode):
    made = compile(tree, name, mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | State.flags, True)
    import __future__
    for feature in __future__.all_feature_names:
        State.flags |= made.co_flags & getattr(__future__, feature).compiler_flag
    return made


def run_code(made):
    value = eval(made, namespace)
    if made.co_flags & 0x80 and isinstance(value, types.CoroutineType):  # CO_COROUTINE
        return run_coroutine(value)
    return value


def run_coroutine(coroutine):
    import asyncio
    if State.loop is None or State.loop.is_closed():
        State.loop = asyncio.new_event_loop()
    asyncio.set_event_loop(State.loop)
    task = State.loop.create_task(coroutine)
    try:
        return State.loop.run_until_complete(task)
    except KeyboardInterrupt:
        task.cancel()
        try:
            State.loop.run_until_complete(task)
        except BaseException:
            pass
        raise


# Cells, where there is IPython.

def make_shell():
    """IPython's shell; None where it is not installed or does not work."""
    import importlib.util
    try:
        if importlib.util.find_spec("IPython") is None:
            return None
        return new_shell()
    except ImportError:
        return None
    except Exception as e:
        State.note = "IPython is installed here and does not work: %s\n" % describe(e)
        return None


def new_shell():
    import atexit
    import shutil
    import tempfile
    import warnings
    from IPython.core.compilerop import CachingCompiler
    from IPython.core.displayhook import DisplayHook
    from IPython.core.displaypub import DisplayPublisher
    from IPython.core.formatters import DisplayFormatter
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    class Compiler(CachingCompiler):
        def get_code_name(self, raw_code, transformed_code, number):
            remember("<cell %d>" % State.number, transformed_code)
            return "<cell %d>" % State.number

    class Hook(DisplayHook):
        def start_displayhook(self):
            pass

        def write_output_prompt(self):
            pass

        def write_format_data(self, format_dict, md_dict=None):
            show(format_dict, main=True)

        def finish_displayhook(self):
            pass

    class Publisher(DisplayPublisher):
        def publish(self, data, *_, **__):
            show(data)

        def clear_output(self, wait=False):
            pass

    class Formatter(DisplayFormatter):
        def format(self, obj, include=None, exclude=None):
            State.formatting, State.misformed = True, False
            try:
                forms, metadata = super().format(obj, include, exclude)
            finally:
                State.formatting = False
            if State.misformed and "text/plain" not in forms:
                forms["text/plain"] = text_of(obj)
            if forms:
                add_forms(obj, forms)
            return forms, metadata

    class Shell(InteractiveShell):
        compiler_class = Compiler
        displayhook_class = Hook
        display_pub_class = Publisher

        def init_display_formatter(self):
            self.display_formatter = Formatter(parent=self)
            self.configurables.append(self.display_formatter)

        def init_io(self):
            pass

        def enable_gui(self, gui=None):
            pass

        def ask_exit(self):
            pass

        def system(self, command):
            import subprocess
            command = self.var_expand(command, depth=1)
            stdout.flush()
            stderr.flush()
            self.user_ns["_exit_code"] = subprocess.call(["/bin/sh", "-c", command])

        system_piped = system_raw = system

        def showtraceback(self, exc_tuple=None, *_, **__):
            error, frames = self._get_exc_info(exc_tuple)[1:]
            if State.formatting and not isinstance(error, KeyboardInterrupt):
                State.misformed = True
                stderr.write("a method for display: %s\n" % describe(error))
                return
            report(error, frames)

        def showsyntaxerror(self, *_, **__):
            report(sys.exc_info()[1])

        showindentationerror = showsyntaxerror

    directory = tempfile.mkdtemp(prefix="ipython-")
    atexit.register(shutil.rmtree, directory, True)
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "NoColor"
    config.InteractiveShell.ipython_dir = directory
    warnings.filterwarnings("ignore", message="To exit: use")
    made = Shell.instance(config=config, user_module=module, user_ns=namespace)
    made.display_trap.hook = made.displayhook
    # Line numbers are those of the code as it was sent.
    transforms = made.input_transformer_manager.cleanup_transforms
    transforms[:] = [f for f in transforms if getattr(f, "__name__", "") not in ("leading_empty_lines", "leading_indent")]
    return made


def run_ipython(code):
    if "\0" in code:
        raise SyntaxError("source code cannot contain null bytes")
    result = shell.run_cell(dedented(code), store_history=True)
    error = result.error_before_exec or result.error_in_exec
    if State.forked and error is not None:
        raise error
    if error is not None and State.failed is None and not (isinstance(error, SystemExit) and not error.code):
        report(error)


# The talk with the agent.

def reseed(seed):
    """Gives the generators of random numbers another beginning: this is a copy."""
    random, numpy = sys.modules.get("random"), sys.modules.get("numpy.random")
    if random is not None:
        random.seed(int(seed, 16))
    if numpy is not None:
        numpy.seed([int(seed[i:i + 8], 16) for i in range(0, len(seed), 8)])
    tempfile, ssl = sys.modules.get("tempfile"), sys.modules.get("_ssl")
    if tempfile is not None:
        tempfile._name_sequence = None
    if ssl is not None:
        ssl.RAND_add(bytes.fromhex(seed), 32.0)  # OpenSSL mixes in what its system has, too


class Place:
    """The variables and the directory of one cell."""

    def __init__(self, env, directory):
        self.before = {name: os.environ.get(name) for name in env}
        os.environ.update(env)
        self.directory = None
        if directory:
            try:
                self.directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError:
                pass
            os.chdir(directory)

    def restore(self):
        for name, value in self.before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if self.directory is not None:
            try:
                os.fchdir(self.directory)
            finally:
                os.close(self.directory)


def run(message):
    """Runs a cell to its end."""
    settle()
    State.cell, State.failed, State.interrupted = message["id"], None, False
    State.number += 1
    if State.note:
        stderr.write(State.note)
        State.note = ""
    place = None
    try:
        try:
            State.running = True
            place = Place(message.get("env") or {}, message.get("dir"))
            try:
                (run_plain if shell is None else run_ipython)(message["code"])
            finally:
                if not State.forked:
                    settle()
                    show_figures()
        except SystemExit as e:
            if State.forked:
                leave(e.code)
            report(e)
        except BaseException as e:
            if State.forked:
                import traceback
                traceback.print_exc()
                leave(1)
            settle()
            report(e)
        finally:
            State.running = False
        if State.forked:
            leave(0)
    except KeyboardInterrupt:
        State.running, State.failed = False, "interrupted"
    except BaseException as e:
        State.running = False
        builtins.__dict__.update(ORIGINAL)
        State.failed = State.failed or "error"
    end(place)


def leave(code):
    """Ends a child that a cell has forked and that has come to the cell's end."""
    try:
        stdout.flush()
        stderr.flush()
    finally:
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def end(place):
    settle()
    if place is not None:
        try:
            place.restore()
        except Exception as e:
            stderr.write("the cell's place cannot be restored: %s\n" % describe(e))
    for stream in (stdout, stderr):
        stream.flush()
    with lock:
        send("end", ',"end":{"status":%s}' % quote(State.failed or "ok"))
        State.cell = None


def lines():
    """The commands of the agent."""
    held = bytearray()
    while True:
        at = held.find(b"\n")
        while at < 0:
            start = len(held)
            part = os.read(commands, 1 << 16)
            if not part:
                return
            held += part
            at = held.find(b"\n", start)
        line = bytes(held[:at])
        del held[:at + 1]
        yield line


ORIGINAL = dict(vars(builtins))
module = types.ModuleType("__main__")
namespace = module.__dict__
namespace["__builtins__"] = builtins
shell = None
sys.argv = [""]
settle()
try:
    import faulthandler
    faulthandler.enable(file=2, all_threads=False)
except Exception:
    pass
shell = make_shell()
settle()
if shell is None:
    namespace["display"] = display
hello = '{"ready":{"version":%s}}\n' % quote(sys.version.split()[0] + (" with IPython" if shell else ""))
raw_write(events, hello.encode())
for line in lines():
    message = json.loads(line)
    if "reseed" in message:
        reseed(message["reseed"])
    elif "code" in message:
        run(message)
