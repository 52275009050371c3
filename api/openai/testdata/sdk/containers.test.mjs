// SPDX-License-Identifier: Apache-2.0

// OpenAI's official client, unmodified, with caisson as its base URL.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import OpenAI, { toFile } from 'openai'

const client = new OpenAI() // OPENAI_BASE_URL, OPENAI_API_KEY
const other = new OpenAI({ apiKey: process.env.CAISSON_OTHER_KEY, maxRetries: 0 })

// run runs a shell line in the sandbox that a container is, by caisson's own API.
async function run(container, shell) {
  const r = await fetch(`${client.baseURL}/sandboxes/${container.id.slice(-21)}/exec`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${process.env.OPENAI_API_KEY}`, 'Content-Type': 'application/json' },
    body: JSON.stringify({ shell }),
  })
  const answer = await r.json()
  assert.equal(answer.exit_code, 0, JSON.stringify(answer))
  return answer.stdout
}

async function all(list) {
  const found = []
  for await (const x of list) found.push(x)
  return found
}

test('a container, from its making to its end', async () => {
  const made = await client.containers.create({ name: 'one', expires_after: { anchor: 'last_active_at', minutes: 5 } })
  assert.match(made.id, /^cntr_/)
  assert.equal(made.object, 'container')
  assert.equal(made.status, 'running')
  assert.equal(made.name, 'one')
  assert.deepEqual(made.expires_after, { anchor: 'last_active_at', minutes: 5 })
  assert.deepEqual(made.network_policy, { type: 'disabled' })
  assert.equal((await client.containers.retrieve(made.id)).created_at, made.created_at)
  await client.containers.delete(made.id)
  await assert.rejects(client.containers.retrieve(made.id), (e) => e instanceof OpenAI.NotFoundError && e.requestID.startsWith('req_'))
})

test('files in and out', async () => {
  const box = await client.containers.create({ name: 'files' })
  const bytes = Buffer.from(Array.from({ length: 3_000_000 }, (_, i) => i % 251))
  const put = await client.containers.files.create(box.id, { file: await toFile(bytes, 'in.bin') })
  assert.match(put.id, /^cfile_/)
  assert.equal(put.path, '/mnt/data/in.bin')
  assert.equal(put.bytes, bytes.length)
  assert.equal(put.source, 'user')
  await run(box, 'cat /mnt/data/in.bin /mnt/data/in.bin > /mnt/data/out.bin')
  const made = (await all(client.containers.files.list(box.id))).find((f) => f.path === '/mnt/data/out.bin')
  assert.equal(made.source, 'assistant')
  assert.equal(made.bytes, 2 * bytes.length)
  const content = Buffer.from(await (await client.containers.files.content.retrieve(made.id, { container_id: box.id })).arrayBuffer())
  assert.ok(content.equals(Buffer.concat([bytes, bytes])))
  assert.equal((await client.containers.files.retrieve(made.id, { container_id: box.id })).path, made.path)
  const second = await client.containers.create({ name: 'second', file_ids: [put.id] })
  const copy = await client.containers.files.create(second.id, { file_id: made.id })
  assert.equal(copy.path, '/mnt/data/out.bin')
  assert.equal(await run(second, 'cat /mnt/data/* | wc -c'), `${3 * bytes.length}\n`)
  await client.containers.files.delete(put.id, { container_id: box.id })
  await assert.rejects(client.containers.files.retrieve(put.id, { container_id: box.id }), OpenAI.NotFoundError)
  await Promise.all([box, second].map((b) => client.containers.delete(b.id)))
})

test('pages, also while what is on them is deleted', async () => {
  const made = []
  for (const i of [1, 2, 3]) made.push(await client.containers.create({ name: `page${i}` }))
  assert.deepEqual((await all(client.containers.list({ limit: 2, order: 'asc' }))).map((c) => c.id), made.map((c) => c.id))
  assert.deepEqual((await all(client.containers.list({ name: 'page2' }))).map((c) => c.id), [made[1].id])
  for (const n of ['a', 'b', 'c']) await client.containers.files.create(made[0].id, { file: await toFile(Buffer.from(n), n) })
  for await (const f of client.containers.files.list(made[0].id, { limit: 1 })) await client.containers.files.delete(f.id, { container_id: made[0].id })
  assert.deepEqual(await all(client.containers.files.list(made[0].id)), [])
  for await (const c of client.containers.list({ limit: 1 })) await client.containers.delete(c.id)
  assert.deepEqual(await all(client.containers.list()), [])
})

test('refusals are errors of the client', async () => {
  const box = await client.containers.create({ name: 'mine' })
  await assert.rejects(other.containers.retrieve(box.id), OpenAI.NotFoundError)
  await assert.rejects(other.containers.delete(box.id), OpenAI.NotFoundError)
  assert.deepEqual(await all(other.containers.list()), [])
  await assert.rejects(new OpenAI({ apiKey: 'sk-none', maxRetries: 0 }).containers.list(), OpenAI.AuthenticationError)
  await assert.rejects(
    client.containers.create({ name: 'x', skills: [{ type: 'skill_reference', skill_id: 'x' }] }),
    (e) => e instanceof OpenAI.BadRequestError && e.param === 'skills' && e.code === 'unsupported_parameter',
  )
  await assert.rejects(
    client.containers.create({ name: 'x', network_policy: { type: 'allowlist', allowed_domains: ['example.com'] } }),
    (e) => e instanceof OpenAI.PermissionDeniedError && e.code === 'denied_by_policy',
  )
  await client.containers.delete(box.id)
})
