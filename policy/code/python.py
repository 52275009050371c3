# SPDX-License-Identifier: Apache-2.0
#
# Says what a Python program on standard input imports, names and loops over, as
# one line of JSON. Nothing of the program is executed. It runs in a sandbox of
# its own, because the parser is C and the program is hostile; package code reads
# what it prints as if the program had written it.
#
# Names are followed through imports, assignments, getattr, __dict__ and strings
# that are put together from constants, without regard to the order in which
# statements run: a name may mean all that is assigned to it anywhere in its scope.
import ast
import builtins
import json
import sys

MOST = 4000  # facts
TEXT = 4096  # characters of a string that is put together
BUILTINS = frozenset(dir(builtins))
CODE = frozenset("eval exec compile execfile __builtins__ __loader__ __spec__".split())
GETTERS = frozenset(["getattr", "object.__getattribute__", "type.__getattribute__"])
WORK = 2000000  # expressions that are looked at
IMPORTERS = frozenset(["__import__", "importlib.import_module", "importlib.__import__", "pkgutil.resolve_name",
                       "pydoc.locate", "pydoc.safeimport", "runpy.run_module", "imp.load_module"])
# Attributes that lead from any object to what was not imported.
INNER = frozenset("__subclasses__ __globals__ __builtins__ __code__ __closure__ __loader__ __import__ __self__ "
                  "f_globals f_locals f_builtins f_back gi_frame cr_frame ag_frame tb_frame func_globals func_code gi_code co_code".split())


class Scope(object):
    def __init__(self, parent, is_class=False):
        self.parent, self.is_class = parent, is_class
        self.bound, self.alias, self.elsewhere = {}, {}, {}

    def bind(self, name, value=None, scope=None):
        """value is the expression that is assigned, in scope; None is anything."""
        to = self.elsewhere.get(name, self)
        to.bound.setdefault(name, []).append((value, scope or self))

    def find(self, name):
        s, first = self, True
        while s is not None:
            if name in s.elsewhere:
                s = s.elsewhere[name]
            if name in s.bound and (first or not s.is_class):
                return s
            s, first = s.parent, False
        return None


class Reader(object):
    def __init__(self):
        self.root = Scope(None)
        self.scopes, self.stars = {}, []
        self.out = {"imports": {}, "refs": {}, "dynamic": {}, "loops": {}}
        self.count, self.active, self.work = 0, set(), 0

    # What is bound where.

    def collect(self, node, scope):
        todo = [(node, scope)]
        while todo:
            node, scope = todo.pop()
            self.scopes[id(node)] = scope
            kind = type(node).__name__
            inner = scope
            if kind in ("FunctionDef", "AsyncFunctionDef", "Lambda"):
                if kind != "Lambda":
                    scope.bind(node.name)
                inner = Scope(scope)
                a = node.args
                for arg in getattr(a, "posonlyargs", []) + a.args + a.kwonlyargs + [a.vararg, a.kwarg]:
                    if arg is not None:
                        inner.bind(arg.arg)
                for arg, value in zip(reversed(a.args), reversed(a.defaults)):
                    inner.bound[arg.arg] = [(value, scope)]
                for arg, value in zip(a.kwonlyargs, a.kw_defaults):
                    if value is not None:
                        inner.bound[arg.arg] = [(value, scope)]
                for d in getattr(node, "decorator_list", []) + a.defaults + [d for d in a.kw_defaults if d is not None]:
                    todo.append((d, scope))
                body = node.body if isinstance(node.body, list) else [node.body]
                for n in body:  # declarations count wherever they stand
                    for g in ast.walk(n):
                        if type(g).__name__ == "Global":
                            inner.elsewhere.update((name, self.root) for name in g.names)
                for n in reversed(body):
                    todo.append((n, inner))
                for arg in getattr(a, "posonlyargs", []) + a.args + a.kwonlyargs + [a.vararg, a.kwarg]:
                    if arg is not None and arg.annotation is not None:
                        todo.append((arg.annotation, scope))
                if getattr(node, "returns", None) is not None:
                    todo.append((node.returns, scope))
                continue
            if kind == "ClassDef":
                scope.bind(node.name)
                inner = Scope(scope, True)
                for n in node.decorator_list + node.bases + [k.value for k in node.keywords]:
                    todo.append((n, scope))
                for n in reversed(node.body):
                    todo.append((n, inner))
                continue
            if kind == "Import":
                for n in node.names:
                    name = n.name if n.asname else n.name.split(".")[0]
                    scope.bind(n.asname or name, name)
            elif kind == "ImportFrom":
                for n in node.names:
                    if n.name == "*":
                        self.stars.append(node.module or "")
                    elif not node.level:
                        scope.bind(n.asname or n.name, (node.module or "") + "." + n.name)
                    else:
                        scope.bind(n.asname or n.name)
            elif kind == "Assign":
                for t in node.targets:
                    self.assign(t, node.value, scope)
            elif kind in ("AnnAssign", "NamedExpr"):
                if node.value is not None:
                    self.assign(node.target, node.value, scope)
            elif kind == "AugAssign":
                self.assign(node.target, None, scope)
            elif kind in ("For", "AsyncFor", "comprehension"):
                many = node.iter if type(node.iter).__name__ in ("List", "Tuple", "Set") else None
                for value in (many.elts if many else [None]):
                    self.assign(node.target, value, scope)
            elif kind == "withitem" and node.optional_vars is not None:
                self.assign(node.optional_vars, None, scope)
            elif kind == "ExceptHandler" and node.name:
                scope.bind(node.name)
            elif kind in ("MatchAs", "MatchStar") and node.name:
                scope.bind(node.name)
            elif kind == "MatchMapping" and node.rest:
                scope.bind(node.rest)
            todo.extend((n, scope) for n in reversed(list(ast.iter_child_nodes(node))))

    def assign(self, target, value, scope):
        kind = type(target).__name__
        if kind == "Name":
            scope.bind(target.id, value, scope)
        elif kind in ("Tuple", "List"):
            parts = value.elts if type(value).__name__ in ("Tuple", "List") and len(value.elts) == len(target.elts) else [None] * len(target.elts)
            for t, v in zip(target.elts, parts):
                self.assign(t, v, scope)
        elif kind == "Starred":
            self.assign(target.value, None, scope)

    # What an expression may be.

    def resolve(self, node, scope, depth=0):
        """the dotted names that an expression may stand for"""
        self.work += 1
        if self.work > WORK:
            raise ValueError("its names are too involved")
        if node is None or depth > 40:
            return frozenset()
        kind, d = type(node).__name__, depth + 1
        if kind == "Name":
            return self.lookup(node.id, scope, d)
        if kind == "Attribute":
            return self.members(self.resolve(node.value, scope, d), node.attr)
        if kind == "Call":
            return self.called(node, scope, d)
        if kind == "Subscript":
            return self.subscript(node, scope, d)
        if kind == "IfExp":
            return self.resolve(node.body, scope, d) | self.resolve(node.orelse, scope, d)
        if kind == "BoolOp":
            return frozenset().union(*[self.resolve(v, scope, d) for v in node.values])
        if kind == "NamedExpr":
            return self.resolve(node.value, scope, d)
        return frozenset()

    def lookup(self, name, scope, depth):
        found = scope.find(name)
        out = set()
        if found is not None:
            key = (id(found), name)
            if name not in found.alias:
                if key in self.active:
                    return frozenset()
                self.active.add(key)
                for value, at in found.bound[name][:64]:
                    if isinstance(value, str):
                        out.add(value)
                    else:
                        out |= self.resolve(value, at, depth)
                self.active.discard(key)
                if depth > 1 and self.active:
                    return frozenset(list(out)[:16])
                found.alias[name] = frozenset(list(out)[:16])
            out |= found.alias[name]
        if found is None or found is self.root and name in CODE | IMPORTERS:
            if name in BUILTINS or name in CODE:
                out.add("builtins." + name)
            elif found is None:
                out |= set(s + "." + name for s in self.stars)
        return frozenset(out)

    def members(self, values, attr):
        out = set()
        for v in values:
            if v == "builtins.__builtins__":
                v = "builtins"
            if len(v) > 200:
                continue
            if attr in ("__getitem__", "get") and v.endswith(".__dict__"):
                out.add(v + ".__getitem__")
            else:
                out.add(v + "." + attr)
        return frozenset(out)

    def called(self, node, scope, depth):
        out = set()
        for f in self.resolve(node.func, scope, depth):
            f = plain(f)
            if f in GETTERS and len(node.args) >= 2:
                name = self.text(node.args[1], scope, depth)
                if name is not None:
                    out |= self.members(self.resolve(node.args[0], scope, depth), name)
            elif f.endswith(".__getattribute__") and len(node.args) == 1:
                name = self.text(node.args[0], scope, depth)
                if name is not None:
                    out |= self.members([f[:-len(".__getattribute__")]], name)
            elif f == "globals().get" and node.args:
                name = self.text(node.args[0], scope, depth)
                if name is not None:
                    out |= self.lookup(name, self.root, depth)
            elif f in IMPORTERS and node.args:
                name = self.text(node.args[0], scope, depth)
                if name is not None:
                    out.add(name.split(".")[0] if f.endswith("__import__") else name.replace(":", "."))
            elif f == "vars" and node.args:
                out |= self.members(self.resolve(node.args[0], scope, depth), "__dict__")
            elif f in ("globals", "locals", "vars"):
                out.add("globals()")
            elif f == "functools.partial" and node.args:
                out |= self.resolve(node.args[0], scope, depth)
            elif f.endswith("__dict__.__getitem__") and node.args:
                name = self.text(node.args[0], scope, depth)
                if name is not None:
                    out |= self.members([f[:-len(".__dict__.__getitem__")]], name)
            elif f in ("sys.modules.get", "sys.modules.__getitem__") and node.args:
                name = self.text(node.args[0], scope, depth)
                if name is not None:
                    out.add(name)
        inner = node.func
        if type(inner).__name__ == "Call" and node.args and "operator.attrgetter" in self.resolve(inner.func, scope, depth) and inner.args:
            name = self.text(inner.args[0], scope, depth)
            if name is not None:
                out |= self.members(self.resolve(node.args[0], scope, depth), name)
        return frozenset(out)

    def subscript(self, node, scope, depth):
        key = getattr(node.slice, "value", node.slice) if type(node.slice).__name__ == "Index" else node.slice
        kind = type(node.value).__name__
        if kind in ("List", "Tuple", "Set"):
            return frozenset().union(*[self.resolve(e, scope, depth) for e in node.value.elts[:64]])
        if kind == "Dict":
            return frozenset().union(*[self.resolve(e, scope, depth) for e in node.value.values[:64]])
        out = set()
        for v in self.resolve(node.value, scope, depth):
            name = self.text(key, scope, depth)
            if name is None:
                continue
            if v == "sys.modules":
                out.add(name)
            elif v == "globals()":
                out |= self.lookup(name, self.root, depth)
            elif v in ("builtins.__builtins__", "builtins.__dict__"):
                out.add("builtins." + name)
            elif v.endswith(".__dict__"):
                out |= self.members([v[:-len(".__dict__")]], name)
        return frozenset(out)

    def text(self, node, scope, depth=0):
        """the string that an expression surely is, or None"""
        v = self.value(node, scope, depth)
        return v if isinstance(v, str) else None

    def value(self, node, scope, depth):
        if node is None or depth > 40:
            return None
        kind, d = type(node).__name__, depth + 1
        if kind == "Constant":
            return node.value
        if kind in ("Str", "Bytes"):
            return node.s
        if kind == "Num":
            return node.n
        if kind == "Name":
            found = scope.find(node.id)
            if found is None or len(found.bound[node.id]) != 1:
                return None
            value, at = found.bound[node.id][0]
            return None if value is None or isinstance(value, str) else self.value(value, at, d)
        try:
            return self.folded(kind, node, scope, d)
        except Exception:
            return None

    def folded(self, kind, node, scope, d):
        def bounded(v):
            return v if not isinstance(v, (str, bytes)) or len(v) <= TEXT else None
        if kind == "BinOp":
            left, right = self.value(node.left, scope, d), self.value(node.right, scope, d)
            op = type(node.op).__name__
            if op == "Add" and type(left) is type(right) and isinstance(left, (str, bytes)):
                return bounded(left + right)
            if op == "Mod" and isinstance(left, str) and "*" not in left and not any(c.isdigit() for c in left):
                items = [self.value(e, scope, d) for e in node.right.elts] if type(node.right).__name__ == "Tuple" else [right]
                return None if None in items else bounded(left % tuple(items))
            return None
        if kind == "UnaryOp":
            v = self.value(node.operand, scope, d)
            if type(node.op).__name__ == "USub" and isinstance(v, int):
                return -v
            return not v if type(node.op).__name__ == "Not" and v is not None else None
        if kind == "JoinedStr":
            out = ""
            for part in node.values:
                v = self.value(part.value if type(part).__name__ == "FormattedValue" else part, scope, d)
                if v is None or getattr(part, "format_spec", None) is not None or getattr(part, "conversion", -1) != -1:
                    return None
                out += str(v)
            return bounded(out)
        if kind == "Subscript" and type(node.slice).__name__ == "Slice":
            v = self.value(node.value, scope, d)
            ends = (node.slice.lower, node.slice.upper, node.slice.step)
            part = [self.value(p, scope, d) for p in ends]
            if any(p is not None and not isinstance(v, int) for p, v in zip(ends, part)):
                return None
            return v[slice(*part)] if isinstance(v, (str, bytes)) else None
        if kind == "Call" and not node.keywords:
            if type(node.func).__name__ == "Name":
                args = [self.value(a, scope, d) for a in node.args]
                if node.func.id == "chr" and len(args) == 1 and isinstance(args[0], int):
                    return chr(args[0])
                return args[0] if node.func.id == "str" and len(args) == 1 and isinstance(args[0], str) else None
            if type(node.func).__name__ != "Attribute":
                return None
            base, name = self.value(node.func.value, scope, d), node.func.attr
            if name == "join" and isinstance(base, str) and len(node.args) == 1 and type(node.args[0]).__name__ in ("List", "Tuple"):
                items = [self.value(e, scope, d) for e in node.args[0].elts]
                return bounded(base.join(items)) if all(isinstance(i, str) for i in items) else None
            args = [self.value(a, scope, d) for a in node.args]
            if None in args or not isinstance(base, (str, bytes)):
                return None
            if name == "format" and ":" not in base and all(isinstance(a, (str, int)) for a in args):
                return bounded(base.format(*args)) if "." not in base and "[" not in base else None
            if name in ("lower", "upper", "strip", "replace", "decode", "encode", "swapcase", "title"):
                return bounded(getattr(base, name)(*args))
        return None

    # What is said of it.

    def fact(self, kind, name, node, how=""):
        key = (name, how)
        if key not in self.out[kind] and self.count < MOST:
            self.count += 1
            self.out[kind][key] = [name, getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1, how]

    def report(self, tree):
        todo = [(tree, None)]
        while todo:
            node, parent = todo.pop()
            scope = self.scopes.get(id(node), self.root)
            kind = type(node).__name__
            if kind == "Import":
                for n in node.names:
                    self.fact("imports", n.name, node, "import")
                    if "." in n.name and not n.asname:  # it binds the package
                        self.fact("imports", n.name.split(".")[0], node, "import")
            elif kind == "ImportFrom" and not node.level:
                self.fact("imports", node.module, node, "import")
                for n in node.names:
                    self.fact("refs", plain(node.module + "." + n.name), node)
                    self.special(plain(node.module + "." + n.name), node, None)
            elif kind in ("Name", "Attribute") and type(node.ctx).__name__ != "Store":
                if kind == "Attribute" and node.attr in INNER:
                    self.fact("dynamic", node.attr, node, "code")
                if type(parent).__name__ != "Attribute":
                    self.named(self.resolve(node, scope), node, parent)
                if kind == "Attribute" and type(parent).__name__ == "Call" and parent.func is node and not self.resolve(node, scope):
                    self.fact("refs", "?." + node.attr, node)
            elif kind in ("Call", "Subscript"):
                self.dynamic(node, scope)
                if type(parent).__name__ != "Attribute":
                    self.named(self.resolve(node, scope), node, None)
            elif kind in ("While", "For", "AsyncFor") and self.endless(node, scope):
                self.fact("loops", "%d:%d" % (node.lineno, node.col_offset), node)
            todo.extend((n, node) for n in reversed(list(ast.iter_child_nodes(node))))

    def named(self, names, node, parent):
        for name in names:
            name = plain(name)
            self.fact("refs", name, node)
            self.special(name, node, parent)

    def special(self, name, node, parent):
        call = type(parent).__name__ == "Call" and parent.func is node
        if name in CODE or name.split(".")[0] == "__builtins__":
            self.fact("dynamic", name, node, "code")
        elif name in IMPORTERS and not call and type(node).__name__ not in ("ImportFrom",):
            self.fact("dynamic", name, node, "import")
        elif name in GETTERS and parent is not None and not call:
            self.fact("dynamic", name, node, "code")

    def dynamic(self, node, scope):
        if type(node).__name__ == "Subscript":
            key = getattr(node.slice, "value", node.slice) if type(node.slice).__name__ == "Index" else node.slice
            for v in self.resolve(node.value, scope):
                if v == "sys.modules" or v == "globals()" or v.endswith(".__dict__") or v == "builtins.__builtins__":
                    name = self.text(key, scope)
                    if v == "sys.modules":
                        self.imported(name, node, "sys.modules")
                    elif name is None and (v != "globals()" or type(node.ctx).__name__ == "Load"):
                        self.fact("dynamic", plain(v) + "[…]", node, "code")
                    elif name in INNER:
                        self.fact("dynamic", name, node, "code")
            return
        for f in self.resolve(node.func, scope):
            f = plain(f)
            if f in IMPORTERS:
                self.imported(self.text(node.args[0], scope) if node.args else None, node, f)
            elif f in ("sys.modules.get", "sys.modules.__getitem__", "sys.modules.pop"):
                self.imported(self.text(node.args[0], scope) if node.args else None, node, "sys.modules")
            elif f in GETTERS and len(node.args) >= 2:
                name = self.text(node.args[1], scope)
                if name in INNER:
                    self.fact("dynamic", name, node, "code")
                elif name is None and self.resolve(node.args[0], scope):
                    self.fact("dynamic", f + "(" + plain(sorted(self.resolve(node.args[0], scope))[0]) + ", …)", node, "code")
            elif f.endswith((".__dict__.__getitem__", ".__getattribute__", "globals().get")) and len(node.args) and self.text(node.args[0], scope) is None:
                self.fact("dynamic", f, node, "code")

    def imported(self, name, node, how):
        if name is None:
            self.fact("dynamic", how, node, "import")
        else:
            self.fact("imports", name.split(":")[0], node, how)

    # Loops without an exit.

    def endless(self, node, scope):
        if type(node).__name__ == "While":
            v = self.value(node.test, scope, 0)
            forever = v is not None and bool(v)
        else:
            forever = False
            if type(node.iter).__name__ == "Call":
                names = [plain(n) for n in self.resolve(node.iter.func, scope)]
                n = len(node.iter.args) + len(node.iter.keywords)
                forever = any(x in ("itertools.count", "itertools.cycle") or x == "itertools.repeat" and n == 1 for x in names)
        return forever and not self.leaves(node.body, scope)

    def leaves(self, body, scope):
        todo = [(n, True) for n in body]
        while todo:
            node, ours = todo.pop()
            kind = type(node).__name__
            if kind in ("Return", "Raise", "Yield", "YieldFrom", "Assert") or kind == "Break" and ours:
                return True
            if kind == "Call":
                names = [plain(n) for n in self.resolve(node.func, self.scopes.get(id(node), scope))]
                if any(n in ("exit", "quit", "sys.exit", "os._exit", "os.abort", "os.execv", "os.execvp", "os.kill") for n in names):
                    return True
            if kind in ("FunctionDef", "AsyncFunctionDef", "Lambda", "ClassDef"):
                continue
            for field, value in ast.iter_fields(node):
                inner = ours and not (kind in ("While", "For", "AsyncFor") and field == "body")
                for n in value if isinstance(value, list) else [value]:
                    if isinstance(n, ast.AST):
                        todo.append((n, inner))
        return False


def plain(name):
    return name[len("builtins."):] if name.startswith("builtins.") else name


def main():
    source = sys.stdin.buffer.read()
    out = {}
    try:
        # As python -c reads it, or as python reads a file, with its coding line.
        tree = ast.parse(source.decode("utf-8") if sys.argv[1] == "text" else source)
        r = Reader()
        r.collect(tree, r.root)
        r.report(tree)
        out = {kind: sorted(facts.values(), key=lambda f: f[1:3]) for kind, facts in r.out.items()}
        out["more"] = r.count >= MOST
    except SyntaxError as e:
        out["error"] = [str(e.msg)[:200], e.lineno or 1, e.offset or 1]
    except (ValueError, LookupError) as e:
        out["error"] = [(type(e).__name__ + ": " + str(e))[:200], 1, 1]
    except (RecursionError, MemoryError) as e:
        out["error"] = ["it is nested too deeply, or too large: " + type(e).__name__, 1, 1]
    sys.stdout.write(json.dumps(out) + "\n")


main()
