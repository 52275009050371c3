import readline from "readline/promises";
const rl = readline.createInterface({ input: process.stdin, output: process.stdout });
const board = Array.from({ length: 3 }, () => Array(3).fill(" "));
const wins = (p) => [0, 1, 2].some((i) => board[i].every((c) => c === p) || board.every((r) => r[i] === p));
for (let turn = 0; turn < 9; turn++) {
  const who = turn % 2 ? "O" : "X";
  let move;
  while (true) {
    const [r, c] = (await rl.question(`${who}: `)).split(",").map(Number);
    if (board[r]?.[c] === " ") { move = [r, c]; break; }
  }
  board[move[0]][move[1]] = who;
  if (wins(who)) { console.log(`${who} wins`); break; }
}
rl.close();
