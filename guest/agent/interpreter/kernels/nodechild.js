// SPDX-License-Identifier: Apache-2.0
//
// What a cell has printed comes before what a program writes that it starts then: the agent
// reads the two from different pipes, so it is asked on fd 4 whether it took the first, and
// answers on fd 5. A part of node.js.

const programs = require('child_process');

function heard() {
  if (cell === null) return;
  try {
    writeSync(4, '{"heard":true}\n');
    readSync(5, Buffer.alloc(1));
  } catch { /* the cell has closed them */ }
}

function after(object, name) {
  const start = object[name];
  object[name] = Object.assign(function (...args) {
    heard();
    return start.apply(this, args);
  }, start);
  Object.defineProperty(object[name], 'name', { value: name });
}

after(programs.ChildProcess.prototype, 'spawn'); // of spawn, exec, execFile and fork
for (const name of ['spawnSync', 'execSync', 'execFileSync']) after(programs, name);
