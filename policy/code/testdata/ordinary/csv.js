const fs = require("node:fs"), readline = require("node:readline");
async function main() {
  const rl = readline.createInterface({ input: fs.createReadStream(process.argv[2] || "data.csv"), crlfDelay: Infinity });
  const rows = [];
  let head = null;
  for await (const line of rl) {
    const cells = line.split(",").map((c) => c.trim().replace(/^"|"$/g, ""));
    if (!head) { head = cells; continue; }
    rows.push(Object.fromEntries(cells.map((c, i) => [head[i], c])));
  }
  const total = rows.reduce((s, r) => s + Number(r.amount || 0), 0);
  console.log({ rows: rows.length, total, max: Math.max(...rows.map((r) => +r.amount)) });
  fs.writeFileSync("out.json", JSON.stringify(rows));
}
main();
