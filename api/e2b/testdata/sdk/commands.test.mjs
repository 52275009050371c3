// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { box, lacking, newest, sdk, until } from './setup.mjs'

test('a command ends with 0', async () => {
  const r = await (await box()).commands.run('echo hi; echo oops >&2')
  assert.deepEqual([r.exitCode, r.stdout, r.stderr], [0, 'hi\n', 'oops\n'])
})

test('a command that fails throws', async () => {
  const b = await box()
  await assert.rejects(b.commands.run('echo no >&2; exit 3'), (e) => {
    assert.ok(e instanceof sdk.CommandExitError)
    assert.deepEqual([e.exitCode, e.stderr, e.error], [3, 'no\n', 'exit status 3'])
    return true
  })
})

test('a command that a signal ends', async () => {
  await assert.rejects((await box()).commands.run('kill -9 $$'), (e) => /signal: killed/.test(e.error))
})

test('home, user and directory', async () => {
  const r = await (await box()).commands.run('echo $HOME; whoami; pwd')
  assert.equal(r.stdout, '/home/user\nuser\n/home/user\n')
})

test('cwd and variables', async () => {
  const r = await (await box()).commands.run('pwd; echo "$FOO"', { cwd: '/tmp', envs: { FOO: 'bar baz' } })
  assert.equal(r.stdout, '/tmp\nbar baz\n')
})

test('a directory that is not there', async () => {
  await assert.rejects((await box()).commands.run('pwd', { cwd: '/nowhere' }), sdk.InvalidArgumentError)
})

test('output that is no ASCII comes whole', async () => {
  const text = 'ä€😀'.repeat(20_000)
  const b = await box()
  await b.files.write('/home/user/text', text)
  assert.equal((await b.commands.run('cat /home/user/text')).stdout, text)
})

test('output comes while the command runs', async () => {
  const b = await box()
  const seen = []
  const h = await b.commands.run('echo one; read -r x; echo two', { background: true, stdin: true, onStdout: (s) => { seen.push(s) } })
  await until(() => seen.join('') === 'one\n', 'the first line')
  await b.commands.sendStdin(h.pid, 'go\n')
  assert.equal((await h.wait()).stdout, 'one\ntwo\n')
})

test('input until its end', async (t) => {
  const b = await box()
  const h = await b.commands.run('cat', { background: true, stdin: true })
  await b.commands.sendStdin(h.pid, 'a\n')
  await b.commands.sendStdin(h.pid, 'b\n')
  await b.commands.closeStdin(h.pid)
  assert.equal((await h.wait()).stdout, 'a\nb\n')
})

test('without stdin a command reads nothing', async () => {
  assert.equal((await (await box()).commands.run('cat; echo done', { stdin: false })).stdout, 'done\n')
})

test('processes are listed, and killed once', async () => {
  const b = await box()
  const h = await b.commands.run('sleep 600', { background: true })
  const found = (await b.commands.list()).find((p) => p.pid === h.pid)
  assert.deepEqual([found.cmd, found.args], ['/bin/bash', ['-l', '-c', 'sleep 600']])
  assert.equal((await b.commands.run(`kill -0 ${h.pid} && echo there`)).stdout, 'there\n')
  assert.equal(await b.commands.kill(h.pid), true)
  await assert.rejects(h.wait(), (e) => /signal: killed/.test(e.error))
  assert.equal(await b.commands.kill(h.pid), false)
  assert.equal((await b.commands.list()).some((p) => p.pid === h.pid), false)
})

test('a handle kills', async () => {
  const h = await (await box()).commands.run('sleep 600', { background: true })
  assert.equal(await h.kill(), true)
  await assert.rejects(h.wait())
})

test('a command outlives who listened, and is found again', async () => {
  const b = await box()
  const first = await b.commands.run('read -r x; echo "got $x"', { background: true, stdin: true })
  await first.disconnect()
  const again = await b.commands.connect(first.pid)
  assert.equal(again.pid, first.pid)
  await b.commands.sendStdin(first.pid, 'it\n')
  assert.equal((await again.wait()).stdout, 'got it\n')
})

test('nobody finds a process that never was', async () => {
  const b = await box()
  await assert.rejects(b.commands.connect(999_999), sdk.NotFoundError)
  await assert.rejects(b.commands.sendStdin(999_999, 'x'), sdk.NotFoundError)
})

test('a command is killed when its time is over', async () => {
  const b = await box()
  await assert.rejects(b.commands.run('echo $$ > /tmp/late; exec sleep 600', { timeoutMs: 700 }), sdk.TimeoutError)
  await until(async () => {
    const r = await b.commands.run('kill -0 $(cat /tmp/late) 2>/dev/null && echo alive || echo gone')
    return r.stdout === 'gone\n'
  }, 'the end of the process')
})

test('commands run beside each other', async () => {
  const b = await box()
  const all = await Promise.all(Array.from({ length: 12 }, (_, i) => b.commands.run(`echo ${i}`)))
  assert.deepEqual(all.map((r) => r.stdout.trim()), Array.from({ length: 12 }, (_, i) => String(i)))
})

test('root', { skip: lacking }, async () => {
  const b = await box()
  assert.equal((await b.commands.run('id -u; echo $HOME', { user: 'root' })).stdout, '0\n/root\n')
  await b.files.write('/tmp/of-root', "root's", { user: 'root' })
  await b.commands.run('chmod 600 /tmp/of-root', { user: 'root' })
  assert.equal(await b.files.read('/tmp/of-root', { user: 'root' }), "root's")
  await assert.rejects(b.files.read('/tmp/of-root'))
  assert.equal((await b.commands.run('id -u; echo $HOME; cat /tmp/of-root 2>/dev/null || echo closed')).stdout, '1000\n/home/user\nclosed\n')
})

test('sudo, python, and directories below /', { skip: lacking }, async () => {
  const b = await box()
  const r = await b.commands.run('sudo echo "<$FOO>"; sudo -E sh -c \'echo "<$FOO> $(id -u) $SUDO_USER"\'; python -c "print(6*7)"; echo hi | sudo tee -a /etc/motd', { envs: { FOO: 'bar' } })
  assert.equal(r.stdout, '<bar>\n<bar> 0 user\n42\nhi\n')
  const w = await b.files.write([{ path: '/0/one.txt', data: '1' }, { path: '/workspace/two.txt', data: '2' }])
  assert.deepEqual(w.map((f) => f.path), ['/0/one.txt', '/workspace/two.txt'])
  assert.equal((await b.files.write('note.txt', 'x', { user: 'root' })).path, '/root/note.txt')
  assert.equal((await b.commands.run('stat -c %U /0/one.txt; sudo cat /root/note.txt')).stdout, 'user\nx')
})

test('a user who is not there', async () => {
  await assert.rejects((await box()).commands.run('id', { user: 'nobody-at-all' }), sdk.AuthenticationError)
})

test('32 MB of output', async () => {
  const r = await (await box()).commands.run('head -c 33554432 /dev/zero | tr "\\0" x', { timeoutMs: 120_000 })
  assert.equal(r.stdout.length, 33554432)
})
