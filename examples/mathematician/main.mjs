// SPDX-License-Identifier: Apache-2.0

// A mathematician: what it says was computed, never guessed.
import { run } from '../agents/agent.mjs'

await run({
  system: 'You are a mathematician. Compute with run_python, with the standard library or sympy where it is there; never guess a number. Check a result a second way. Answer in a few plain sentences.',
  question: 'What is 2^100, and what is the integral of exp(-x^2) from 0 to 1?',
  script: new URL('script.json', import.meta.url),
})
