import assert from "node:assert/strict";
import test, { describe, it } from "node:test";
import data from "./data.json";
import * as math from "mathjs";
export const add = (a, b) => a + b;
export default async function* stream(url) {
  const res = await fetch(url, { headers: { accept: "text/event-stream" } });
  for await (const chunk of res.body) yield chunk;
}
describe("add", () => { it("adds", () => assert.equal(add(1, 2), 3)); });
test("data", async (t) => { await t.test(String(data?.x ?? math.pi), () => {}); });
const { setTimeout: later } = await import("node:timers/promises");
await later(1);
export { add as plus };
export * from "./other.js";
