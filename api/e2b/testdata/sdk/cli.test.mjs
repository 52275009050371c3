// SPDX-License-Identifier: Apache-2.0

// E2B's own command line, unmodified.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { test } from 'node:test'
import { box, until } from './setup.mjs'

const program = fileURLToPath(new URL('dist/index.js', import.meta.resolve('@e2b/cli/package.json')))
const e2b = async (...args) => (await promisify(execFile)(process.execPath, [program, ...args])).stdout

test('the command line lists sandboxes', async () => {
  const b = await box()
  assert.ok((await e2b('sandbox', 'list', '--format', 'json')).includes(b.sandboxId))
})

test('the command line shows the logs of a sandbox', async () => {
  const b = await box()
  await b.commands.run('echo from the log; echo bad >&2')
  // A program's end is in the log when it is recorded, which is behind its client's back.
  const lines = await until(async () => {
    const lines = (await e2b('sandbox', 'logs', b.sandboxId, '--format', 'json')).trim().split('\n').filter(Boolean).map((l) => JSON.parse(l))
    return lines.some((l) => l.message === 'from the log') && lines
  }, 'the line in the log')
  assert.deepEqual(lines.filter((l) => ['from the log', 'bad'].includes(l.message)).map((l) => l.level), ['info', 'warn'])
})
