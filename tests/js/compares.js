// Two clients that race for 100 keys: node tests/js/compares.js http://… It says "well" at the end.

import assert from "node:assert/strict";

const { Live } = await import(process.env.CLIENT ?? "../../clients/js/client.js");
const lives = ["ann", "bob"].map((name) => new Live(process.argv[2], { token: `dev:${name}` }));
const rooms = [];
for (const live of lives) rooms.push(await live.join("board", { create: true }));

const compares = [];
const others = [];
for (let number = 0; number < 100; number++) {
  for (const room of rooms) {
    compares.push(room.map("m").compare(`key ${number}`, room.user));
    others.push(room.map(room.user).set("last", number));
  }
}
const errors = await Promise.all(compares.map((saved) => saved.then(() => null, (error) => error)));
for (let number = 0; number < 100; number++) {
  const lost = errors.slice(2 * number, 2 * number + 2).filter(Boolean);
  assert.deepEqual(lost.map((error) => error.code), ["not_expected"]);
  assert.match(lost[0].message, new RegExp(`'key ${number}' in 'm' is not as expected`));
}
await Promise.all(others);
for (const live of lives) live.close();
console.log("well");
