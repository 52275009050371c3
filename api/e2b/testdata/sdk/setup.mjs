// SPDX-License-Identifier: Apache-2.0

// The client under test: "e2b", or "e2b-older" for the one before.
import { after } from 'node:test'

export const sdk = await import(process.env.E2B_SDK ?? 'e2b')
export const { Sandbox } = sdk
// Levels without a root of their own or a kernel that can be written down.
export const lacking = process.env.CAISSON_TEST_LACKING === 'yes' ? 'the level has none' : false
export const newest = (process.env.E2B_SDK ?? 'e2b') === 'e2b'

// One sandbox that many tests share. They use names of their own in it.
let shared
export async function box() {
  shared ??= Sandbox.create({ timeoutMs: 300_000 })
  return shared
}
after(async () => {
  if (shared) await (await shared).kill()
})

// until waits for a condition that something else brings about.
export async function until(condition, what) {
  for (const end = Date.now() + 20_000; Date.now() < end; ) {
    const value = await condition()
    if (value) return value
    await new Promise((r) => setTimeout(r, 20))
  }
  throw new Error(`not within 20 s: ${what}`)
}

export const url = process.env.E2B_API_URL
export const key = process.env.E2B_API_KEY
