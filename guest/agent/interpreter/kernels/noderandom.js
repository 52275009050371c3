// SPDX-License-Identifier: Apache-2.0
//
// Random numbers of a sandbox that was restored or is a copy: V8's generator cannot begin
// anew, and OpenSSL's not from JavaScript. What a cell draws is of the operating system from
// then on. What OpenSSL draws for itself (keys, TLS) is not. A part of node.js.

// fill fills bytes from the operating system's generator.
function fill(bytes) {
  const urandom = openSync('/dev/urandom', 'r');
  try {
    for (let at = 0; at < bytes.byteLength;) at += readSync(urandom, bytes, at, bytes.byteLength - at);
  } finally {
    closeSync(urandom);
  }
  return bytes;
}

// region is what a call of randomFill means.
function region(into, offset = 0, size = undefined) {
  const unit = into.BYTES_PER_ELEMENT ?? 1;
  const begin = (into.byteOffset ?? 0) + offset * unit;
  return new Uint8Array(into.buffer ?? into, begin, size === undefined ? into.byteLength - offset * unit : size * unit);
}

function uuid() {
  const b = fill(Buffer.alloc(16));
  b[6] = b[6] & 0x0f | 0x40;
  b[8] = b[8] & 0x3f | 0x80;
  return b.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}

// below is a number from 0 to limit-1.
function below(limit) {
  for (;;) {
    const n = fill(Buffer.alloc(6)).readUIntBE(0, 6);
    if (n < 2 ** 48 - 2 ** 48 % limit) return n % limit;
  }
}

const numbers = new Uint32Array(512); // of Math.random
let drawn = numbers.length;
let fresh = false;

// draws has a function of crypto give what then makes of its arguments, once the generators
// are to be fresh: cells may have kept it in a variable. then calls it first, as it was, to
// judge what it was given.
function draws(object, name, then) {
  const was = object[name];
  object[name] = Object.assign(function (...args) {
    const call = (...args) => was.apply(this, args);
    return fresh ? then(call, ...args) : call(...args);
  }, was);
  Object.defineProperties(object[name], { name: { value: name }, length: { value: was.length } });
}

const crypto = require('crypto');
draws(crypto, 'randomBytes', (was, size, done) => {
  if (done === undefined) return fill(was(size));
  return was(size, (e, b) => { if (e) done(e); else done(null, fill(b)); });
});
draws(crypto, 'randomFillSync', (was, into, ...where) => {
  was(into, ...where);
  fill(region(into, ...where));
  return into;
});
draws(crypto, 'randomFill', (was, into, ...rest) => {
  const done = rest.pop();
  if (typeof done !== 'function') return was(into, ...rest, done);
  return was(into, ...rest, (e) => { if (!e) fill(region(into, ...rest)); done(e, into); });
});
draws(crypto, 'randomInt', (was, min, max, done) => {
  if (max === undefined || typeof max === 'function') [min, max, done] = [0, min, max];
  const number = () => min + below(max - min);
  if (done !== undefined) return was(min, max, (e) => { if (e) done(e); else done(undefined, number()); });
  was(min, max);
  return number();
});
draws(crypto, 'randomUUID', (was, ...options) => { was(...options); return uuid(); });
const web = Object.getPrototypeOf(crypto.webcrypto);
draws(web, 'getRandomValues', (was, into) => { was(into); fill(region(into)); return into; });
draws(web, 'randomUUID', (was) => { was(); return uuid(); });
Module.syncBuiltinESMExports();

// reseed has the generators begin anew.
function reseed() {
  drawn = numbers.length;
  if (fresh) return;
  fresh = true;
  Math.random = function random() { // only then: V8's own is faster
    if (drawn >= numbers.length) { fill(region(numbers)); drawn = 0; }
    return (numbers[drawn++] * 2 ** 21 + (numbers[drawn++] >>> 11)) / 2 ** 53;
  };
}
