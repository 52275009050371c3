// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { box, newest, sdk, until } from './setup.mjs'

const dir = '/home/user/files'

test('write and read', async () => {
  const b = await box()
  const info = await b.files.write(`${dir}/a/hello.txt`, 'hello')
  assert.equal(info.path, `${dir}/a/hello.txt`)
  assert.equal(info.name, 'hello.txt')
  assert.equal(info.type, 'file')
  assert.equal(await b.files.read(`${dir}/a/hello.txt`), 'hello')
  await b.files.write(`${dir}/a/hello.txt`, 'other')
  assert.equal(await b.files.read(`${dir}/a/hello.txt`), 'other')
  assert.equal((await b.commands.run(`stat -c '%a %U' ${dir}/a ${dir}/a/hello.txt`)).stdout, '755 user\n644 user\n')
})

test('an empty file', async () => {
  const b = await box()
  await b.files.write(`${dir}/empty`, '')
  assert.equal(await b.files.read(`${dir}/empty`), '')
  assert.equal((await b.files.read(`${dir}/empty`, { format: 'bytes' })).length, 0)
})

test('relative paths and ~ begin at home', async () => {
  const b = await box()
  assert.equal((await b.files.write('relative.txt', 'x')).path, '/home/user/relative.txt')
  assert.equal(await b.files.read('~/relative.txt'), 'x')
})

test('all forms of content', async () => {
  const b = await box()
  const bytes = new Uint8Array(300_000).map((_, i) => (i * 7919) % 251)
  await b.files.write(`${dir}/bytes`, bytes.buffer)
  assert.deepEqual(Buffer.from(await b.files.read(`${dir}/bytes`, { format: 'bytes' })), Buffer.from(bytes))
  await b.files.write(`${dir}/blob`, new Blob([bytes]))
  const blob = await b.files.read(`${dir}/blob`, { format: 'blob' })
  assert.equal(blob.size, bytes.length)
  await b.files.write(`${dir}/stream`, new Blob([bytes]).stream())
  const parts = []
  for await (const p of await b.files.read(`${dir}/stream`, { format: 'stream' })) parts.push(p)
  assert.deepEqual(Buffer.concat(parts), Buffer.from(bytes))
})

test('several files at once', async () => {
  const b = await box()
  const infos = await b.files.write([
    { path: `${dir}/many/1`, data: 'one' },
    { path: 'many-relative/2', data: 'two' },
    { path: `${dir}/many/😀 ü`, data: 'three' },
  ])
  assert.deepEqual(infos.map((i) => i.path), [`${dir}/many/1`, '/home/user/many-relative/2', `${dir}/many/😀 ü`])
  assert.equal(await b.files.read(`${dir}/many/😀 ü`), 'three')
})

test('packed on the way', async () => {
  const b = await box()
  const text = 'again and again '.repeat(50_000)
  await b.files.write(`${dir}/packed`, text, { gzip: true, useOctetStream: true })
  assert.equal((await b.commands.run(`wc -c < ${dir}/packed`)).stdout.trim(), String(text.length))
  assert.equal(await b.files.read(`${dir}/packed`, { gzip: true }), text)
})

test('files of 10 MB', async () => {
  const b = await box()
  const bytes = Buffer.alloc(10 << 20, 'caisson')
  await b.files.write(`${dir}/large`, bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length))
  assert.ok(Buffer.from(await b.files.read(`${dir}/large`, { format: 'bytes' })).equals(bytes))
})

test('what is not there', async () => {
  const b = await box()
  await assert.rejects(b.files.read(`${dir}/nothing`), sdk.NotFoundError)
  await assert.rejects(b.files.list(`${dir}/nothing`), sdk.NotFoundError)
  await assert.rejects(b.files.getInfo(`${dir}/nothing`), sdk.NotFoundError)
  await assert.rejects(b.files.rename(`${dir}/nothing`, `${dir}/something`), sdk.NotFoundError)
  assert.equal(await b.files.exists(`${dir}/nothing`), false)
  await b.files.remove(`${dir}/nothing`)
})

test('directories', async () => {
  const b = await box()
  assert.equal(await b.files.makeDir(`${dir}/tree/one/two`), true)
  assert.equal(await b.files.makeDir(`${dir}/tree/one/two`), false)
  await b.files.write(`${dir}/tree/file`, 'x')
  await b.files.write(`${dir}/tree/one/deep`, 'xy')
  const flat = await b.files.list(`${dir}/tree`)
  assert.deepEqual(flat.map((e) => [e.name, e.type]), [['file', 'file'], ['one', 'dir']])
  const deep = await b.files.list(`${dir}/tree`, { depth: 3 })
  assert.deepEqual(deep.map((e) => e.path.slice(dir.length)), ['/tree/file', '/tree/one', '/tree/one/deep', '/tree/one/two'])
  await assert.rejects(b.files.list(`${dir}/tree/file`), sdk.InvalidArgumentError)
  await assert.rejects(b.files.read(`${dir}/tree`), sdk.InvalidArgumentError)
  await assert.rejects(b.files.write(`${dir}/tree`, 'x'), sdk.InvalidArgumentError)
})

test('what a file is', async () => {
  const b = await box()
  await b.commands.run(`mkdir -p ${dir}/info && cd ${dir}/info && printf abc > f && chmod 640 f && ln -s f link`)
  const i = await b.files.getInfo(`${dir}/info/f`)
  assert.deepEqual([i.name, i.type, i.size, i.mode, i.permissions, i.owner, i.group], ['f', 'file', 3, 0o640, '-rw-r-----', 'user', 'user'])
  assert.ok(Math.abs(i.modifiedTime.getTime() - Date.now()) < 600_000)
  const l = await b.files.getInfo(`${dir}/info/link`)
  assert.deepEqual([l.name, l.symlinkTarget], ['link', `${dir}/info/f`])
})

test('rename and remove', async () => {
  const b = await box()
  await b.files.write(`${dir}/old`, 'x')
  const moved = await b.files.rename(`${dir}/old`, `${dir}/new/place`)
  assert.equal(moved.path, `${dir}/new/place`)
  assert.equal(await b.files.exists(`${dir}/old`), false)
  await b.files.remove(`${dir}/new`)
  assert.equal(await b.files.exists(`${dir}/new/place`), false)
})

test('metadata stays with a file', { skip: newest ? false : 'the older client has none' }, async () => {
  const b = await box()
  const info = await b.files.write(`${dir}/tagged`, 'x', { metadata: { purpose: 'test', Author: 'me' } })
  assert.deepEqual(info.metadata, { purpose: 'test', author: 'me' })
  assert.deepEqual((await b.files.getInfo(`${dir}/tagged`)).metadata, { purpose: 'test', author: 'me' })
  await b.files.write(`${dir}/tagged`, 'y')
  assert.equal((await b.files.getInfo(`${dir}/tagged`)).metadata, undefined)
})

test('signed URLs', async () => {
  const b = await box()
  await b.files.write(`${dir}/signed`, 'by url')
  const get = await b.downloadUrl(`${dir}/signed`)
  const res = await fetch(get)
  assert.deepEqual([res.status, await res.text()], [200, 'by url'])
  const put = await b.uploadUrl(`${dir}/uploaded`)
  const form = new FormData()
  form.append('file', new Blob(['up']), 'x')
  assert.equal((await fetch(put, { method: 'POST', body: form })).status, 200)
  assert.equal(await b.files.read(`${dir}/uploaded`), 'up')
  const late = await (await fetch(await b.downloadUrl(`${dir}/signed`, { useSignatureExpiration: -10 }))).json()
  assert.deepEqual([late.code, late.message], [401, 'signature is already expired'])
  const soon = await fetch(await b.downloadUrl(`${dir}/signed`, { useSignatureExpiration: 60 }))
  assert.equal(await soon.text(), 'by url')
  for (const [from, to] of [['signed', 'other'], ['signature=v1_', 'signature=v1_A']]) {
    assert.equal((await fetch(get.replace(from, to))).status, 401)
  }
  assert.equal((await fetch(get, { method: 'POST', body: form })).status, 401, 'a right to read is none to write')
})

// The test holds a file on the host that is to stay as it is and unread.
test('nothing of the host by any path', async () => {
  const b = await box()
  const canary = process.env.CAISSON_TEST_CANARY
  const at = `${dir}/links`
  await b.commands.run(`mkdir -p ${at} && cd ${at} && ln -s ${canary} file && ln -s / root && ln -s /proc/1/root proc && ln -s ${canary.replace(/[/][^/]*$/, '')} dir`)
  const name = canary.split('/').pop()
  const paths = [canary, `${at}/file`, `${at}/root${canary}`, `${at}/proc${canary}`, `${at}/dir/${name}`, `../../../../../..${canary}`, `/proc/1/root${canary}`, `/proc/self/root/../../..${canary}`, `/home/user/../..${canary}`, `//${canary}`]
  for (const p of paths) {
    await assert.rejects(b.files.read(p), `${p} was read`)
    await assert.rejects(b.files.read(`${p}\0`))
    assert.equal((await fetch(await b.downloadUrl(p))).ok, false, `${p} by a signed URL`)
  }
  for (const p of paths) {
    await b.files.write(p, 'overwritten').catch(() => {}) // inside it may be written
    await b.files.rename(p, `${at}/taken`).catch(() => {})
    await b.files.remove(p).catch(() => {})
  }
})

test('a watched directory', async () => {
  const b = await box()
  await b.files.makeDir(`${dir}/watched`)
  const seen = []
  const w = await b.files.watchDir(`${dir}/watched`, (e) => { seen.push(`${e.type} ${e.name}`) })
  await b.files.write(`${dir}/watched/f`, 'x')
  await until(() => seen.includes('create f') && seen.includes('write f'), 'create and write')
  await b.commands.run(`chmod 600 ${dir}/watched/f && mv ${dir}/watched/f ${dir}/watched/g && rm ${dir}/watched/g`)
  await until(() => seen.includes('chmod f') && seen.includes('rename f') && seen.includes('remove g'), `chmod, rename and remove in ${seen}`)
  await w.stop()
  await assert.rejects(b.files.watchDir(`${dir}/nothing`, () => {}), sdk.NotFoundError)
})

test('a directory that is watched with all below it', async () => {
  const b = await box()
  await b.files.makeDir(`${dir}/deep/a`)
  const seen = []
  const w = await b.files.watchDir(`${dir}/deep`, (e) => { seen.push(`${e.type} ${e.name}`) }, { recursive: true })
  await b.files.write(`${dir}/deep/a/f`, 'x')
  await until(() => seen.includes('create a/f'), 'a file below')
  await b.files.makeDir(`${dir}/deep/new`)
  await until(() => seen.includes('create new'), 'a new directory')
  await b.files.write(`${dir}/deep/new/g`, 'x')
  await until(() => seen.some((s) => s.endsWith(' new/g')), 'a file in the new directory')
  await w.stop()
})
