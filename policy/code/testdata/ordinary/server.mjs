import http from "node:http";
import { readFile, writeFile } from "node:fs/promises";
import path, { join } from "path";
import { fileURLToPath } from "node:url";

const dir = path.dirname(fileURLToPath(import.meta.url));
const routes = new Map([["/", home], ["/health", async () => ({ ok: true })]]);

async function home(req) {
  const text = await readFile(join(dir, "index.html"), "utf8");
  return { text, length: text.length, at: new Date().toISOString() };
}

class HttpError extends Error {
  #status;
  static count = 0;
  static { HttpError.count = 0; }
  constructor(status, message, options = {}) {
    super(message, options);
    this.#status = status;
    this.name = this.constructor.name;
  }
  get status() { return this.#status ?? 500; }
}

const server = http.createServer(async (req, res) => {
  try {
    const handler = routes.get(req.url?.split("?")[0]);
    if (!handler) throw new HttpError(404, `no route ${req.url}`);
    const body = JSON.stringify(await handler(req), null, 2);
    res.writeHead(200, { "content-type": "application/json" }).end(body);
  } catch (e) {
    res.writeHead(e.status || 500).end(String(e));
  }
});
server.listen(process.env.PORT || 3000, () => console.log(`listening on ${server.address().port}`));
process.on("SIGTERM", () => server.close(() => process.exit(0)));
setTimeout(() => writeFile("log.txt", `${1_000n}`), 1000);
