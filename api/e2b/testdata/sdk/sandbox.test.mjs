// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Sandbox, box, key, lacking, newest, sdk, until, url } from './setup.mjs'

const id = () => Math.random().toString(36).slice(2)

async function all(paginator) {
  const found = []
  while (paginator.hasNext) found.push(...(await paginator.nextItems()))
  return found
}

test('create, use, kill', async () => {
  const b = await Sandbox.create()
  assert.match(b.sandboxId, /^[a-z0-9]+$/)
  assert.equal(await b.isRunning(), true)
  assert.equal((await b.commands.run('echo hi')).stdout, 'hi\n')
  assert.equal(await b.kill(), true)
  assert.equal(await b.isRunning(), false)
  assert.equal(await Sandbox.kill(b.sandboxId), false)
  await assert.rejects(Sandbox.getInfo(b.sandboxId), sdk.NotFoundError)
  await assert.rejects(Sandbox.connect(b.sandboxId), sdk.NotFoundError)
})

test('what is known of a sandbox', async () => {
  const b = await Sandbox.create({ timeoutMs: 120_000, metadata: { 'a b': 'c&d=ü', plain: 'x' } })
  try {
    const i = await b.getInfo()
    assert.deepEqual([i.sandboxId, i.templateId, i.state, i.metadata], [b.sandboxId, 'base', 'running', { 'a b': 'c&d=ü', plain: 'x' }])
    assert.ok(Math.abs(i.endAt - i.startedAt - 120_000) < 5_000)
    assert.ok(i.cpuCount > 0 && i.memoryMB > 0)
  } finally {
    await b.kill()
  }
})

test('variables of a sandbox are in every command', async () => {
  const b = await Sandbox.create({ envs: { FOO: 'from the sandbox', BAR: 'old' } })
  try {
    const r = await b.commands.run('echo "$FOO, $BAR"', { envs: { BAR: 'new' } })
    assert.equal(r.stdout, 'from the sandbox, new\n')
  } finally {
    await b.kill()
  }
})

test('lists are filtered and have pages', async () => {
  const group = id()
  const made = []
  try {
    for (const n of ['1', '2', '3']) made.push(await Sandbox.create({ metadata: { group, 'n & =%': n } }))
    const ids = made.map((b) => b.sandboxId).reverse()
    const mine = await all(Sandbox.list({ query: { metadata: { group } } }))
    assert.deepEqual(mine.map((s) => s.sandboxId), ids, 'the newest first')
    const one = await all(Sandbox.list({ query: { metadata: { group, 'n & =%': '2' } } }))
    assert.deepEqual(one.map((s) => s.sandboxId), [ids[1]])
    assert.deepEqual(await all(Sandbox.list({ query: { metadata: { group }, state: ['paused'] } })), [])
    const pages = Sandbox.list({ query: { metadata: { group } }, limit: 2 })
    assert.equal((await pages.nextItems()).length, 2)
    assert.equal(pages.hasNext, true)
    assert.equal((await pages.nextItems())[0].sandboxId, ids[2])
    assert.equal(pages.hasNext, false)
  } finally {
    await Promise.all(made.map((b) => b.kill()))
  }
  assert.deepEqual(await all(Sandbox.list({ query: { metadata: { group } } })), [])
})

test('time is extended by connect, never shortened; setTimeout does both', async () => {
  const b = await Sandbox.create({ timeoutMs: 600_000 })
  try {
    const end = async () => (await b.getInfo()).endAt.getTime()
    const before = await end()
    const again = await Sandbox.connect(b.sandboxId, { timeoutMs: 60_000 })
    assert.equal(await end(), before)
    assert.equal((await again.commands.run('echo hi')).stdout, 'hi\n')
    await Sandbox.connect(b.sandboxId, { timeoutMs: 1_200_000 })
    assert.ok((await end()) > before + 500_000)
    await b.setTimeout(30_000)
    assert.ok((await end()) < before)
    await Sandbox.setTimeout(b.sandboxId, 900_000)
    assert.ok((await end()) > before)
  } finally {
    await b.kill()
  }
  await assert.rejects(b.setTimeout(1000), sdk.NotFoundError)
})

test('a sandbox ends by itself', async () => {
  const b = await Sandbox.create({ timeoutMs: 1_000 })
  await until(async () => !(await b.isRunning()), 'the end of its life')
})

test('a command hears of its sandbox\'s end', async () => {
  const b = await Sandbox.create()
  const h = await b.commands.run('echo up; sleep 600', { background: true })
  await until(() => h.stdout === 'up\n', 'the command')
  const end = assert.rejects(h.wait(), sdk.TimeoutError)
  await b.kill()
  await end
  await assert.rejects(b.commands.run('true'))
  await assert.rejects(b.files.read('/etc/passwd'))
})

test('a template that is not there', async () => {
  await assert.rejects(Sandbox.create('no-such-template'), /no-such-template/)
})

test('a key that is none', async () => {
  const wrong = { apiKey: `e2b_${'0'.repeat(40)}` }
  await assert.rejects(Sandbox.create(wrong), sdk.AuthenticationError)
  await assert.rejects(Sandbox.kill('i0123456789', wrong), sdk.AuthenticationError)
})

test("another key's sandbox is none", async () => {
  const b = await box()
  const other = { apiKey: process.env.CAISSON_OTHER_KEY }
  assert.equal(await Sandbox.kill(b.sandboxId, other), false)
  await assert.rejects(Sandbox.getInfo(b.sandboxId, other), sdk.NotFoundError)
  await assert.rejects(Sandbox.connect(b.sandboxId, other), sdk.NotFoundError)
  await assert.rejects(Sandbox.setTimeout(b.sandboxId, 1, other), sdk.NotFoundError)
  assert.equal((await all(Sandbox.list(other))).some((s) => s.sandboxId === b.sandboxId), false)
  assert.equal(await b.isRunning(), true)
})

test('readings', async () => {
  const b = await box()
  const m = await until(async () => (await b.getMetrics()).at(-1), 'a reading')
  assert.ok(m.cpuCount >= 1 && m.memTotal > 0 && m.memUsed > 0 && m.timestamp instanceof Date)
})

test('a wish beyond the policy is refused', async () => {
  const beyond = process.env.CAISSON_TEST_INTERNET ? '10.1.2.3' : 'beyond.test' // the policy may have the internet
  await assert.rejects(Sandbox.create({ network: { allowOut: [beyond], denyOut: ['0.0.0.0/0'] } }), (e) => e.message.includes(beyond))
  await assert.rejects(Sandbox.create({ network: { allowOut: ['beyond.test'] } }), /0\.0\.0\.0\/0/)
  const none = await Sandbox.create({ allowInternetAccess: false })
  await none.kill()
})

test('a port of a sandbox', async () => {
  const b = await box()
  const h = await b.commands.run('mkdir -p /tmp/web && cd /tmp/web && echo served > x && exec python3 -m http.server 8123', { background: true })
  const get = (port, headers = {}) => fetch(`${url}/x?y=1`, { headers: { 'E2b-Sandbox-Id': b.sandboxId, 'E2b-Sandbox-Port': String(port), ...headers } })
  const res = await until(async () => { const r = await get(8123); return r.status === 200 && r }, 'the server')
  assert.equal(await res.text(), 'served\n')
  const closed = await get(8124)
  assert.deepEqual([closed.status, (await closed.json()).port], [502, 8124])
  assert.match(b.getHost(8123), new RegExp(`^8123-${b.sandboxId}\\.`))
  await h.kill()
})

test('a port for those who have the token', { skip: newest ? false : 'the older client is enough once' }, async () => {
  const b = await Sandbox.create({ network: { allowPublicTraffic: false } })
  try {
    assert.ok(b.trafficAccessToken)
    const h = await b.commands.run('exec python3 -m http.server 8123', { background: true })
    const get = (token) => fetch(`${url}/`, { headers: { 'E2b-Sandbox-Id': b.sandboxId, 'E2b-Sandbox-Port': '8123', ...(token && { 'e2b-traffic-access-token': token }) } })
    await until(async () => (await get(b.trafficAccessToken)).status === 200, 'the server')
    assert.equal((await get()).status, 403)
    assert.equal((await get('0'.repeat(40))).status, 403)
    await h.kill()
  } finally {
    await b.kill()
  }
})

test('pause and resume', async () => {
  const b = await Sandbox.create({ timeoutMs: 300_000 })
  try {
    await b.files.write('/home/user/kept', 'it')
    const h = await b.commands.run('sleep 1000', { background: true })
    assert.equal(await b.pause(), true)
    assert.equal(await b.isRunning(), false)
    assert.equal((await Sandbox.getInfo(b.sandboxId)).state, 'paused')
    assert.equal(await Sandbox.pause(b.sandboxId), false)
    const again = await Sandbox.connect(b.sandboxId, { timeoutMs: 300_000 })
    assert.equal(await again.files.read('/home/user/kept'), 'it')
    assert.equal((await again.commands.list()).some((p) => p.pid === h.pid), true)
  } finally {
    await Sandbox.kill(b.sandboxId)
  }
})

test('a pause without memory', async () => {
  const b = await Sandbox.create({ timeoutMs: 300_000, envs: { FOO: 'of the sandbox' } })
  try {
    await b.files.write('/home/user/kept', 'it')
    if (lacking) {
      await assert.rejects(b.pause({ keepMemory: false }), /cannot pause a sandbox without its memory/)
      return
    }
    const boot = async (of) => (await of.commands.run('cat /proc/sys/kernel/random/boot_id')).stdout
    const before = await boot(b)
    const h = await b.commands.run('sleep 1000', { background: true })
    assert.equal(await b.pause({ keepMemory: false }), true)
    assert.equal(await b.isRunning(), false)
    assert.equal(await b.pause({ keepMemory: false }), false)
    const again = await Sandbox.connect(b.sandboxId, { timeoutMs: 300_000 })
    assert.equal(await again.files.read('/home/user/kept'), 'it')
    assert.equal((await again.commands.run('echo $FOO')).stdout, 'of the sandbox\n')
    assert.notEqual(await boot(b), before)
    assert.equal((await again.commands.list()).some((p) => p.pid === h.pid), false)
    await h.wait().catch(() => {}) // its stream was broken off
  } finally {
    await Sandbox.kill(b.sandboxId)
  }
})

test('a sandbox pauses by itself without its memory, and does not wake by itself', { skip: lacking }, async () => {
  const b = await Sandbox.create({ timeoutMs: 300_000, lifecycle: { onTimeout: { action: 'pause', keepMemory: false } } })
  try {
    assert.deepEqual((await b.getInfo()).lifecycle, { onTimeout: 'pause', autoResume: false })
    await b.files.write('/home/user/kept', 'it')
    await b.setTimeout(0)
    await until(async () => (await b.getInfo()).state === 'paused', 'the pause')
    await assert.rejects(b.files.read('/home/user/kept'))
    await b.connect()
    assert.equal(await b.files.read('/home/user/kept'), 'it')
  } finally {
    await b.kill()
  }
})

test('a sandbox pauses by itself and wakes when it is used', async () => {
  const b = await Sandbox.create({ timeoutMs: 300_000, lifecycle: { onTimeout: 'pause', autoResume: true } })
  try {
    const h = await b.commands.run('echo it > /tmp/kept; exec sleep 1000', { background: true })
    assert.deepEqual((await b.getInfo()).lifecycle, { onTimeout: 'pause', autoResume: true })
    await until(async () => (await b.files.exists('/tmp/kept')), 'the file')
    await b.setTimeout(0)
    await until(async () => (await b.getInfo()).state === 'paused', 'the pause')
    assert.equal((await b.commands.run(`cat /tmp/kept; kill -0 ${h.pid} && echo lives`)).stdout, 'it\nlives\n')
    assert.equal((await b.getInfo()).state, 'running')
  } finally {
    await b.kill()
  }
})

test('a snapshot, and what begins with it', { skip: lacking }, async () => {
  const b = await Sandbox.create({ timeoutMs: 300_000 })
  try {
    await b.files.write('/home/user/then', 'as it was')
    const snap = await b.createSnapshot()
    await b.files.write('/home/user/then', 'later')
    assert.ok((await all(Sandbox.listSnapshots({ sandboxId: b.sandboxId }))).some((s) => s.snapshotId === snap.snapshotId))
    const copy = await Sandbox.create(snap.snapshotId)
    assert.equal(await copy.files.read('/home/user/then'), 'as it was')
    await copy.kill()
    assert.equal(await b.files.read('/home/user/then'), 'later')
    assert.equal(await Sandbox.deleteSnapshot(snap.snapshotId), true)
    assert.equal(await Sandbox.deleteSnapshot(snap.snapshotId), false)
    await assert.rejects(Sandbox.create(snap.snapshotId))
  } finally {
    await b.kill()
  }
})

test('forks', { skip: Sandbox.fork ? lacking : 'the older client has none' }, async () => {
  const b = await Sandbox.create({ timeoutMs: 300_000 })
  const copies = []
  try {
    await b.files.write('/home/user/then', 'as it was')
    copies.push(...(await b.fork({ count: 2 })))
    assert.equal(copies.length, 2)
    for (const c of copies) assert.equal(await c.files.read('/home/user/then'), 'as it was')
    assert.equal(new Set([b.sandboxId, ...copies.map((c) => c.sandboxId)]).size, 3)
  } finally {
    await Promise.all([b, ...copies].map((c) => c.kill?.()))
  }
})
