// SPDX-License-Identifier: Apache-2.0

// Headers that a client has set in the requests of its sandboxes (network.rules). A server on
// this host's loopback reflects what it gets, `value-of-the-x` as `the x`.
import { test } from 'node:test'
import assert from 'node:assert/strict'
import { Sandbox, lacking } from './setup.mjs'

const host = process.env.CAISSON_TEST_REFLECT
const encrypted = process.env.CAISSON_TEST_REFLECT_TLS
const skip = host ? false : 'there is no server that reflects headers'
const rules = (value, at = host) => ({ [at]: [{ transform: { headers: { 'X-Name': value } } }] })

const reflected = async (b, from = `http://${host}/`) => JSON.parse((await b.commands.run(`curl -sS -m 20 -H 'X-Name: its own' -H 'X-Other: other' ${from}`)).stdout)
async function gets(b, want, from) {
  const h = await reflected(b, from)
  assert.deepEqual([h['X-Name'], h['X-Other']], [[want], ['other']])
}

test('rules set headers', { skip }, async () => {
  const b = await Sandbox.create({ network: { rules: { ...rules('value-of-the-first'), ...rules('value-of-the-encrypted', encrypted) } } })
  try {
    await gets(b, 'the first')
    await gets(b, 'the encrypted', `https://${encrypted}/`)
    assert.equal(JSON.stringify(await b.getInfo()).includes('value-of'), false)
    await b.updateNetwork({ rules: rules('value-of-the-second') })
    await gets(b, 'the second')
    await b.updateNetwork({})
    await gets(b, 'its own')
    await b.updateNetwork({ rules: rules('value-of-the-third') })
    await assert.rejects(b.updateNetwork({ rules: { [host]: [{ transform: { headers: { Host: 'evil.test' } } }] } }), /network\.rules.*Host/)
    await gets(b, 'the third')
    // They open nothing.
    await b.updateNetwork({ rules: { 'elsewhere.test': [{ transform: { headers: { 'X-Name': 'value-of-none' } } }] } })
    await assert.rejects(b.commands.run('curl -sS -m 20 http://elsewhere.test/'))
    await gets(b, 'its own')
    await b.updateNetwork({ denyOut: ['0.0.0.0/0'], rules: rules('value-of-none') })
    await assert.rejects(reflected(b))
  } finally {
    await b.kill()
  }
})

test('rules of one that was made without', { skip }, async () => {
  const b = await Sandbox.create()
  try {
    await assert.rejects(b.updateNetwork({ rules: rules('value-of-none') }), /without headers/)
    await gets(b, 'its own')
  } finally {
    await b.kill()
  }
})

test('rules set headers after a pause, and in copies', { skip: skip || lacking }, async () => {
  const b = await Sandbox.create({ network: { rules: rules('value-of-the-first') } })
  const made = [b]
  try {
    await b.updateNetwork({ rules: rules('value-of-the-paused') })
    await b.pause()
    await Sandbox.connect(b.sandboxId)
    await gets(b, 'the paused')
    const [copy] = await b.fork()
    made.push(copy)
    await gets(copy, 'the paused')
    // A snapshot, which stays, keeps no values. What is made of it has those of its own request.
    const { snapshotId } = await b.createSnapshot()
    const plain = await Sandbox.create(snapshotId)
    made.push(plain)
    await gets(plain, 'its own')
    const again = await Sandbox.create(snapshotId, { network: { rules: rules('value-of-the-copy') } })
    made.push(again)
    await gets(again, 'the copy')
  } finally {
    for (const x of made) await x?.kill()
  }
})

// The template of examples/httpbin, as E2B's own test has it; TestHTTPBin builds it. The server
// is reached by this host's loopback and by header, where E2B's has a name of its own.
test('httpbin shows the header that a rule sets', { skip: process.env.CAISSON_TEST_HTTPBIN ? false : 'there is no template' }, async () => {
  const at = `host.caisson.internal:${new URL(process.env.E2B_API_URL).port}`
  const made = [await Sandbox.create('httpbin', { network: { allowPublicTraffic: true } })]
  try {
    const [{ sandboxId }] = made
    assert.match(made[0].getHost(8080), new RegExp(`^8080-${sandboxId}\\.${at}$`))
    made.push(await Sandbox.create({ network: { rules: { [at]: [{ transform: { headers: { 'X-Test-Token': 'value-of-the-test' } } }] } } }))
    const to = async (path) => (await made[1].commands.run(`curl -sS -w ' %{http_code}' -m 20 -H 'E2b-Sandbox-Id: ${sandboxId}' -H 'E2b-Sandbox-Port: 8080' 'http://${at}${path}'`)).stdout
    const [, headers, status] = /^([^]*) (\d+)$/.exec(await to('/headers'))
    assert.deepEqual([status, JSON.parse(headers).headers['X-Test-Token']], ['200', ['value-of-the-test']])
    assert.match(await to('/status/418'), / 418$/)
    assert.match(await to('/anything/x?a=1&a=2'), /"args": \{\s*"a": \[\s*"1",\s*"2"\s*\]/)
  } finally {
    for (const b of made) await b.kill()
  }
})
