'use strict';
const fs = require('fs');
const { promisify } = require('util');
const _ = require("lodash");
const sleep = (ms) => new Promise((r) => setTimeout(r, ms));
const readFile = promisify(fs.readFile);
async function retry(fn, { times = 3, wait = 100 } = {}) {
  for (let i = 0; ; i++) {
    try { return await fn(); } catch (e) { if (i >= times) throw e; await sleep(wait * 2 ** i); }
  }
}
function* ids() { let n = 0; while (true) yield n++; }
const re = /^(?<k>\w+)=(.*)$/u, o = { ...process.env, [`k${1}`]: re.exec("a=b")?.groups?.k };
const by = (k) => (a, b) => (a[k] > b[k] ? 1 : -1);
const [x = 1, ...rest] = [1, 2, 3].map((v) => v ** 2);
for (const [k, v] of Object.entries(o)) if (k in o && typeof v === "string") console.log(k, v);
if (x.constructor === Number || rest.constructor.name === "Array") console.log(_.chunk(rest, 2));
label: while (true) { switch (x) { case 1: break label; default: continue label; } }
do { readFile('x').catch(() => {}); } while (Math.random() > 2);
let line; while ((line = rest.pop()) !== undefined) console.log(line);
Object.prototype.hasOwnProperty.call(o, "a"); Array.prototype.slice.call(arguments);
module.exports = { retry, ids, by, get: (obj, key) => obj[key] };
