// SPDX-License-Identifier: Apache-2.0

// The rows of `make bench` that E2B's client measures: node bench.mjs ROW TIMES REST
// prints how many ms each took, as JSON. REST is how long to wait between two, in ms.
import { Sandbox } from 'e2b'

const [row, times, rest] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4] ?? 0)]
const warmUp = row === 'hundred' ? 0 : 2
const printed = 32 << 20
const data = new TextEncoder().encode('0123456789abcdef'.repeat(10e6 / 16)).buffer

// same refuses a measurement of what did not happen.
function same(what, got, want) {
  if (got !== want) throw new Error(`${what}: ${got} instead of ${want}`)
}

// Each returns what is done after the clock has stopped.
const rows = {
  async create() {
    const box = await Sandbox.create()
    return () => box.kill()
  },
  async first() {
    const box = await Sandbox.create()
    same('exit code', (await box.commands.run('true')).exitCode, 0)
    return () => box.kill()
  },
  async hundred() {
    const boxes = await Promise.all(Array.from({ length: 100 }, async () => {
      const box = await Sandbox.create()
      same('exit code', (await box.commands.run('true')).exitCode, 0)
      return box
    }))
    return () => Promise.all(boxes.map((b) => b.kill()))
  },
  async crowd() {
    const boxes = await Promise.all(Array.from({ length: 20 }, () => Sandbox.create()))
    return () => Promise.all(boxes.map((b) => b.kill()))
  },
  async command(box) {
    const r = await box.commands.run('true')
    return () => same('exit code', r.exitCode, 0)
  },
  async output(box) {
    const r = await box.commands.run('cat printed')
    return () => same('characters', r.stdout.length, printed)
  },
  async pieces(box) {
    const r = await box.commands.run(`head -c ${printed} /dev/zero`)
    return () => same('characters', r.stdout.length, printed)
  },
  async files(box) {
    await box.files.write('data', data)
    const back = await box.files.read('data', { format: 'bytes' })
    return () => same('bytes', back.byteLength, data.byteLength)
  },
}

const measure = rows[row]
const box = measure.length ? await Sandbox.create() : undefined
if (row === 'output') await box.commands.run(`head -c ${printed} /dev/zero > printed`)
if (rest > 5000) await new Promise((r) => setTimeout(r, rest)) // a large pool fills
const took = []
for (let i = 0; i < warmUp + times; i++) {
  const began = performance.now()
  const after = await measure(box)
  const ms = performance.now() - began
  await after()
  if (i >= warmUp) took.push(ms)
  if (rest) await new Promise((r) => setTimeout(r, rest))
}
await box?.kill()
console.log(JSON.stringify(took))
