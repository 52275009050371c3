// SPDX-License-Identifier: Apache-2.0

// How long E2B's code interpreter takes: CALLS cells in one context, and CREATES sandboxes to
// their first cell. Prints medians in milliseconds.
import { performance } from 'node:perf_hooks'

const { Sandbox } = await import(process.env.CAISSON_INTERPRETER ?? '@e2b/code-interpreter')
const median = (times) => times.sort((a, b) => a - b)[times.length >> 1].toFixed(1)

async function timed(n, f) {
  const times = []
  for (let i = 0; i < n; i++) {
    const began = performance.now()
    await f()
    times.push(performance.now() - began)
  }
  return median(times)
}

const b = await Sandbox.create()
await b.runCode('1+1')
console.log('1+1 in a context', await timed(+(process.env.CALLS ?? 200), () => b.runCode('1+1')))
await b.kill()
const made = []
console.log('create to first cell', await timed(+(process.env.CREATES ?? 10), async () => {
  const b = await Sandbox.create()
  made.push(b)
  await b.runCode('1+1')
}))
await Promise.all(made.map((b) => b.kill()))
