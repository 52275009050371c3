// SPDX-License-Identifier: Apache-2.0

// Models that call one tool, run_python, through the official clients. A model is a
// function: what there is to answer goes in, its next step comes out:
//   {code}  Python to run, whose outcome is given to it next
//   {text}  its answer
import { readFile } from 'node:fs/promises'

const tool = {
  name: 'run_python',
  description: 'Runs Python. Variables stay from one call to the next. Figures are shown to the user.',
  schema: { type: 'object', properties: { code: { type: 'string' } }, required: ['code'] },
}

// model is the one that a word names: scripted (the default), openai:NAME, anthropic:NAME,
// or the URL of a server that speaks OpenAI's protocol, with the model's name after a #.
export async function model(word, system, script) {
  const [maker, ...rest] = word.split(':')
  if (word === 'scripted') return scripted(JSON.parse(await readFile(script, 'utf8')))
  if (maker === 'anthropic') return anthropic(rest.join(':'), system)
  if (maker === 'openai') return openai(rest.join(':'), system)
  if (!/^https?$/.test(maker)) throw new Error(`no model ${word}: write openai:NAME, anthropic:NAME or a URL`)
  const url = new URL(word)
  const name = url.hash.slice(1) || 'default'
  url.hash = ''
  return openai(name, system, { baseURL: url.href, apiKey: process.env.OPENAI_API_KEY ?? 'none' })
}

// scripted says what its script has, step by step. In a text {1} is what the first code
// printed, and so on: it has computed nothing itself.
function scripted(steps) {
  const heard = []
  let next = 0
  return async (input) => {
    heard.push(input)
    const step = steps[next++]
    return step.code ? step : { text: step.text.replace(/\{(\d+)\}/g, (_, n) => heard[n].trim()) }
  }
}

async function openai(name, system, options) {
  const { default: OpenAI } = await import('openai')
  const client = new OpenAI(options)
  const messages = [{ role: 'system', content: system }]
  let asked
  return async (input) => {
    messages.push(asked ? { role: 'tool', tool_call_id: asked, content: input } : { role: 'user', content: input })
    const { choices } = await client.chat.completions.create({
      model: name,
      messages,
      tools: [{ type: 'function', function: { name: tool.name, description: tool.description, parameters: tool.schema } }],
      parallel_tool_calls: false,
    })
    const said = choices[0].message
    messages.push(said)
    const call = said.tool_calls?.[0]
    asked = call?.id
    return call ? { code: argument(call.function.arguments) } : { text: said.content }
  }
}

async function anthropic(name, system) {
  const { default: Anthropic } = await import('@anthropic-ai/sdk')
  const client = new Anthropic()
  const messages = []
  let asked
  return async (input) => {
    messages.push({ role: 'user', content: asked ? [{ type: 'tool_result', tool_use_id: asked, content: input }] : input })
    const { content } = await client.messages.create({
      model: name,
      max_tokens: 4096,
      system,
      messages,
      tools: [{ name: tool.name, description: tool.description, input_schema: tool.schema }],
      tool_choice: { type: 'auto', disable_parallel_tool_use: true },
    })
    messages.push({ role: 'assistant', content })
    const call = content.find((part) => part.type === 'tool_use')
    asked = call?.id
    return call ? { code: String(call.input.code ?? '') } : { text: content.map((part) => part.text ?? '').join('') }
  }
}

// argument is the code in a call's arguments, which a model may have written wrong: then
// Python says so to it.
function argument(json) {
  try {
    return String(JSON.parse(json).code ?? '')
  } catch {
    return 'raise SystemExit("the arguments are no JSON with code")'
  }
}
