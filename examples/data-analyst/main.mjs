// SPDX-License-Identifier: Apache-2.0

// A data analyst: a CSV file in; questions, a chart and an explanation out.
import { readFile } from 'node:fs/promises'
import { run } from '../agents/agent.mjs'

const data = new URL('../data-analysis/data.csv', import.meta.url)
const file = '/home/user/data.csv'

await run({
  system: `You are a data analyst. The file ${file} is in the sandbox. Look at it first. Compute with run_python; never guess a number. Draw with matplotlib. Answer in a few plain sentences.`,
  question: 'Which months are the wettest, and did that change from year to year?',
  script: new URL('script.json', import.meta.url),
  before: async (box) => box.files.write(file, await readFile(data, 'utf8')),
})
