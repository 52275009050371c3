// SPDX-License-Identifier: Apache-2.0

// E2B's code interpreter against caisson serve. CAISSON_INTERPRETER is the client:
// "@e2b/code-interpreter", or "code-interpreter-older" for the one before.
import assert from 'node:assert/strict'
import { after, test } from 'node:test'

const sdk = await import(process.env.CAISSON_INTERPRETER ?? '@e2b/code-interpreter')
const { Sandbox } = sdk
const options = { timeoutMs: 300_000 }
// Levels whose kernel cannot be written down.
const lacking = process.env.CAISSON_TEST_LACKING === 'yes' ? 'the level has none' : false
// What the host's Python has.
const science = process.env.CAISSON_TEST_SCIENCE === 'yes' ? false : 'the host has no matplotlib and pandas for its Python'

let shared
const box = () => (shared ??= Sandbox.create(options))
after(async () => {
  if (shared) await (await shared).kill()
})

// ran is a cell that has no error.
async function ran(code, o) {
  const x = await (await box()).runCode(code, o)
  assert.equal(x.error, undefined, x.error?.traceback)
  return x
}

test('the last expression, and what stays', async () => {
  const x = await ran('x = 1\nx + 1')
  assert.equal(x.text, '2')
  assert.equal(x.results.length, 1)
  assert.equal(x.results[0].isMainResult, true)
  assert.deepEqual(x.results[0].extra, {})
  const y = await ran('x += 1; x')
  assert.equal(y.text, '2')
  assert.equal(y.executionCount, x.executionCount + 1)
})

test('a string stands without its quotes', async () => {
  assert.equal((await ran('"hello"')).text, 'hello')
})

test('output in its order, as it comes', async () => {
  const seen = []
  const x = await ran(
    'import sys, time\nprint("one", flush=True)\nprint("two", file=sys.stderr, flush=True)\nprint("three")',
    { onStdout: (m) => seen.push('out ' + m.line), onStderr: (m) => seen.push('err ' + m.line), onResult: () => seen.push('result') },
  )
  assert.equal(x.logs.stdout.join(''), 'one\nthree\n')
  assert.equal(x.logs.stderr.join(''), 'two\n')
  assert.deepEqual(seen.map((s) => s.trim()), ['out one', 'err two', 'out three'])
})

test('output comes while the cell runs', async () => {
  const b = await box()
  let first
  const began = new Promise((r) => { first = r })
  const cell = b.runCode('import os, time\nprint("began", flush=True)\nwhile not os.path.exists("/tmp/go"): time.sleep(0.01)', { onStdout: first })
  assert.equal((await began).line, 'began\n')
  await b.files.write('/tmp/go', '')
  assert.equal((await cell).error, undefined)
})

test('an error has name, value and traceback', async () => {
  const errors = []
  const x = await (await box()).runCode('def f():\n  return 1/0\nf()', { onError: (e) => errors.push(e) })
  assert.equal(x.error.name, 'ZeroDivisionError')
  assert.match(x.error.value, /division by zero/)
  assert.match(x.error.traceback, /1\/0/)
  assert.equal(errors.length, 1)
})

test('text that is no ASCII comes whole', async () => {
  const text = 'ä€😀'.repeat(20_000)
  const x = await ran(`print("ä€😀" * 20_000)`)
  assert.equal(x.logs.stdout.join(''), text + '\n')
})

test('10 MB of output', async () => {
  const x = await ran('print("x" * 10_000_000)')
  assert.equal(x.logs.stdout.join('').length, 10_000_001)
})

test('forms of results', async () => {
  const x = await ran(`
class Shown:
    def _repr_html_(self): return "<b>b</b>"
    def _repr_markdown_(self): return "**b**"
    def _repr_latex_(self): return "$b$"
    def _repr_svg_(self): return "<svg/>"
    def _repr_json_(self): return {"b": [1]}
    def _repr_javascript_(self): return "b()"
    def __repr__(self): return "shown"
Shown()`)
  const r = x.results[0]
  assert.deepEqual([r.text, r.html, r.markdown, r.latex, r.svg, r.javascript], ['shown', '<b>b</b>', '**b**', '$b$', '<svg/>', 'b()'])
  assert.deepEqual(r.json, { b: [1] })
  assert.deepEqual(x.results[0].formats().includes('html'), true)
})

test('variables of a cell, and of the sandbox', async () => {
  const b = await Sandbox.create({ ...options, envs: { OF_THE_BOX: 'a' } })
  try {
    const x = await b.runCode('import os; os.environ["OF_THE_BOX"] + os.environ["FOO"]', { envs: { FOO: 'b' } })
    assert.equal(x.text, 'ab')
    assert.equal((await b.runCode('os.environ.get("FOO"), os.environ["OF_THE_BOX"]')).text, "(None, 'a')")
  } finally {
    await b.kill()
  }
})

test('contexts', async () => {
  const b = await box()
  const c = await b.createCodeContext({ language: 'python', cwd: '/tmp' })
  assert.deepEqual([c.language, c.cwd], ['python', '/tmp'])
  await b.runCode('mine = 5', { context: c })
  assert.equal((await b.runCode('import os; mine, os.getcwd()', { context: c })).text, "(5, '/tmp')")
  assert.equal((await b.runCode('mine')).error.name, 'NameError')
  const all = await b.listCodeContexts()
  assert.ok(all.some((x) => x.id === c.id && x.cwd === '/tmp'))
  assert.ok(all.some((x) => x.language === 'python' && x.id !== c.id) && all.some((x) => x.language === 'javascript'))
  await b.restartCodeContext(c)
  assert.equal((await b.runCode('mine', { context: c })).error.name, 'NameError')
  await b.removeCodeContext(c)
  await assert.rejects(b.runCode('1', { context: c }), sdk.NotFoundError)
  await assert.rejects(b.restartCodeContext(c), sdk.NotFoundError)
  await assert.rejects(b.runCode('1', { context: { id: 'nothere' } }), sdk.NotFoundError)
})

test('two contexts side by side', async () => {
  const b = await box()
  const [one, two] = await Promise.all([b.createCodeContext(), b.createCodeContext()])
  const [x, y] = await Promise.all([b.runCode('import os; os.getpid()', { context: one }), b.runCode('import os; os.getpid()', { context: two })])
  assert.notEqual(x.text, y.text)
  await Promise.all([b.removeCodeContext(one), b.removeCodeContext(two)])
})

test('a context and a language', async () => {
  await assert.rejects((await box()).runCode('1', { context: { id: 'x' }, language: 'python' }))
  const r = await post('/execute', { code: '1', context_id: 'x', language: 'python' }, { 'X-Access-Token': (await box()).envdAccessToken })
  assert.equal(r.status, 400)
})

// post asks the interpreter as the client does.
async function post(path, body, headers = {}) {
  const b = await box()
  return fetch(process.env.E2B_SANDBOX_URL + path, {
    method: 'POST', body: JSON.stringify(body),
    headers: { 'Content-Type': 'application/json', 'E2b-Sandbox-Id': b.sandboxId, 'E2b-Sandbox-Port': '49999', ...headers },
  })
}

test('code wants the token', async () => {
  assert.equal((await post('/execute', { code: '1' })).status, 401)
  assert.equal((await post('/execute', { code: '1' }, { 'X-Access-Token': 'x' })).status, 401)
})

test('javascript', async () => {
  await ran('const a = 41', { language: 'js' })
  const x = await ran('console.log("hi"); a + 1', { language: 'javascript' })
  assert.deepEqual([x.text, x.logs.stdout.join('')], ['42', 'hi\n'])
  assert.equal((await ran('await Promise.resolve(7)', { language: 'js' })).text, '7')
  const e = await (await box()).runCode('throw new TypeError("no")', { language: 'js' })
  assert.equal(e.error.name, 'TypeError')
})

test('bash', async () => {
  await ran('cd /tmp; A=b', { language: 'bash' })
  const x = await ran('pwd; echo $A', { language: 'bash' })
  assert.equal(x.logs.stdout.join(''), '/tmp\nb\n')
})

test('a client that leaves interrupts the cell', async () => {
  const b = await box()
  await assert.rejects(b.runCode('import time\ntime.sleep(100)', { timeoutMs: 500 }), sdk.TimeoutError)
  const began = Date.now()
  assert.equal((await b.runCode('1+1')).text, '2')
  assert.ok(Date.now() - began < 20_000)
})

test('a kernel that ends is said, and the next cell answers', async () => {
  const x = await (await box()).runCode('import os; os._exit(3)')
  assert.match(x.error.value, /code 3/)
  assert.equal((await ran('1+1')).text, '2')
})

test('a kill in mid-execution is the client\'s own error', async () => {
  const b = await Sandbox.create(options)
  let first
  const began = new Promise((r) => { first = r })
  const cell = b.runCode('import time\nprint(1, flush=True)\ntime.sleep(100)', { onStdout: first })
  await Promise.all([assert.rejects(cell, sdk.TimeoutError), began.then(() => b.kill())])
})

test('state over pause and resume', { skip: lacking }, async () => {
  const b = await Sandbox.create(options)
  await b.runCode('kept = 7')
  await b.pause()
  const again = await Sandbox.connect(b.sandboxId)
  assert.equal((await again.runCode('kept')).text, '7')
  await again.kill()
})

// Each draws before the copies are made, so that the generators have a beginning there.
test('copies draw numbers of their own', { skip: lacking || (Sandbox.fork ? false : 'the older client has none') }, async () => {
  const draws = {
    js: ["const all = require('crypto'); const { randomBytes } = all", "[Math.random(), all.randomUUID(), all.randomBytes(8).toString('hex'), randomBytes(8).toString('hex'), all.randomInt(2 ** 40), crypto.randomUUID(), Array.from(crypto.getRandomValues(new Uint8Array(8))).join()].join(' ')"],
    python: ['import random, uuid, secrets', "' '.join(map(str, (random.random(), uuid.uuid4(), secrets.token_hex(8))))"],
  }
  const b = await Sandbox.create(options)
  const copies = []
  try {
    for (const [language, [before, draw]] of Object.entries(draws)) assert.equal((await b.runCode(`${before};\n${draw}`, { language })).error, undefined)
    copies.push(...(await b.fork({ count: 2 })))
    for (const [language, [, draw]] of Object.entries(draws)) {
      const [one, other] = (await Promise.all(copies.map((c) => c.runCode(draw, { language })))).map((x) => x.text.split(' '))
      assert.ok(one.length > 1)
      one.forEach((n, i) => assert.notEqual(n, other[i], `${language}: number ${i}`))
    }
  } finally {
    await Promise.all([b, ...copies].map((c) => c.kill()))
  }
})

test('template code-interpreter-v1', async () => {
  const b = await Sandbox.create('code-interpreter-v1', options)
  assert.equal((await b.runCode('1+1')).text, '2')
  await b.kill()
})

test('a chart as data and as a picture', { skip: science }, async () => {
  const x = await ran(`
import matplotlib.pyplot as plt
plt.plot([1, 2, 3], [4, 5, 6], label="a")
plt.xlabel("Time (s)")
plt.title("T")
plt.show()`)
  const r = x.results[0]
  assert.match(r.png, /^iVBOR/)
  assert.deepEqual([r.isMainResult, r.chart.type, r.chart.title, r.chart.x_label, r.chart.x_unit], [false, 'line', 'T', 'Time (s)', 's'])
  assert.deepEqual(r.chart.elements[0], { label: 'a', points: [[1, 4], [2, 5], [3, 6]] })
  assert.deepEqual(r.extra, {})
})

test('a table as data', { skip: science }, async () => {
  const x = await ran('import pandas as pd\npd.DataFrame({"a": [1, 2], "b": ["x", "y"]})')
  assert.deepEqual(x.results[0].data, { a: [1, 2], b: ['x', 'y'] })
  assert.match(x.results[0].html, /<table/)
})

test('1,000 cells in one context', async () => {
  const b = await box()
  const c = await b.createCodeContext()
  for (let i = 1; i <= 1000; i++) {
    assert.equal((await b.runCode(`${i}`, { context: c })).text, `${i}`)
  }
  await b.removeCodeContext(c)
})
