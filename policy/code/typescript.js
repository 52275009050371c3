// SPDX-License-Identifier: Apache-2.0
//
// Takes the types out of a TypeScript program on standard input, with the parser
// of the Node.js that is inside: each becomes as many blanks, so that what is left
// is JavaScript and stands where it stood. Nothing of the program is executed.
'use strict';
const source = require('node:fs').readFileSync(0, 'utf8');
const strip = require('node:module').stripTypeScriptTypes;
process.removeAllListeners('warning');
let out = {};
if (!strip) {
  out = { missing: `Node.js ${process.versions.node} cannot take types out; 22.13 can` };
} else {
  try {
    out = { code: strip(source, { mode: 'strip' }) };
  } catch (e) {
    out = { error: [String(e && e.message).slice(0, 200), 1, 1] };
  }
}
process.stdout.write(JSON.stringify(out) + '\n');
