// SPDX-License-Identifier: Apache-2.0
//
// The kernel of JavaScript and TypeScript. A worker thread reads commands as lines of
// JSON from fd 3, so that it hears of an interrupt while a cell loops; the main thread
// runs the cells, by an inspector session of its own, and writes events to fd 4.

'use strict';
const fs = require('fs');
const inspector = require('inspector');
const Module = require('module');
const path = require('path');
const util = require('util');
const { StringDecoder } = require('string_decoder');
const { pathToFileURL } = require('url');
const { Worker } = require('worker_threads');

const MAX_TEXT = 1 << 20;
const MAX_LINE = 24 << 20;
const PIECE = 1 << 18;
const stringify = JSON.stringify;
const { closeSync, openSync, readSync, writeSync } = fs;
const { inspect } = util;
const state = new Int32Array(new SharedArrayBuffer(8)); // the number of the cell that runs, 0 is none; that the listener has left

let cell = null;
let number = 0;

// emit sends an event of the cell that runs, rest being JSON behind a comma.
function emit(kind, rest) {
  if (cell === null) return;
  const line = Buffer.from(`{"id":${stringify(cell.id)},"type":"${kind}"${rest}}\n`);
  for (let at = 0; at < line.length;) at += writeSync(4, line, at);
}

function text(kind, s) {
  for (let at = 0; at < s.length; at += PIECE) emit(kind, `,"text":${stringify(s.slice(at, at + PIECE))}`);
}

for (const kind of ['stdout', 'stderr']) {
  const decoder = new StringDecoder('utf8');
  process[kind].write = function write(chunk, encoding, done) {
    if (typeof encoding === 'function') [encoding, done] = [undefined, encoding];
    text(kind, typeof chunk === 'string' ? chunk : decoder.write(Buffer.from(chunk)));
    if (typeof done === 'function') process.nextTick(done);
    return true;
  };
}

// Results.

function cut(s, max) {
  return s.length <= max ? s : `${s.slice(0, max)}… (${s.length - max} characters more)`;
}

const JUPYTER = Symbol.for('Jupyter.display');

async function formsOf(value) {
  if (value !== null && (typeof value === 'object' || typeof value === 'function') && typeof value[JUPYTER] === 'function') {
    const forms = await value[JUPYTER]();
    if (forms !== null && typeof forms === 'object') return forms;
  }
  return { 'text/plain': inspect(value) };
}

function show(forms, main) {
  const encoded = [];
  let size = 0;
  for (const [mime, value] of Object.entries(forms).slice(0, 64)) {
    let form = Buffer.isBuffer(value) || value instanceof Uint8Array ? Buffer.from(value).toString('base64') : value;
    if (mime === 'text/plain') form = cut(String(form), MAX_TEXT);
    else if (typeof form !== 'string' && !mime.endsWith('json')) form = String(form);
    const json = stringify(form);
    if (json === undefined) continue;
    if ((size += json.length) > MAX_LINE) {
      size -= json.length;
      text('stderr', `${mime} of ${json.length} bytes was left out: it is too large\n`);
      continue;
    }
    encoded.push(`${stringify(mime)}:${json}`);
  }
  emit('display', `,"result":{"main":${main},"data":{${encoded.join(',')}}}`);
}

async function display(value, { raw = false } = {}) {
  show(raw ? value : await formsOf(value), false);
}

function fail(error) {
  let name = 'Error';
  let value = '';
  let trace = '';
  try {
    if (error !== null && typeof error === 'object' && ('message' in error || error instanceof Error)) {
      name = String(error.name || error.constructor?.name || 'Error');
      value = String(error.message);
      trace = ownFrames(String(error.stack ?? ''));
    } else {
      name = 'Thrown';
      value = inspect(error);
    }
  } catch {
    value = 'the value that was thrown cannot be shown';
  }
  emit('error', `,"error":{"name":${stringify(cut(name, 256))},"value":${stringify(cut(value, 65536))},"traceback":${stringify(cut(trace || `${name}: ${value}`, 65536))}}`);
}

// ownFrames leaves the frames of cells and of what they call.
function ownFrames(stack) {
  const lines = stack.split('\n');
  let last = lines.length;
  while (last > 0 && /^ {4}at /.test(lines[last - 1]) && !lines[last - 1].includes('cell-')) last--;
  return (last > 0 ? lines.slice(0, last) : lines).join('\n');
}

// Sources.

const WORDS = new Set(['return', 'typeof', 'case', 'in', 'of', 'delete', 'void', 'throw', 'new', 'else', 'do', 'await', 'yield', 'instanceof']);

// tokens are those of code, as far as telling words from strings, comments, templates and
// regular expressions needs them.
function tokens(code) {
  const all = [];
  const templates = []; // depths of braces at which one goes on
  let depth = 0;
  const push = (kind, start, end) => all.push({ kind, start, end, text: code.slice(start, end) });
  const template = (from) => {
    let i = from;
    for (; i < code.length && code[i] !== '`'; i++) {
      if (code[i] === '\\') i++;
      else if (code[i] === '$' && code[i + 1] === '{') { templates.push(depth++); return i + 2; }
    }
    push('string', from, i);
    return i + 1;
  };
  for (let i = 0; i < code.length;) {
    const c = code[i];
    if (/\s/.test(c)) { i++; continue; }
    if (code.startsWith('//', i) || (i === 0 && code.startsWith('#!'))) { i = (code.indexOf('\n', i) + 1) || code.length; continue; }
    if (code.startsWith('/*', i)) { i = (code.indexOf('*/', i + 2) + 2) || code.length; if (i === 1) i = code.length; continue; }
    const word = /[\p{ID_Continue}$#@]+/uy;
    word.lastIndex = i;
    const found = word.exec(code);
    if (found !== null) { push('word', i, i += found[0].length); continue; }
    if (c === '"' || c === "'") {
      let end = i + 1;
      while (end < code.length && code[end] !== c && code[end] !== '\n') end += code[end] === '\\' ? 2 : 1;
      push('string', i, i = end + 1);
      continue;
    }
    if (c === '`') { i = template(i + 1); continue; }
    const before = all.at(-1);
    if (c === '/' && (before === undefined || (before.kind === 'word' ? WORDS.has(before.text) : before.kind === 'punctuation' && !')]}'.includes(before.text)))) {
      let end = i + 1;
      for (let set = false; end < code.length && code[end] !== '\n' && (set || code[end] !== '/'); end++) {
        if (code[end] === '\\') end++;
        else if (code[end] === '[') set = true;
        else if (code[end] === ']') set = false;
      }
      push('string', i, i = end + 1);
      continue;
    }
    if (c === '{') depth++;
    if (c === '}' && --depth === templates.at(-1)) { templates.pop(); i = template(i + 1); continue; }
    push('punctuation', i, ++i);
  }
  return all;
}

// dynamic makes imports that a script may have of those of a module.
function dynamic(code) {
  if (!/\b(import|export)\b/.test(code)) return code;
  const all = tokens(code);
  let out = '';
  let done = 0;
  const replace = (from, to, by) => {
    const lines = code.slice(from, to).split('\n').length - 1;
    out += code.slice(done, from) + by + '\n'.repeat(lines);
    done = to;
  };
  for (let i = 0; i < all.length; i++) {
    const t = all[i];
    const next = all[i + 1];
    if (t.kind !== 'word' || next === undefined || all[i - 1]?.text === '.' || next.text === ':') continue;
    if (t.text === 'import' && next.text === '(') {
      replace(t.start, t.end, '__import__');
    } else if (t.text === 'import' && next.text !== '.' && next.text !== '=') {
      const made = imported(all, i);
      if (made === null) continue;
      replace(t.start, all[made.last].end, made.code);
      i = made.last;
    } else if (t.text === 'export') {
      const last = exported(all, i);
      if (last === null) continue;
      replace(t.start, all[last].end, '');
      i = last;
    }
  }
  return out + code.slice(done);
}

// imported reads an import statement.
function imported(all, at) {
  let i = at + 1;
  const is = (text) => all[i]?.text === text;
  const attributes = (last) => { // with {type: 'json'}
    i = last + 1;
    if (!((is('with') || is('assert')) && all[i + 1]?.text === '{')) return { last, options: '' };
    while (i < all.length && !is('}')) i++;
    return { last: i, options: `, {with: {type: 'json'}}` };
  };
  if (all[i]?.kind === 'string') {
    const { last, options } = attributes(i);
    return { last, code: `await __import__(${all[at + 1].text}${options})${all[last + 1]?.text === ';' ? '' : ';'}` };
  }
  const names = [];
  let whole = '';
  if (all[i]?.kind === 'word') { names.push(`default: ${all[i++].text}`); if (is(',')) i++; }
  if (is('*')) {
    whole = all[i + 2]?.text;
    i += 3;
  } else if (is('{')) {
    for (i++; i < all.length && !is('}');) {
      const name = all[i++].text;
      if (is('as')) { names.push(`${name}: ${all[i + 1]?.text}`); i += 2; } else names.push(name);
      if (is(',')) i++;
    }
    i++;
  }
  if (!is('from') || all[i + 1]?.kind !== 'string') return null;
  const from = all[i + 1].text;
  const { last, options } = attributes(i + 1);
  const call = `await __import__(${from}${options})`;
  let code = whole ? `const ${whole} = ${call}` : `const {${names.join(', ')}} = ${call}`;
  if (whole && names.length > 0) code += `, {${names.join(', ')}} = ${whole}`;
  return { last, code: code + (all[last + 1]?.text === ';' ? '' : ';') };
}

// exported is the last token of what an export statement has before what it exports.
function exported(all, at) {
  const next = all[at + 1].text;
  if (next === 'default') return at + 1;
  if (['const', 'let', 'var', 'function', 'class', 'async'].includes(next)) return at;
  if (next !== '{' && next !== '*') return null;
  let i = at + 1;
  if (next === '{') while (i < all.length - 1 && all[i].text !== '}') i++;
  while (i < all.length - 1 && all[i + 1].text !== 'from' && all[i].text === '*') i++;
  return all[i + 1]?.text === 'from' ? i + 2 : i;
}

async function importFromHere(name, options) {
  name = String(name);
  if (/^\.{0,2}\//.test(name)) return import(pathToFileURL(path.resolve(name)).href, options);
  try {
    return await import(name, options);
  } catch (e) {
    if (e?.code !== 'ERR_MODULE_NOT_FOUND') throw e;
    let file;
    try { file = here().resolve(name); } catch { throw e; }
    return import(pathToFileURL(file).href, options);
  }
}

function here() { return Module.createRequire(path.join(process.cwd(), 'cell.js')); }

// withoutTypes is JavaScript of TypeScript.
function withoutTypes(code) {
  if (typeof Module.stripTypeScriptTypes === 'function') {
    const { emitWarning } = process;
    process.emitWarning = () => {};
    try { return Module.stripTypeScriptTypes(code, { mode: 'transform' }); } finally { process.emitWarning = emitWarning; }
  }
  const places = [process.cwd(), path.resolve(process.execPath, '../../lib'), '/usr/local/lib', '/usr/lib', '/usr/share/nodejs'];
  const find = (name) => {
    for (const place of places) {
      for (const file of [path.join(place, 'cell.js'), path.join(place, 'node_modules', 'cell.js')]) {
        try { return Module.createRequire(file)(name); } catch (e) { if (e?.code !== 'MODULE_NOT_FOUND') throw e; }
      }
      try { return require(path.join(place, name)); } catch { /* the next place */ }
    }
  };
  const ts = find('typescript');
  if (typeof ts?.transpileModule === 'function') { // TypeScript 7 has none
    const compilerOptions = { target: ts.ScriptTarget.ESNext, module: ts.ModuleKind.ESNext, verbatimModuleSyntax: true };
    const made = ts.transpileModule(code, { compilerOptions, reportDiagnostics: true });
    const wrong = made.diagnostics?.find((d) => d.category === ts.DiagnosticCategory.Error);
    if (wrong !== undefined) throw new SyntaxError(ts.flattenDiagnosticMessageText(wrong.messageText, '\n'));
    return made.outputText;
  }
  const esbuild = find('esbuild');
  if (esbuild !== undefined) {
    return esbuild.transformSync(code, { loader: 'ts', format: 'esm', tsconfigRaw: { compilerOptions: { verbatimModuleSyntax: true } } }).code;
  }
  const made = withProgram(code);
  if (made !== undefined) return made;
  const e = new Error(`Node.js ${process.versions.node} cannot strip types: use 22.13 or later, or npm install esbuild`);
  e.name = 'UnsupportedError';
  throw e;
}

// withProgram has the program esbuild do it: Debian's is no module that can be found.
function withProgram(code) {
  const options = ['--loader=ts', '--format=esm', '--log-level=error', '--color=false', '--tsconfig-raw={"compilerOptions":{"verbatimModuleSyntax":true,"preserveValueImports":true,"importsNotUsedAsValues":"preserve"}}'];
  const made = require('child_process').spawnSync('esbuild', options, { input: code, encoding: 'utf8', maxBuffer: 1 << 26 });
  if (made.error?.code === 'ENOENT') return undefined;
  if (made.status !== 0) throw new SyntaxError((made.stderr ?? String(made.error)).trim());
  return made.stdout;
}

// Cells.

const session = new inspector.Session();
session.connect();

// post calls the inspector, which answers at once unless it waits for a promise.
function post(method, params, done) { session.post(method, params, done); }

let taken; // what take was called with
const take = (value) => { taken = value; };
globalThis.__take__ = take;
let takeID;
post('Runtime.evaluate', { expression: '__take__' }, (_, answer) => { takeID = answer.result.objectId; });
delete globalThis.__take__;

// valueOf is the value that the inspector means.
function valueOf(remote) {
  const argument = remote.objectId !== undefined ? { objectId: remote.objectId }
    : remote.unserializableValue !== undefined ? { unserializableValue: remote.unserializableValue } : { value: remote.value };
  post('Runtime.callFunctionOn', { functionDeclaration: 'function(v) { this(v); }', objectId: takeID, arguments: [argument] }, () => {});
  const value = taken;
  taken = undefined;
  return value;
}

function run(command) {
  number++;
  const mine = cell = { id: command.id, number, env: {}, dir: null, over: false, timers: new Set() };
  Atomics.store(state, 0, number);
  try {
    enter(mine, command);
    let code = command.code;
    if (command.language === 'typescript') code = withoutTypes(code);
    code = `${dynamic(code)}\n//# sourceURL=cell-${mine.number}.js`;
    const options = { expression: code, replMode: true, awaitPromise: true, objectGroup: 'cell', silent: true };
    post('Runtime.evaluate', options, (error, answer) => { ended(mine, error, answer); });
  } catch (e) {
    fail(e);
    end(mine, 'error');
  }
}

// An interrupt ends the timers that the cell has begun, so that the next one does not get
// their output.
for (const name of ['setTimeout', 'setInterval', 'setImmediate']) {
  const begin = globalThis[name];
  globalThis[name] = Object.assign(function (...args) {
    const timer = begin(...args);
    if (cell !== null && cell.timers.size < 10000) cell.timers.add(timer);
    return timer;
  }, begin);
  Object.defineProperty(globalThis[name], 'name', { value: name });
  Object.defineProperty(globalThis[name], util.promisify.custom, { value: begin[util.promisify.custom] });
}

function enter(mine, command) {
  for (const [name, value] of Object.entries(command.env ?? {})) {
    mine.env[name] = process.env[name];
    process.env[name] = value;
  }
  if (command.dir) {
    const before = process.cwd();
    process.chdir(command.dir);
    mine.dir = before;
  }
}

async function ended(mine, error, answer) {
  if (mine.over) return;
  if (error) { // it was terminated, and the message behind says so
    interrupted(mine);
    return;
  }
  try {
    if (answer.exceptionDetails !== undefined) throw valueOf(answer.exceptionDetails.exception);
    let value = valueOf(answer.result);
    post('Runtime.releaseObjectGroup', { objectGroup: 'cell' }, () => {});
    if (util.types.isPromise(value)) value = await value;
    if (value !== undefined && !mine.over) {
      const forms = await formsOf(value);
      if (!mine.over) show(forms, true);
    }
    end(mine, 'ok');
  } catch (e) {
    if (!mine.over) fail(e);
    end(mine, 'error');
  }
}

function interrupted(mine) {
  if (mine.over) return;
  emit('error', ',"error":{"name":"Interrupted","value":"the cell was interrupted","traceback":"Interrupted: the cell was interrupted"}');
  for (const timer of mine.timers) { clearTimeout(timer); clearImmediate(timer); }
  end(mine, 'interrupted');
}

function end(mine, status) {
  if (mine.over) return;
  for (const [name, value] of Object.entries(mine.env)) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  }
  if (mine.dir !== null) {
    try { process.chdir(mine.dir); } catch { /* it was removed */ }
  }
  emit('end', `,"end":{"status":"${status}"}`);
  mine.over = true;
  cell = null;
  Atomics.store(state, 0, 0);
}

process.on('SIGINT', () => {});

const hidden = (name, value) => Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
hidden('display', display);
hidden('__import__', importFromHere);
hidden('require', Object.assign((name) => here()(name), { resolve: (name, o) => here().resolve(name, o), cache: require.cache }));
hidden('module', { exports: {} });
hidden('exports', globalThis.module.exports);
process.argv.length = 1;

const listener = `
'use strict';
const net = require('net');
const inspector = require('inspector');
const { parentPort, workerData } = require('worker_threads');
const state = workerData;
const main = new inspector.Session();
main.connectToMainThread();

// insist ends what the main thread runs, when it does not hear of it.
function insist(number, times) {
  setTimeout(() => {
    if (times === 0 || Atomics.load(state, 0) !== number) return;
    main.post('Runtime.terminateExecution', () => {});
    if (times === 20) process.kill(0, 'SIGINT'); // a program may have begun behind the first
    insist(number, times - 1);
  }, 150);
}

parentPort.on('message', () => {
  main.disconnect();
  Atomics.store(state, 1, 1);
  Atomics.notify(state, 1);
});

let held = '';
const commands = new net.Socket({ fd: 3, readable: true, writable: false }).setEncoding('utf8');
commands.on('data', (part) => {
  const lines = (held + part).split('\\n');
  held = lines.pop();
  for (const line of lines) {
    const command = JSON.parse(line);
    parentPort.postMessage(command);
    const number = Atomics.load(state, 0);
    if (command.interrupt !== undefined && number !== 0) insist(number, 20);
  }
});
commands.on('end', () => process.kill(process.pid, 'SIGKILL'));
`;

// Node waits for sessions before it ends.
const { reallyExit } = process;
process.reallyExit = (code) => {
  session.disconnect();
  worker.postMessage('leave');
  Atomics.wait(state, 1, 0, 1000);
  reallyExit.call(process, code);
};

const worker = new Worker(listener, { eval: true, workerData: state, stdin: false, env: process.env });
worker.on('message', (command) => {
  if (command.code !== undefined) run(command);
  else if (command.reseed !== undefined) reseed();
  else if (command.interrupt !== undefined && cell !== null && cell.id === command.interrupt) interrupted(cell);
});
worker.on('error', (e) => { writeSync(2, `${inspect(e)}\n`); process.exit(70); });
worker.on('online', () => {
  const hello = Buffer.from(`{"ready":{"version":${stringify(process.versions.node)}}}\n`);
  writeSync(4, hello);
  process.on('uncaughtException', (e) => { text('stderr', `Uncaught ${inspect(e)}\n`); });
});
