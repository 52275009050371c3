// SPDX-License-Identifier: Apache-2.0
import http from 'node:http'

// Levels without a root of their own or a kernel that can be written down.
export const lacking = process.env.CAISSON_TEST_LACKING === 'yes' ? 'the level has none' : false

// until waits for a condition that something else brings about.
export async function until(condition, what) {
  for (const end = Date.now() + 120_000; Date.now() < end; ) {
    const value = await condition()
    if (value) return value
    await new Promise((r) => setTimeout(r, 20))
  }
  throw new Error(`not within 2 min: ${what}`)
}

// portOf asks a port of a sandbox by its name, which Node.js does not find by itself
// below localhost, and returns what it says, or undefined.
export function portOf(url) {
  return new Promise((resolve) => {
    const lookup = (_, options, done) => (options.all ? done(null, [{ address: '127.0.0.1', family: 4 }]) : done(null, '127.0.0.1', 4))
    http
      .get(url, { lookup, agent: false }, async (res) => {
        let all = ''
        for await (const part of res) all += part
        resolve(res.statusCode === 200 ? all : undefined)
      })
      .on('error', () => resolve(undefined))
  })
}
