// Presences that the schema of a room refuses: node tests/js/presences.js http://… It says "well" at
// the end.

import assert from "node:assert/strict";

const { Live } = await import(process.env.CLIENT ?? "../../clients/js/client.js");
const { Client } = await import(process.env.HTTP ?? "../../clients/js/http.js");
const { RoomService } = await import("../../clients/js/roomservice.js");
const url = process.argv[2];
const schema = { type: "object", required: ["x"], properties: { x: { type: "number" } } };
const client = new Client(url);
await client.rooms.create({ id: "board" });
await client.rooms.putPresence("board", "cursor", { schema });

const lives = ["ann", "bob"].map((name) => new Live(url, { token: `dev:${name}` }));
const [ann, bob] = await Promise.all(lives.map((live) => live.join("board")));
const [mine, seen] = [ann.presence("cursor"), bob.presence("cursor")];
const shown = [];
const told = [];
mine.subscribe((all, who) => shown.push([all.ann, who.mine]));
seen.subscribe((all) => told.push(all.ann));

// Waits until a subscriber is told what `holds` is true of.
const until = (object, holds) =>
  new Promise((resolve) => {
    const end = object.subscribe((all) => holds(all) && (end(), resolve()));
  });
const refusal = () =>
  new Promise((resolve) => {
    const end = ann.onRefused((error, ops) => (end(), resolve([error.code, error.message, ops])));
  });

// The first one: there is none before it.
let refused = refusal();
mine.set("nowhere");
assert.equal(mine.mine, "nowhere");
let [code, message, ops] = await refused;
assert.deepEqual([code, ops, mine.mine, mine.all()], ["bad_shape", [], undefined, {}]);
assert.match(message, /cursor/);

// One after another that all others see: that holds again.
let came = until(seen, (all) => all.ann?.x === 1);
mine.set({ x: 1 });
await came;
refused = refusal();
mine.set({ y: 2 });
assert.deepEqual(mine.mine, { y: 2 });
[code] = await refused;
assert.deepEqual([code, mine.mine, seen.all()], ["bad_shape", { x: 1 }, { ann: { x: 1 } }]);

// Both go on, and nobody else has seen what was refused.
came = until(seen, (all) => all.ann?.x === 3);
mine.set({ x: 3 });
await came;
assert.deepEqual(told, [{ x: 1 }, { x: 3 }]);
const before = ["nowhere", undefined, { x: 1 }, { y: 2 }, { x: 1 }, { x: 3 }];
assert.deepEqual(shown, before.map((value) => [value, true]));
assert.deepEqual([ann.status, lives[0].state], ["live", "connected"]);

// The same by the drop-in for Room Service.
const auth = async ({ room }) => ({ token: "dev:cat", user: "cat", resources: [{ object: "room", id: room }] });
const cat = await new RoomService({ auth, url }).room("board");
const here = cat.presence("cursor");
here.set({ x: 5 });
const back = new Promise((resolve) => {
  cat.subscribe(here, (all) => all.cat?.x === 5 && resolve(all.cat));
});
const why = new Promise((resolve) => cat.onceward.onRefused((error) => resolve(error.code)));
assert.equal(here.set("nowhere").cat, "nowhere");
assert.deepEqual([await why, await back, here.getMine()], ["bad_shape", { x: 5 }, { x: 5 }]);

console.log("well");
process.exit();
