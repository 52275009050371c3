// SPDX-License-Identifier: Apache-2.0

// Templates that are built with E2B's client; TestTemplateClient has an image for them.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtempSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { test } from 'node:test'
import { Sandbox, key, sdk, url } from './setup.mjs'

const image = process.env.CAISSON_TEST_IMAGE
const skip = image ? false : 'there is no image'
const { Template } = sdk

// files is a directory with what a COPY takes.
function files() {
  const dir = mkdtempSync(join(tmpdir(), 'caisson-template-'))
  writeFileSync(join(dir, 'file.txt'), 'of the client')
  symlinkSync('/etc/passwd', join(dir, 'absolute'))
  symlinkSync('nowhere', join(dir, 'dangling'))
  return dir
}

test('template: all steps, tags, and a sandbox of it', { skip }, async () => {
  const t = Template({ fileContextPath: files() })
    .fromImage(image)
    .setEnvs({ MODE: 'test' })
    .setUser('root')
    .setWorkdir('/srv/app')
    .copy('file.txt', '/srv/app/')
    .copy('absolute', '/srv/app/')
    .copy('dangling', '/srv/app/')
    .runCmd('echo from the step; ulimit -n; echo $MODE >/srv/app/made; id -u >/srv/app/who')
    .setUser('user')
    .setStartCmd('echo started >/tmp/started; sleep 1000', 'test -s /tmp/started')
  const logs = []
  const built = await Template.build(t, 'client-made', { tags: ['v1', 'v2'], onBuildLogs: (l) => logs.push(l.message) })
  assert.ok(logs.some((l) => l.includes('from the step')), logs.join('\n'))
  assert.ok(logs.includes('4096'), 'the policy says nothing of limits, so that they are those of builds')
  assert.equal(await Template.exists('client-made'), true)
  assert.equal(await Template.exists('client-none'), false)
  const b = await Sandbox.create('client-made:v2')
  try {
    const run = await b.commands.run('cat file.txt made who /tmp/started; echo $MODE; readlink absolute dangling', { cwd: '/srv/app' })
    assert.equal(run.stdout, 'of the clienttest\n0\nstarted\ntest\n/etc/passwd\nnowhere\n')
  } finally {
    await b.kill()
  }
  assert.equal(built.name ?? 'client-made', 'client-made')
  await Template.assignTags('client-made:v1', ['stable'])
  assert.deepEqual((await Template.getTags('client-made')).map((x) => x.tag).sort(), ['stable', 'v1', 'v2'])
  await Template.removeTags('client-made', ['v2'])
  await assert.rejects(Sandbox.create('client-made:v2'))
  for (const bad of [':x', 'client-made:']) await assert.rejects(Template.assignTags(bad, ['y']))

  const again = []
  await Template.build(Template().fromTemplate('client-made:v1').runCmd('cat /srv/app/made', { user: 'root' }), 'client-more', { onBuildLogs: (l) => again.push(l.message) })
  assert.ok(again.some((l) => l === 'test'), again.join('\n'))
})

// The newest command line alone: it has its own copy of the client.
test('template: the command line builds a Dockerfile, lists and deletes', { skip }, async () => {
  const program = fileURLToPath(new URL('dist/index.js', import.meta.resolve('@e2b/cli/package.json')))
  const e2b = (...args) => promisify(execFile)(process.execPath, [program, 'template', ...args])
  const dir = files()
  writeFileSync(join(dir, 'e2b.Dockerfile'), `FROM ${image}\nUSER root\nENV MODE=test\nWORKDIR /srv/app\nCOPY file.txt /srv/app/\nRUN cat file.txt; echo $MODE >made\n`)
  const { stdout: log } = await e2b('create', 'cli-made', '--path', dir, '--cmd', 'sleep 1000', '--ready-cmd', 'true', '--no-cache')
  assert.ok(log.includes('of the client'), log)
  const b = await Sandbox.create('cli-made')
  try {
    assert.equal((await b.commands.run('cat made file.txt', { cwd: '/srv/app' })).stdout, 'test\nof the client')
  } finally {
    await b.kill()
  }
  const { stdout } = await e2b('list', '--format', 'json')
  assert.ok(JSON.parse(stdout).some((t) => t.aliases.includes('cli-made')), stdout)
  await assert.rejects(e2b('publish', 'cli-made', '--yes'), /template share/)
  await e2b('unpublish', 'cli-made', '--yes')
  await e2b('delete', 'cli-made', '--yes')
  assert.equal(await Template.exists('cli-made'), false)
  writeFileSync(join(dir, 'e2b.Dockerfile'), `FROM ${image}\nRUN exit 3\n`)
  await assert.rejects(e2b('create', 'cli-bad', '--path', dir), /exit code 3/)
})

test('template: what goes wrong says where', { skip }, async () => {
  const build = (t) => Template.build(t, 'client-bad', {})
  await assert.rejects(build(Template().fromImage(image).runCmd('whoami', { user: 'root123' })),
    (e) => e.message === "failed to run command 'whoami': command failed: unauthenticated: invalid username: 'root123'")
  await assert.rejects(build(Template().fromImage(image).runCmd('exit 3')), /exit code 3/)
  await assert.rejects(build(Template().fromImage('127.0.0.1:1/none:1')), /policy allows the image/)
  await assert.rejects(build(Template().fromImage(image, { username: 'me', password: 'canary' })), /no public address/)
  assert.equal(await Template.exists('client-bad'), false)
})

// A failed step is shown where the caller wrote it, by the step that the server names.
test('template: an error shows the line of the step that failed', { skip }, async () => {
  const from = () => Template({ fileContextPath: files() }).fromImage(image)
  const source = readFileSync(fileURLToPath(import.meta.url), 'utf8').split('\n')
  for (const [method, make] of Object.entries({
    fromImage: () => Template().fromImage('registry.example.com/none:1').runCmd('true'),
    fromTemplate: () => Template().fromTemplate('client-none').runCmd('true'),
    copy: () => from().setEnvs({ A: 'b' }).copy('file.txt', '/srv/', { user: 'root123' }),
    runCmd: () => from().setEnvs({ A: 'b' }).runCmd('true').runCmd('exit 3').runCmd('true'),
    setWorkdir: () => from().runCmd('true').setWorkdir('/etc/passwd/x').runCmd('true'),
    setUser: () => from().runCmd('true').setUser('; exit 1').runCmd('true'),
    makeDir: () => from().runCmd('true').makeDir('/etc/passwd/x'),
  })) {
    const error = await Template.build(make(), 'client-bad', {}).then(() => assert.fail(method), (e) => e)
    const [, line, column] = /template\.test\.mjs:(\d+):(\d+)/.exec(error.stack.split('\n')[0]) ?? assert.fail(`${method}: ${error.stack}`)
    assert.ok(source[line - 1].slice(column - 1).startsWith(method + '('), `${method}: ${error.message} at ${source[line - 1].slice(column - 1)}`)
  }
})

// No call ends a build. One whose client has gone away ends when another of a name of its
// is started, as at E2B.
test('template: a build whose client went away gives way to the next one', { skip }, async () => {
  const from = () => Template().fromImage(image)
  const gone = new AbortController()
  const ids = {}
  const long = Template.build(from().runCmd('echo it runs; sleep 1000'), 'client-gone', {
    tags: ['a', 'b'],
    signal: gone.signal,
    onBuildLogs: ({ message }) => {
      const [, templateId, buildId] = /Template created with ID: ([^,]+), Build ID: (.+)/.exec(message) ?? []
      if (buildId) Object.assign(ids, { templateId, buildId })
      if (message === 'it runs') gone.abort()
    },
  })
  await assert.rejects(long, (e) => e.name === 'AbortError')
  await Template.build(from(), 'client-gone', { tags: ['c'] })
  assert.equal((await Template.getBuildStatus(ids)).status, 'building')
  await Template.build(from().runCmd('true'), 'client-gone', { tags: ['b', 'c'] })
  const was = await Template.getBuildStatus(ids)
  assert.deepEqual([was.status, /another build of this name/.test(was.reason.message)], ['error', true], was.reason?.message)
  await assert.rejects(Sandbox.create('client-gone:a'))
  const already = new AbortController()
  already.abort()
  await assert.rejects(Template.build(from(), 'client-none', { signal: already.signal }))
  assert.equal(await Template.exists('client-none'), false)
})

test('template: one that is removed while a sandbox uses it', { skip }, async () => {
  await Template.build(Template().fromImage(image).runCmd('echo of the template >/made', { user: 'root' }), 'client-used', {})
  const b = await Sandbox.create('client-used')
  try {
    assert.equal((await fetch(`${url}/templates/client-used`, { method: 'DELETE', headers: { 'X-API-Key': key } })).status, 204)
    await assert.rejects(Sandbox.create('client-used'))
    assert.equal((await b.commands.run('cat /made')).stdout, 'of the template\n')
    await Template.build(Template().fromImage(image).runCmd('echo of another >/made', { user: 'root' }), 'client-used', {})
    assert.equal((await b.commands.run('cat /made')).stdout, 'of the template\n')
    const other = await Sandbox.create('client-used')
    assert.equal((await other.commands.run('cat /made')).stdout, 'of another\n')
    await other.kill()
  } finally {
    await b.kill()
  }
})
