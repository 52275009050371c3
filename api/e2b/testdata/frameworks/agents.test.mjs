// SPDX-License-Identifier: Apache-2.0
//
// OpenAI's Agents SDK, whose sandboxes are E2B's, with the scripted model of its own
// that it has for tests: the SDK carries out what the model calls, as with a real one.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { run, setTracingDisabled } from '@openai/agents'
import { assistantMessage, functionCall, modelResponse, ScriptedModel } from '@openai/agents-core/testing'
import { filesystem, Manifest, SandboxAgent, shell } from '@openai/agents-core/sandbox'
import { E2BSandboxClient } from '@openai/agents-extensions/sandbox/e2b'
import { Sandbox } from 'e2b'
import { lacking, portOf, until } from './setup.mjs'

setTracingDisabled(true)

// The model calls one tool after another, and then says that it is done. What it
// hears of each is returned by heard.
function script(...calls) {
  const steps = calls.map(([name, args], i) => {
    const callId = `call_${i}`
    return modelResponse([name === 'apply_patch' ? { type: 'apply_patch_call', callId, status: 'completed', operation: args } : functionCall(name, args, { callId })])
  })
  const model = new ScriptedModel([...steps, modelResponse([assistantMessage('done')])])
  const heard = () => model.lastCall.request.input.filter((i) => /_result$|_output$/.test(i.type)).map((i) => i.output?.text ?? i.output)
  return { model, heard }
}

// Its own choice is /workspace, which is writable where the sandbox has a root of its own.
const root = lacking ? '/home/user/workspace' : '/workspace'
const manifest = () => new Manifest({
  root,
  entries: { 'notes/today.txt': { type: 'file', content: 'seven bells\n' }, empty: { type: 'dir' } },
  environment: { WATCH: 'first' },
})

async function go(session, ...calls) {
  const { model, heard } = script(...calls)
  const agent = new SandboxAgent({ name: 'hand', model, defaultManifest: manifest(), capabilities: [shell(), filesystem()] })
  const result = await run(agent, 'go', { sandbox: { session } })
  model.assertComplete()
  assert.equal(result.finalOutput, 'done')
  return heard()
}

// using makes a session for a test, which ends with it.
async function using(options, use) {
  const session = await new E2BSandboxClient({ timeout: 300, ...options }).create(manifest())
  try {
    await use(session)
  } finally {
    await session.close()
  }
}

test('the tools of an agent', () => using({}, async (session) => {
  const heard = await go(
    session,
    ['exec_command', { cmd: 'pwd; cat notes/today.txt; ls -d empty; echo "$WATCH"' }],
    ['exec_command', { cmd: 'echo no >&2; exit 3' }],
    ['apply_patch', { type: 'create_file', path: 'new.py', diff: '+print(6*7)\n' }],
    ['exec_command', { cmd: 'python3 new.py' }],
    ['apply_patch', { type: 'update_file', path: 'new.py', diff: '@@\n-print(6*7)\n+print(6*9)\n' }],
    ['exec_command', { cmd: 'python3 new.py', workdir: '.' }],
    ['apply_patch', { type: 'delete_file', path: 'new.py' }],
    ['exec_command', { cmd: 'ls' }],
    ['apply_patch', { type: 'create_file', path: '../../etc/outside', diff: '+x\n' }],
  )
  assert.ok(heard[0].includes(`${root}\nseven bells\nempty\nfirst\n`), heard[0])
  assert.match(heard[1], /exited with code 3[^]*no/)
  assert.match(heard[3], /^42$/m)
  assert.match(heard[5], /^54$/m)
  assert.doesNotMatch(heard[7], /new\.py/)
  assert.match(heard[8], /fail|escape|outside/i)
}))

test('a terminal that is spoken with', () => using({}, async (session) => {
  let out = ''
  const heard = async (chars, what) => {
    const say = session.writeStdin.bind(session)
    out += await say({ sessionId, chars, yieldTimeMs: 100 })
    await until(async () => what.test(out) || ((out += await say({ sessionId, chars: '', yieldTimeMs: 100 })), false), `${what} in ${out}`)
  }
  out = (await go(session, ['exec_command', { cmd: 'tty; stty size; read -r x; echo "got <$x>"', tty: true, yield_time_ms: 100 }]))[0]
  const sessionId = Number(/session ID (\d+)/.exec(out)[1])
  // What the terminal said in two pieces comes with the tool's words between them.
  await heard('', /\/dev\/pts\/\d+\s[^]*^24 80\s/m)
  await heard('it\n', /got <it>/)
  await heard('exit 5\n', /exited with code 5/)
}))

test('an image', () => using({}, async (session) => {
  const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
  const heard = await go(session, ['exec_command', { cmd: `echo ${png} | base64 -d > dot.png` }], ['view_image', { path: 'dot.png' }], ['view_image', { path: 'none.png' }])
  assert.ok(JSON.stringify(heard[1]).includes(png.slice(0, 40)), JSON.stringify(heard[1]))
  assert.match(JSON.stringify(heard[2]), /unable to read/)
}))

test('files of a session', () => using({}, async (session) => {
  assert.equal(new TextDecoder().decode(await session.readFile({ path: 'notes/today.txt' })), 'seven bells\n')
  assert.equal(await session.pathExists('notes/none.txt'), false)
  await session.materializeEntry({ path: 'more/one.txt', entry: { type: 'file', content: 'one' } })
  assert.equal(await session.pathExists('more/one.txt'), true)
  await assert.rejects(async () => session.readFile({ path: '/etc/passwd' }))
}))

test('a workspace that is carried over', () => using({}, async (first) => {
  await go(first, ['exec_command', { cmd: 'mkdir -p a/b && echo kept > a/b/c && chmod 700 a/b/c' }])
  const archive = await first.persistWorkspace()
  await using({}, async (second) => {
    await second.hydrateWorkspace(archive)
    const [out] = await go(second, ['exec_command', { cmd: 'cat a/b/c; stat -c %a a/b/c' }])
    assert.match(out, /kept\n700/)
  })
}))

test('a workspace in a snapshot', { skip: lacking }, () => using({ workspacePersistence: 'snapshot' }, async (session) => {
  await go(session, ['exec_command', { cmd: 'echo as it was > then' }])
  const archive = await session.persistWorkspace()
  await go(session, ['exec_command', { cmd: 'echo later > then' }])
  const before = session.state.sandboxId
  await session.hydrateWorkspace(archive)
  assert.notEqual(session.state.sandboxId, before)
  const [out] = await go(session, ['exec_command', { cmd: 'cat then' }])
  assert.match(out, /as it was/)
}))

test('a session that is paused when it is left, and taken up again', async () => {
  const client = new E2BSandboxClient({ timeout: 300, pauseOnExit: true })
  const session = await client.create(manifest())
  await go(session, ['exec_command', { cmd: 'echo kept > it' }])
  await session.close()
  assert.equal((await Sandbox.getInfo(session.state.sandboxId)).state, 'paused')
  const state = await client.deserializeSessionState(JSON.parse(JSON.stringify(await client.serializeSessionState(session.state))))
  const again = await client.resume(state)
  try {
    assert.equal(again.state.sandboxId, session.state.sandboxId)
    const [out] = await go(again, ['exec_command', { cmd: 'cat it' }])
    assert.match(out, /kept/)
  } finally {
    again.state.pauseOnExit = false
    await again.close()
  }
})

test('a port', () => using({ exposedPorts: [8123] }, async (session) => {
  await go(session, ['exec_command', { cmd: 'echo served > index.html; python3 -m http.server 8123 >/dev/null 2>&1 &' }])
  const at = await session.resolveExposedPort(8123)
  assert.equal(at.host.split('.')[0], `8123-${session.state.sandboxId}`)
  await until(async () => (await portOf(new URL(`http://${at.host}:${at.port}/`))) === 'served\n', 'the server')
}))

test('a sandbox that the run makes and ends', async () => {
  const { model, heard } = script(['exec_command', { cmd: 'cat notes/today.txt; echo "$WATCH"' }])
  const agent = new SandboxAgent({ name: 'hand', model, defaultManifest: manifest(), capabilities: [shell()] })
  const group = `run-${process.pid}`
  await run(agent, 'go', { sandbox: { client: new E2BSandboxClient({ metadata: { group } }) } })
  assert.match(heard()[0], /seven bells\nfirst/)
  assert.deepEqual(await Sandbox.list({ query: { metadata: { group } } }).nextItems(), [])
})
