// A room in a browser: undo, gestures, presence, what is refused, and what subscribers are told.

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { World } from "./world.js";

// As the server packs it, if it is said where that is; else the modules as they are.
const { Live } = await import(process.env.CLIENT ?? "../../clients/js/client.js");

let world;
let room;
let seq;

beforeEach(async () => {
  world = new World().begin();
  const live = new Live("http://here", { token: "t" });
  room = live.room("r");
  await world.pass(0);
  await world.welcome();
  await world.joined();
  seq = 0;
});

afterEach(() => world.end());

// The server takes what was sent.
async function acknowledge() {
  await world.pass(20);
  for (const { n } of world.sent("ops")) await world.hear({ t: "ack", room: "r", n, seq: ++seq });
  await world.pass(20);
}

// Another one changes something.
async function other(...ops) {
  await world.hear({ t: "change", room: "r", seq: ++seq, by: "bob", client: "other", n: seq, ops });
  await world.pass(20);
}

const set = (key, value) => ({ op: "map.set", map: "m", key, value });
const refused = (code) => (error) => error.code === code;

test("a drag is shown and sent as it goes, and undone and done again as one step", async () => {
  const notes = room.map("m");
  notes.set("a", { x: 0 });
  const drag = room.gesture();
  for (let x = 1; x <= 5; x++) notes.set("a", { x });
  assert.equal(notes.get("a").x, 5);
  drag.end();
  await acknowledge();
  assert.equal(seq, 6);
  assert.deepEqual(room.undo().kept, []);
  assert.deepEqual(notes.get("a"), { x: 0 });
  await acknowledge();
  assert.equal(seq, 7, "one step");
  room.redo();
  assert.deepEqual(notes.get("a"), { x: 5 });
  room.undo();
  assert.deepEqual(notes.get("a"), { x: 0 });
  room.undo();
  assert.equal(notes.has("a"), false);
  assert.equal(room.canUndo, false);
});

test("what others changed in the middle of a drag is what undo restores", async () => {
  const notes = room.map("m");
  notes.set("a", 0);
  await acknowledge();
  const drag = room.gesture();
  notes.set("a", 1);
  await acknowledge();
  await other(set("a", "theirs"));
  notes.set("a", 2);
  drag.end();
  room.undo();
  assert.equal(notes.get("a"), "theirs");
});

test("a drag that is cancelled is taken back; one that is over, or empty, is not", () => {
  const notes = room.map("m");
  notes.set("a", 0);
  const drag = room.gesture();
  assert.throws(() => room.gesture(), refused("bad_request"));
  notes.set("a", 1);
  notes.set("b", 1);
  assert.deepEqual(drag.cancel().kept, []);
  assert.deepEqual(notes.whole(), { a: 0 });
  assert.equal(drag.cancel(), null);
  assert.equal(room.gesture().cancel(), null);
  assert.deepEqual(notes.whole(), { a: 0 });
});

test("undo leaves what others have changed since, and says so", async () => {
  const notes = room.map("m");
  notes.set("a", 0);
  notes.set("a", 1);
  await acknowledge();
  await other(set("a", 2));
  assert.deepEqual(room.undo(), { step: null, kept: ['"a" in "m" was changed by others since, or its history is unknown'] });
  assert.equal(notes.get("a"), 2);
});

test("counting is undone by counting back", async () => {
  const notes = room.map("m");
  notes.add("n", 5);
  await acknowledge();
  await other({ op: "map.add", map: "m", key: "n", by: 10 });
  room.undo();
  assert.equal(notes.get("n"), 10);
});

test("lists are undone, too, also what was moved, set and deleted", async () => {
  const list = room.list("l");
  for (const value of "abc") list.push(value);
  await acknowledge();
  for (const edit of [
    () => list.move(list.idAt(0), 2),
    () => list.set(list.idAt(1), "B"),
    () => list.delete(list.idAt(1)),
    () => list.clear(),
    () => room.batch(() => (list.insert(0, "x"), list.move(list.idAt(0), 3), list.delete(list.idAt(0)))),
  ]) {
    edit();
    assert.notDeepEqual(list.values(), ["a", "b", "c"]);
    assert.deepEqual(room.undo().kept, []);
    assert.deepEqual(list.values(), ["a", "b", "c"]);
    await acknowledge();
  }
});

// Inserts where it takes a longer position each time, until the list is numbered anew.
function numberAnew(list, count) {
  let low = list.idAt(0);
  for (let number = 0; number < count; number++) {
    const { id } = list.insertAfter(low, number);
    if (number % 2) low = id;
  }
}

test("to number a list anew is no change of its items", async () => {
  const list = room.list("l");
  const [one, two, three] = ["one", "two", "three"].map((value) => list.push(value).id);
  await acknowledge();
  list.delete(three);
  list.move(two, 0);
  list.set(one, "ONE");
  const four = list.push("four").id;
  await acknowledge();
  numberAnew(list, 60);
  await acknowledge();
  for (let number = 0; number < 60; number++) assert.deepEqual(room.undo().kept, []);
  assert.deepEqual([room.undo().kept, list.has(four)], [[], false]);
  assert.deepEqual([room.undo().kept, list.get(one)], [[], "one"]);
  const order = list.items();
  assert.deepEqual(room.undo().kept, [`"${two}" in "l" keeps its position, because its list was renumbered`]);
  assert.deepEqual(list.items(), order);
  assert.deepEqual([room.undo().kept, list.get(three)], [[], "three"]);
  await acknowledge();
  assert.equal(list.length, 3);
});

test("nor is it when others do so", async () => {
  const list = room.list("l");
  const [one, two] = ["one", "two"].map((value) => list.push(value).id);
  list.move(two, 0);
  list.set(one, "ONE");
  await acknowledge();
  let low = two;
  for (let number = 0; number < 60; number++) {
    await other({ op: "list.insert", list: "l", id: `o${number}`, value: number, after: low });
    if (number % 2) low = `o${number}`;
  }
  assert.deepEqual([room.undo().kept, list.get(one)], [[], "one"]);
  assert.deepEqual(room.undo().kept, [`"${two}" in "l" keeps its position, because its list was renumbered`]);
});

test("nothing is kept of steps that cannot be undone any more", async () => {
  const list = room.list("l");
  for (let number = 0; number < 300; number++) {
    list.delete(list.push(number).id);
    await acknowledge();
  }
  const kept = room._replica?.latest.size ?? 0; // that is not to be seen where it is packed
  assert.ok(kept <= 101, String(kept));
});

test("a refused step is taken back, told, and is not there to be undone", async () => {
  const notes = room.map("m");
  const told = [];
  room.onRefused((error, ops) => told.push([error.code, ops.length]));
  const saved = notes.set("a", 1);
  await world.pass(0);
  await world.hear({ t: "refused", room: "r", n: 1, code: "bad_shape", detail: "no" });
  await world.pass(20);
  await assert.rejects(saved, refused("bad_shape"));
  assert.deepEqual([notes.whole(), told, room.canUndo], [{}, [["bad_shape", 1]], false]);
});

test("presence is sent at once, then every 40 ms at most, and the last value always", async () => {
  const cursor = room.presence("cursor");
  const told = [];
  cursor.subscribe((all, who) => told.push([all.ann?.x, who.mine]));
  for (let x = 0; x <= 100; x++) {
    cursor.set({ x });
    await world.pass(1);
  }
  assert.deepEqual(told.at(-1), [100, true], "it shows at once here");
  await world.pass(40);
  const sent = world.sent("presence.set").map((frame) => frame.value.x);
  assert.deepEqual([sent[0], sent.at(-1), sent.length], [0, 100, 4]);
  cursor.set({ x: 101 }, 10);
  cursor.remove();
  await world.pass(100);
  assert.deepEqual(world.sent("presence.remove").length, 1);
  assert.equal(cursor.mine, undefined);
});

test("a presence that is refused is taken back, and told", async (t) => {
  t.mock.method(console, "warn", () => {});
  const cursor = room.presence("cursor");
  const told = [];
  room.onRefused((error, ops) => told.push([error.code, ops.length]));
  const refuse = (value) =>
    world.hear({ t: "error", code: "bad_shape", detail: "no", room: "r", name: "cursor", value });
  cursor.set({ x: 1 });
  await world.pass(100);
  cursor.set("wrong");
  await world.pass(100);
  assert.equal(cursor.mine, "wrong");
  await refuse("wrong");
  assert.deepEqual([cursor.mine, told], [{ x: 1 }, [["bad_shape", 0]]]);
  // One that was replaced meanwhile changes nothing.
  cursor.set("worse");
  await world.pass(100);
  cursor.set({ x: 2 });
  await world.pass(100);
  await refuse("worse");
  assert.deepEqual([cursor.mine, told.length], [{ x: 2 }, 2]);
  await refuse("never sent");
  assert.equal(told.length, 2);
  // The first of all leaves nothing.
  room.presence("cursor").remove();
  await world.pass(100);
  cursor.set("wrong");
  await world.pass(100);
  await refuse("wrong");
  assert.deepEqual([cursor.mine, cursor.all()], [undefined, {}]);
});

test("on a page that is not seen presence does not wait for timers", async () => {
  const cursor = room.presence("cursor");
  cursor.set(1);
  cursor.set(2);
  world.hidden = true;
  world.happens("visibilitychange");
  cursor.set(3);
  await world.pass(0);
  assert.equal(world.sent("presence.set").at(-1).value, 3);
});

test("what comes in a burst is told together, and what one asks for is right in between", async () => {
  const notes = room.map("m");
  let told = 0;
  notes.subscribe(() => told++);
  notes.set("mine", 1);
  await world.pass(20);
  told = 0;
  for (let number = 1; number <= 100; number++) {
    await world.hear({ t: "change", room: "r", seq: number, by: "bob", ops: [set("n", number)] });
    assert.deepEqual(notes.whole(), { mine: 1, n: number });
  }
  await world.pass(20);
  assert.equal(told, 2, "the first one at once");
  world.hidden = true;
  await world.hear({ t: "change", room: "r", seq: 101, by: "bob", ops: [set("n", 0)] });
  await world.hear({ t: "change", room: "r", seq: 102, by: "bob", ops: [set("n", 1)] });
  await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
  assert.equal(told, 4, "without a timer");
});

test("what is got is a copy", () => {
  const value = { a: [1] };
  room.map("m").set("k", value);
  value.a.push(2);
  room.map("m").get("k").a.push(3);
  room.map("m").whole().k.a.push(4);
  assert.deepEqual(room.map("m").get("k"), { a: [1] });
});

test("a subscriber that throws harms nobody", (t) => {
  t.mock.method(console, "error", () => {});
  const told = [];
  const end = room.map("m").subscribe(() => undefined.no);
  room.map("m").subscribe((value, who) => told.push([value, who]), "k");
  room.map("m").set("k", 1);
  assert.deepEqual(told, [[1, { user: "ann", mine: true }]]);
  assert.equal(console.error.mock.callCount(), 1);
  end();
  end();
});

test("bad input is refused, and changes nothing", () => {
  const map = room.map("m");
  const list = room.list("l");
  const cycle = {};
  cycle.cycle = cycle;
  let deep = 1;
  for (let level = 0; level < 91; level++) deep = [deep];
  const id = list.push(1).id;
  for (const [code, act] of [
    ["bad_name", () => room.map("")],
    ["bad_name", () => room.list("x".repeat(129))],
    ["bad_name", () => room.presence(7)],
    ["bad_name", () => map.set(undefined, 1)],
    ["bad_name", () => map.set("\ud800", 1)],
    ["bad_name", () => map.delete("é".repeat(129))],
    ["bad_value", () => map.set("k", undefined)],
    ["bad_value", () => map.set("k", () => 1)],
    ["bad_value", () => map.set("k", { a: NaN })],
    ["bad_value", () => map.set("k", "\udc00")],
    ["bad_value", () => map.set("k", cycle)],
    ["bad_value", () => map.set("k", 1n)],
    ["bad_value", () => map.set("k", { deep: [2 ** 53] })],
    ["bad_value", () => list.push(-(2 ** 53))],
    ["bad_value", () => map.compare("k", 1, { expect: 1e300 })],
    ["bad_value", () => room.presence("p").set({ at: 2 ** 53 })],
    ["bad_value", () => map.add("k", 1n)],
    ["bad_value", () => map.add("k", 2 ** 53)],
    ["bad_value", () => map.add("k", "1")],
    ["too_deep", () => map.set("k", deep)],
    ["value_too_large", () => map.set("k", "x".repeat(256_000))],
    ["not_expected", () => map.compare("k", 1, { expect: null })],
    ["bad_request", () => list.insert(2, 1)],
    ["bad_request", () => list.insert(-1, 1)],
    ["bad_request", () => list.insert(0.5, 1)],
    ["bad_request", () => list.move(id, 1)],
    ["bad_key", () => list.set("none", 1)],
    ["bad_key", () => list.insertAfter("none", 1)],
    ["bad_key", () => list.moveAfter(id, "none")],
    ["bad_key", () => list.idAt(1)],
    ["bad_name", () => list.delete(undefined)],
    ["bad_request", () => room.presence("p").set(1, 0)],
    ["bad_request", () => room.presence("p").set(1, 1e9)],
    ["value_too_large", () => room.presence("p").set("x".repeat(16_000))],
    ["bad_value", () => room.presence("p").set(undefined)],
    ["bad_name", () => room.say("")],
    ["value_too_large", () => room.say("e", "x".repeat(64_000))],
    ["bad_request", () => room.batch(async () => {})],
    ["bad_request", () => room.batch(() => room.batch(() => {}))],
    ["bad_request", () => room.redo()],
  ]) {
    assert.throws(act, refused(code), act.toString());
  }
  assert.deepEqual([map.whole(), list.values(), room.waiting], [{}, [1], 1]);
});

test("a batch that throws leaves nothing", () => {
  room.map("m").set("a", 1);
  assert.throws(() =>
    room.batch(() => {
      room.map("m").set("a", 2);
      throw new RangeError("no");
    }), RangeError);
  assert.deepEqual(room.map("m").whole(), { a: 1 });
  assert.equal(room.waiting, 1);
});
