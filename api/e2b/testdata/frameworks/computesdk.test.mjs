// SPDX-License-Identifier: Apache-2.0
//
// ComputeSDK, with its E2B provider: one interface over many clouds.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { e2b } from '@computesdk/e2b'
import { compute } from 'computesdk'
import { lacking, portOf, until } from './setup.mjs'

const provider = e2b({ apiKey: process.env.E2B_API_KEY })
compute.setConfig({ provider })

// using makes a sandbox for a test, which ends with it.
async function using(options, use) {
  const b = await compute.sandbox.create(options)
  try {
    await use(b)
  } finally {
    await b.destroy()
  }
  assert.equal(await compute.sandbox.getById(b.sandboxId), null)
}

test('commands', () => using({ envs: { FOO: 'of the sandbox' } }, async (b) => {
  const ok = await b.runCommand('echo "$FOO"; pwd; echo oops >&2')
  assert.deepEqual([ok.exitCode, ok.stdout, ok.stderr], [0, 'of the sandbox\n/home/user\n', 'oops\n'])
  const no = await b.runCommand('echo part; exit 7')
  assert.deepEqual([no.exitCode, no.stdout], [7, 'part\n'])
  const with_ = await b.runCommand('sh -c \'pwd; echo "$BAR"\'', { cwd: '/tmp', env: { BAR: 'a b' } })
  assert.deepEqual([with_.exitCode, with_.stdout], [0, '/tmp\na b\n'])
  assert.equal((await b.runCommand('nowhere-to-be-found')).exitCode, 127)
  const code = await b.runCommand("python3 - <<'EOF'\nprint(sum(range(10)))\nEOF")
  assert.equal(code.stdout, '45\n')
}))

test('a command in the background', () => using({}, async (b) => {
  assert.equal((await b.runCommand('sh -c "sleep 0.1; echo later > /tmp/later; sleep 600"', { background: true })).exitCode, 0)
  await until(() => b.filesystem.exists('/tmp/later'), 'what it writes')
}))

test('files', () => using({}, async (b) => {
  const f = b.filesystem
  await f.mkdir('/home/user/dir/deep')
  await f.writeFile('/home/user/dir/note.txt', 'ä and 😀')
  assert.equal(await f.readFile('/home/user/dir/note.txt'), 'ä and 😀')
  assert.deepEqual((await f.readdir('/home/user/dir')).map((e) => e.name).sort(), ['deep', 'note.txt'])
  assert.equal(await f.exists('/home/user/dir/note.txt'), true)
  await f.remove('/home/user/dir/note.txt')
  assert.equal(await f.exists('/home/user/dir/note.txt'), false)
  await assert.rejects(f.readFile('/home/user/dir/note.txt'))
}))

test('it is found again, and listed', () => using({ metadata: { of: 'computesdk' } }, async (b) => {
  await b.filesystem.writeFile('/home/user/x', 'x')
  const again = await compute.sandbox.getById(b.sandboxId)
  assert.equal(again.sandboxId, b.sandboxId)
  assert.equal(await again.filesystem.readFile('/home/user/x'), 'x')
  assert.ok((await compute.sandbox.list()).some((s) => s.sandboxId === b.sandboxId))
  const info = await b.getInfo()
  assert.deepEqual([info.provider, info.status], ['e2b', 'running'])
  assert.equal(b.getInstance().sandboxId, b.sandboxId)
}))

test('a port', () => using({}, async (b) => {
  await b.filesystem.writeFile('/tmp/web/index.html', 'served')
  await b.runCommand('python3 -m http.server 8123 --directory /tmp/web', { background: true })
  const url = new URL(await b.getUrl({ port: 8123, protocol: 'http' }))
  assert.equal(url.hostname.split('.')[0], `8123-${b.sandboxId}`)
  await until(async () => (await portOf(url)) === 'served', 'the server')
}))

test('a snapshot, and what begins with it', { skip: lacking }, () => using({}, async (b) => {
  await b.filesystem.writeFile('/home/user/then', 'as it was')
  const snapshot = await provider.snapshot.create(b.sandboxId)
  await b.filesystem.writeFile('/home/user/then', 'later')
  await using({ snapshotId: snapshot.id }, async (copy) => {
    assert.equal(await copy.filesystem.readFile('/home/user/then'), 'as it was')
  })
  await provider.snapshot.delete(snapshot.id)
}))

test('a key that is none', async () => {
  const wrong = e2b({ apiKey: `e2b_${'0'.repeat(40)}` })
  await assert.rejects(wrong.sandbox.create({}), /the key is not known/)
  assert.deepEqual(await wrong.sandbox.list(), [])
})
