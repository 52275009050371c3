// SPDX-License-Identifier: Apache-2.0

// The loop of both examples: a model asks for Python, caisson runs it, the model reads what
// came of it, until it answers.
import { writeFile } from 'node:fs/promises'
import { parseArgs } from 'node:util'
import { model } from './model.mjs'
import { open } from './sandbox.mjs'

const maxSteps = 20
const maxText = 8000 // of one outcome, in characters, for the model

// run asks a model, and prints what happens. before may put files into the sandbox.
export async function run({ system, question, script, before }) {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { model: { type: 'string', default: 'scripted' }, out: { type: 'string', default: '.' }, template: { type: 'string' } },
  })
  const ask = await model(values.model, system, script)
  const { box, close } = await open(values.template)
  try {
    await before?.(box)
    let input = positionals.join(' ') || question
    console.log(`> ${input}\n`)
    for (let step = 0, pictures = 0; step < maxSteps; step++) {
      const { code, text } = await ask(input)
      if (text !== undefined) return console.log(text)
      console.log(code.replace(/^/gm, '    '))
      const said = await box.runCode(code)
      input = [...said.logs.stdout, ...said.logs.stderr, said.error?.traceback].filter(Boolean).join('')
      for (const result of said.results) {
        if (result.png) {
          const file = `${values.out}/chart-${++pictures}.png`
          await writeFile(file, Buffer.from(result.png, 'base64'))
          input += `\n[the user sees a picture: ${result.chart?.title ?? file}]\n`
        } else if (result.text) input += result.text + '\n'
      }
      input = input.slice(0, maxText) || '(nothing was printed)'
      console.log(input.trimEnd() + '\n')
    }
    throw new Error(`no answer after ${maxSteps} steps`)
  } finally {
    await close()
  }
}
