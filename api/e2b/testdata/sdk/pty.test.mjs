// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { box, until } from './setup.mjs'

const text = new TextEncoder()

test('a terminal', async () => {
  const b = await box()
  let seen = ''
  const t = await b.pty.create({ cols: 80, rows: 24, onData: (d) => { seen += new TextDecoder().decode(d) }, envs: { MARK: 'yes' } })
  await b.pty.sendInput(t.pid, text.encode('stty size; echo "m=$MARK t=$TERM"\n'))
  await until(() => seen.includes('24 80') && seen.includes('m=yes t=xterm'), `the size and variables in ${JSON.stringify(seen)}`)
  await b.pty.resize(t.pid, { cols: 100, rows: 40 })
  await b.pty.sendInput(t.pid, text.encode('stty size\n'))
  await until(() => seen.includes('40 100'), 'the new size')
  await b.pty.sendInput(t.pid, text.encode('exit 7\n'))
  await assert.rejects(t.wait(), (e) => e.exitCode === 7)
})

test('a terminal is killed once', async () => {
  const b = await box()
  const t = await b.pty.create({ cols: 80, rows: 24, onData: () => {} })
  assert.equal(await b.pty.kill(t.pid), true)
  await assert.rejects(t.wait())
  assert.equal(await b.pty.kill(t.pid), false)
})

test('a terminal that somebody comes back to', async () => {
  const b = await box()
  const t = await b.pty.create({ cols: 80, rows: 24, onData: () => {} })
  await t.disconnect()
  let seen = ''
  const again = await b.pty.connect(t.pid, { onData: (d) => { seen += new TextDecoder().decode(d) } })
  await b.pty.sendInput(t.pid, text.encode('echo back$((40+2))\n'))
  await until(() => seen.includes('back42'), 'the answer')
  await again.kill()
})
