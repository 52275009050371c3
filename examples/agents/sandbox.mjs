// SPDX-License-Identifier: Apache-2.0

// A sandbox with a Python that remembers, through E2B's client, unmodified.
import { spawn } from 'node:child_process'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'

// open makes a sandbox: in the daemon that E2B_API_URL names, or in one of its own, which
// ends with close.
export async function open(template = 'code-interpreter-v1') {
  const daemon = process.env.E2B_API_URL ? undefined : await serve()
  const { Sandbox } = await import('@e2b/code-interpreter')
  const box = await Sandbox.create(template)
  return { box, close: () => box.kill().finally(() => daemon?.stop()) }
}

// serve starts caisson serve on a free port, with a state directory of its own.
async function serve() {
  const state = await mkdtemp(join(tmpdir(), 'caisson-example-'))
  const child = spawn(process.env.CAISSON ?? 'caisson', ['serve', '--listen', '127.0.0.1:0', '--state', state], {
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  const ended = new Promise((done) => child.once('close', done).once('error', done))
  for await (const line of createInterface({ input: child.stderr })) {
    const ready = /msg=ready listen=(\S+)/.exec(line)
    if (!ready) continue
    process.env.E2B_API_URL = process.env.E2B_SANDBOX_URL = `http://${ready[1]}`
    process.env.E2B_API_KEY = (await readFile(join(state, 'first-key'), 'utf8')).trim()
    break
  }
  if (!process.env.E2B_API_KEY) throw new Error('caisson serve did not start: is caisson in your PATH, or CAISSON its name?')
  child.stderr.resume()
  return {
    async stop() {
      child.kill('SIGTERM')
      await ended
      await rm(state, { recursive: true, force: true })
    },
  }
}
