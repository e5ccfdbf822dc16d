// The connection: made again when it is lost, and not given up because timers are late.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { afterEach, beforeEach, test } from "node:test";
import { World } from "./world.js";

// As the server packs them, if it is said where that is; else the modules as they are.
const rooms = await import(process.env.CLIENT ?? "../../clients/js/client.js");
const http = await import(process.env.HTTP ?? "../../clients/js/http.js");
const { Live } = rooms;
let world;

beforeEach(() => {
  world = new World().begin();
});

afterEach(() => world.end());

async function connected(options = { token: "t" }) {
  const live = new Live("https://here/below/", options);
  await world.pass(0);
  await world.welcome();
  return live;
}

test("it says hello with its token, and joins with what it has done before", async () => {
  const live = new Live("https://here/below/", { token: () => "secret" });
  const room = live.room("r", { create: true });
  room.list("l").push(1);
  await world.pass(0);
  assert.deepEqual([world.socket.url, world.socket.protocols], ["wss://here/below/v1/ws", ["onceward.rooms.1"]]);
  await world.welcome();
  assert.deepEqual(world.sent("hello"), [{ t: "hello", token: "secret" }]);
  assert.equal(world.sent("join")[0].create, true);
  assert.equal(room.status, "joining");
  await world.joined();
  assert.deepEqual([room.status, live.user, world.sent("ops").length], ["live", "ann", 1]);
});

test("what is done without a connection waits, and is sent with the next join", async () => {
  const live = await connected();
  const room = live.room("r");
  const statuses = [];
  room.onStatus((status) => statuses.push(status));
  await world.joined();
  room.map("m").add("n", 1);
  await world.pass(0);
  world.socket.onclose({ code: 1006, reason: "" });
  assert.deepEqual([live.state, room.status], ["connecting", "away"]);
  const saved = room.map("m").add("n", 1);
  await world.pass(200);
  await world.welcome();
  const [join] = world.sent("join");
  assert.deepEqual([join.epoch, join.steps.map((step) => step.n)], ["e", [1, 2]]);
  await world.joined("r", { n: 1, seq: 1 });
  const by = [{ op: "map.add", map: "m", key: "n", by: 1 }];
  await world.hear({ t: "change", room: "r", seq: 1, client: join.client, n: 1, ops: by }, { t: "ack", room: "r", n: 2, seq: 2 });
  await world.pass(20);
  assert.equal(await saved, 2);
  assert.deepEqual([room.map("m").get("n"), room.waiting, statuses], [2, 0, ["live", "away", "live"]]);
});

test("a connection on which nothing comes is given up, and one that answers is not", async () => {
  const live = await connected();
  for (let beat = 0; beat < 4; beat++) {
    assert.equal(world.sent("ping").length, 1);
    await world.hear({ t: "pong" });
    await world.pass(15_000);
  }
  await world.pass(15_000);
  assert.equal(live.state, "connecting");
  assert.equal(world.sockets[0].closed, true);
});

test("timers that come late, as on a page that is not seen, do not end a connection", async () => {
  const live = await connected();
  world.hidden = true;
  world.happens("visibilitychange");
  for (let minute = 0; minute < 5; minute++) {
    await world.pass(60_000, { late: true }); // the answer waits behind the timer
    assert.equal(live.state, "connected");
    await world.hear({ t: "pong" });
    await world.pass(5000);
  }
  world.hidden = false;
  world.happens("visibilitychange");
  await world.pass(5000);
  assert.equal(live.state, "connecting", "who comes back and hears nothing does not wait for long");
});

test("it goes on at once when there is a network again, or when it is told to", async () => {
  const live = await connected();
  world.happens("offline");
  assert.equal(live.state, "connecting");
  await world.pass(0);
  world.happens("online");
  await world.pass(0);
  assert.equal(world.sockets.length, 2);
  world.socket.onclose({ code: 1006, reason: "" });
  live.wake();
  await world.pass(0);
  assert.equal(world.sockets.length, 3);
  live.wake();
  await world.pass(0);
  assert.equal(world.sockets.length, 3, "it is connecting");
});

// How long it takes until the next attempt to connect.
async function pause() {
  const [count, begun] = [world.sockets.length, world.ms];
  while (world.sockets.length === count) await world.pass(10);
  return world.ms - begun;
}

test("a server that closes each connection is tried after pauses that grow", async () => {
  const live = await connected();
  const at = [];
  for (let attempt = 0; attempt < 10; attempt++) {
    if (attempt) world.socket.onopen();
    world.socket.onclose({ code: 1013, reason: "" });
    at.push(await pause());
  }
  assert.ok(at[0] <= 210 && at[9] >= 3000 && at[9] <= 15_010, String(at));
  live.close();
});

test("a server that was away for ten minutes is found within a second", async () => {
  const live = await connected();
  world.socket.onclose({ code: 1006, reason: "" });
  const until = world.ms + 600_000;
  const at = [];
  while (world.ms < until) {
    at.push(await pause());
    world.socket.onerror({}); // as Node 20 reports it, after which nothing follows
    await world.pass(50);
  }
  assert.ok(at[0] <= 210 && Math.max(...at) <= 810, String(Math.max(...at)));
  const counts = [0, 0, 0, 0]; // attempts by the quarter of the longest pause: over all of it
  for (const ms of at.slice(1)) counts[Math.min(Math.floor(ms / 200), 3)]++;
  assert.ok(Math.min(...counts) > at.length / 8, String(counts));
  const back = world.ms;
  await pause();
  await world.welcome();
  assert.ok(live.state === "connected" && world.ms - back <= 1000, String(world.ms - back));
  live.close();
});

test("calls find a server that was away within a second, and spare one that answers", async (t) => {
  const [at, answer] = [[], { answers: null }];
  t.mock.method(globalThis, "fetch", async () => {
    at.push(world.ms);
    if (answer.answers) return answer.answers;
    throw new TypeError("fetch failed");
  });
  const client = new http.Client("http://here", { patienceS: 120 });
  const found = client.rooms.get("r");
  await world.pass(50_000);
  const pauses = at.slice(1).map((ms, n) => ms - at[n]);
  assert.ok(at.length > 60 && Math.max(...pauses) <= 800, String(pauses));
  answer.answers = new Response('{"id": "r"}', { status: 200 });
  await world.pass(1000);
  assert.equal((await found).id, "r");
  at.length = 0;
  answer.answers = { ok: false, status: 429, text: async () => "", headers: new Headers() };
  const refused = assert.rejects(client.rooms.get("r"), (error) => error.code === "unreachable");
  await world.pass(120_000);
  await refused;
  assert.ok(at.at(-1) - at.at(-2) >= 1000, String(at));
});

test("a client that was never connected tries a server that is away less and less often", async () => {
  const live = new Live("https://here", { token: "t" });
  await world.pass(0);
  let at = 0;
  for (let attempt = 0; attempt < 10; attempt++) {
    world.socket.onclose({ code: 1006, reason: "" });
    at = await pause();
  }
  assert.ok(at >= 3000 && at <= 15_010, String(at));
  live.close();
});

for (const [error, most] of [[new TypeError("fetch failed"), 810], [new Error("auth answers 500"), 15_010]]) {
  test(`while ${error.message}, a token is asked for every ${most} ms at the most`, async () => {
    let [asked, fails] = [0, false];
    const token = () => (asked++, fails ? Promise.reject(error) : "t");
    const live = await connected({ token });
    fails = true;
    world.socket.onclose({ code: 1006, reason: "" });
    const at = [];
    for (let attempt = 0; attempt < 12; attempt++) {
      const [count, begun] = [asked, world.ms];
      while (asked === count) await world.pass(10);
      at.push(world.ms - begun);
    }
    const last = Math.max(...at.slice(8));
    assert.ok(last <= most && (most < 1000 || last > 1000), String(at));
    live.close();
  });
}

for (const [code, reason, state] of [
  [4401, "no_credentials", "closed"],
  [4403, "origin_refused", "closed"],
  [4400, "unknown_frame", "closed"],
  [4503, "engine_stopped", "closed"],
  [4503, "node_stopped", "connecting"],
  [4408, "slow_reader", "connecting"],
  [4408, "", "connecting"],
  [1012, "", "connecting"],
]) {
  test(`closed with ${code} ${reason} it is ${state}`, async () => {
    const live = await connected();
    const room = live.room("r");
    const saved = room.map("m").set("k", 1);
    world.socket.onclose({ code, reason });
    assert.equal(live.state, state);
    if (state === "closed") {
      assert.deepEqual([live.error.code, room.status, room.error.code], [reason, "closed", reason]);
      await assert.rejects(saved, (error) => error.code === reason);
      await assert.rejects(live.join("r"), (error) => error.code === reason);
    }
    live.close();
    live.close();
    assert.equal(live.state, "closed");
  });
}

test("a token is renewed before it expires, and asked for anew when it has", async () => {
  let tokens = 0;
  const live = await connected({ token: async () => `token ${++tokens}` });
  await world.hear({ t: "welcome", user: "ann", until_ms: world.ms + 100_000 });
  for (let second = 0; second < 81; second++) {
    await world.hear({ t: "pong" });
    await world.pass(1000);
  }
  assert.deepEqual(world.sent("token"), [{ t: "token", token: "token 2" }]);
  world.socket.onclose({ code: 4401, reason: "token_expired" });
  await world.pass(200);
  await world.welcome();
  assert.deepEqual([live.state, world.sent("hello")[0].token], ["connected", "token 3"]);
});

test("a refused connection is tried again soon, also where only `error` is fired", async () => {
  const live = await connected();
  world.socket.onclose({ code: 1006, reason: "" });
  for (let refused = 1; refused <= 3; refused++) {
    await world.pass(1000);
    assert.equal(world.sockets.length, refused + 1);
    world.socket.onerror({});
    await world.pass(50);
    assert.equal(live.state, "connecting");
  }
  await world.pass(1600);
  await world.welcome();
  assert.equal(live.state, "connected");
});

test("the code of a close that follows an error counts", async () => {
  const live = await connected();
  world.socket.onerror({});
  world.socket.onclose({ code: 4403, reason: "origin_refused" });
  await world.pass(100);
  assert.deepEqual([live.state, live.error.code], ["closed", "origin_refused"]);
});

test("who gets no token tries again, unless it is said to be final", async () => {
  let error = new TypeError("no network");
  const live = new Live("http://here", { token: () => Promise.reject(error) });
  await world.pass(0);
  assert.deepEqual([live.state, world.sockets.length], ["connecting", 0]);
  error = new rooms.OncewardError("who are you", { code: "no_credentials" });
  await world.pass(200);
  assert.deepEqual([live.state, live.error.code], ["closed", "no_credentials"]);
});

test("what cannot follow makes the copy anew", async (t) => {
  t.mock.method(console, "warn", () => {});
  const live = await connected();
  const room = live.room("r");
  await world.joined();
  const saved = room.map("m").set("k", 1);
  await world.pass(0);
  await world.hear({ t: "change", room: "r", seq: 9, ops: [] });
  await assert.rejects(saved, (error) => error.code === "outcome_unknown");
  assert.equal(room.status, "joining");
  await world.pass(200);
  await world.welcome();
  assert.equal(world.sent("join")[0].epoch, undefined);
});

test("rooms that move together are joined again together", async () => {
  const live = await connected();
  const names = ["a", "b", "c", "d", "e", "f", "g", "h"];
  for (const name of names) live.room(name);
  for (const name of names) await world.joined(name);
  world.sent("join");
  await world.hear(...names.map((room) => ({ t: "left", room, code: "room_moved" })));
  await world.pass(200);
  assert.deepEqual(world.sent("join").map(({ room }) => room).sort(), names);
});

test("a room that is full, moved or gone", async () => {
  const live = await connected();
  const room = live.room("r");
  await world.joined();
  await world.hear({ t: "left", room: "r", code: "room_moved" });
  assert.equal(room.status, "away");
  world.sent("join");
  await world.pass(200);
  assert.equal(world.sent("join").length, 1);
  await world.joined("r", {});
  await world.pass(20);
  assert.equal(room.status, "live");
  await world.hear({ t: "left", room: "r", code: "room_deleted" });
  assert.deepEqual([room.status, room.error.code, live.rooms.size], ["closed", "room_deleted", 0]);
  assert.throws(() => room.map("m").set("k", 1), (error) => error.code === "room_deleted");
  const full = assert.rejects(live.join("full"), (error) => error.code === "room_full");
  await world.hear({ t: "left", room: "full", code: "room_full" });
  await full;
});

test("a presence that was removed without a connection is removed when there is one", async () => {
  const live = await connected();
  const room = live.room("r");
  await world.joined();
  for (const name of ["gone", "elsewhere", "kept"]) room.presence(name).set(1);
  await world.pass(100);
  world.socket.onclose({ code: 1006, reason: "" });
  for (const name of ["gone", "elsewhere"]) room.presence(name).remove();
  await world.pass(200);
  await world.welcome();
  await world.joined("r", { presences: { gone: { ann: 1 }, elsewhere: { ann: 2 } } });
  assert.deepEqual(world.sent("presence.remove").map((frame) => frame.name), ["gone"]);
  assert.deepEqual(world.sent("presence.set").map((frame) => frame.name), ["kept"]);
  const seen = ["gone", "elsewhere", "kept"].map((name) => room.presence(name).mine);
  assert.deepEqual(seen, [undefined, 2, 1]);
});

test("what comes about a room before the answer to a join is passed over", async () => {
  const live = await connected();
  const room = live.room("r");
  await world.hear({ t: "change", room: "r", seq: 9, ops: [] }, { t: "ack", room: "r", n: 1, seq: 7 });
  await world.joined();
  assert.deepEqual([room.status, room.position, world.sockets.length], ["live", ["e", 0, ""], 1]);
});

test("people and what they say", async () => {
  const live = await connected();
  const room = live.room("r");
  await world.joined();
  const told = [];
  room.onMembers((members) => told.push([...members.keys()]));
  room.on("wave", (value, said) => told.push([value, said.by, said.direct]));
  await world.hear(
    { t: "came", room: "r", id: "m2", user: "bob" },
    { t: "said", room: "r", event: "wave", value: 1, sender: "m2", by: "bob" },
    { t: "said", room: "r", event: "wave", direct: true },
    { t: "went", room: "r", id: "m2" },
    { t: "presence", room: "r", name: "cursor", user: "bob", value: 7 },
  );
  assert.deepEqual(told, [["m2"], [1, "bob", false], [null, "", true], []]);
  assert.deepEqual(room.presence("cursor").all(), { bob: 7 });
  await world.hear({ t: "crowd", room: "r", count: 4000 });
  assert.equal(room.count, 4000);
  await world.hear({ t: "crowd", room: "r" });
  assert.equal(room.count, room.members.size);
  room.say("wave", [1]);
  room.tell("m2", "wave");
  await world.pass(0);
  assert.deepEqual([world.sent("say")[0].value, world.sent("tell")[0].to], [[1], "m2"]);
  room.leave();
  await world.pass(0);
  assert.deepEqual(world.sent("leave"), [{ t: "leave", room: "r" }]);
});

test("what is asked for at tables is answered, waits for a connection, and is not guessed", async () => {
  const live = new Live("http://here", { token: "t" });
  const early = live.act("join", "corner", { lane: "main" });
  await world.pass(0);
  await world.welcome();
  assert.deepEqual(world.sent("act"), [{ t: "act", n: 1, do: "join", table: "corner", body: { lane: "main" } }]);
  const refused = assert.rejects(live.act("dance"), (error) => error.code === "bad_request");
  await world.pass(0);
  assert.deepEqual(world.sent("act"), [{ t: "act", n: 2, do: "dance", table: "", body: {} }]);
  await world.hear({ t: "done", n: 1, value: { since_ms: 1 } }, { t: "failed", n: 2, code: "bad_request" });
  assert.deepEqual(await early, { since_ms: 1 });
  await refused;
  const lost = assert.rejects(live.act("leave", "corner"), (error) => error.code === "outcome_unknown");
  await world.pass(0);
  world.socket.onclose({ code: 1006, reason: "" });
  await lost;
  const later = live.act("ready", "corner");
  await world.pass(200);
  await world.welcome();
  assert.deepEqual(world.sent("act").map((frame) => frame.do), ["ready"]);
  await world.hear({ t: "done", n: 9 }, { t: "done", n: 4 }, { t: "done", n: 4 });
  assert.equal(await later, undefined);
  const under = assert.rejects(live.act("leave"), (error) => error.code === "outcome_unknown");
  await world.pass(0);
  live.close();
  await under;
  await assert.rejects(live.act("leave"), (error) => error.code === "bad_request");
});

test("what no server would read is not asked for", async () => {
  const live = await connected();
  const deep = JSON.parse("[".repeat(91) + "]".repeat(91));
  for (const [code, ...act] of [
    ["bad_name", 7],
    ["bad_name", "join", {}],
    ["bad_name", "join", "x".repeat(257)],
    ["bad_value", "join", "t", { a: NaN }],
    ["too_deep", "move", "t", { move: deep }],
    ["value_too_large", "move", "t", { move: "x".repeat(1 << 20) }],
  ]) {
    await assert.rejects(live.act(...act), (error) => error.code === code, String(act));
  }
  live.act("move", "t", ["no object"]).catch(() => {});
  await world.pass(0);
  assert.deepEqual(world.sent("act").map((frame) => frame.body), [{ 0: "no object" }]);
  live.close();
});

test("frames of a kind that is not known are passed over", async () => {
  const live = await connected();
  const room = live.room("r");
  await world.joined();
  await world.hear({ t: "news" }, { t: "news", room: "r", seq: 9 }, { t: "news", room: "elsewhere" }, {});
  await world.hear({ t: "change", room: "r", seq: 1, ops: [{ op: "map.set", map: "m", key: "k", value: 1, new: 2 }], new: 3 });
  await world.pass(20);
  assert.deepEqual([live.state, room.status, room.map("m").get("k"), world.sockets.length], ["connected", "live", 1, 1]);
});

test("an operation that is not known makes the copy anew", async (t) => {
  t.mock.method(console, "warn", () => {});
  const live = await connected();
  const room = live.room("r");
  await world.joined();
  await world.hear({ t: "change", room: "r", seq: 1, ops: [{ op: "map.turn", map: "m" }] });
  await world.pass(200);
  await world.welcome();
  assert.deepEqual([world.sockets.length, world.sent("join")[0].epoch, room.status], [2, undefined, "joining"]);
  await world.joined("r", { reset: "new" });
  assert.deepEqual([live.state, room.status], ["connected", "live"]);
});

test("who says of a room what cannot be is connected to again after pauses that grow", async (t) => {
  t.mock.method(console, "warn", () => {});
  const live = await connected();
  const room = live.room("r");
  const spoil = async () => {
    await world.joined("r", { reset: "new" });
    await world.hear({ t: "change", room: "r", seq: 9, ops: [] }, { t: "change", room: "r", seq: 9, ops: [] });
    const took = await pause();
    await world.welcome();
    return took;
  };
  const at = [];
  for (let time = 0; time < 10; time++) at.push(await spoil());
  assert.ok(at[0] <= 210 && at[9] >= 3000 && at[9] <= 15_010, String(at));
  await world.joined("r", { reset: "new" });
  await world.hear({ t: "pong" });
  await world.pass(15_000);
  assert.equal(room.status, "live");
  assert.ok((await spoil()) <= 210, "it was well for a while");
  live.close();
});

for (const text of ["{", "null", "7"]) {
  test(`who says ${text} is connected to again, but not at once`, async () => {
    const live = await connected();
    world.socket.onmessage({ data: text });
    if (text === "7") return assert.equal(live.state, "connected"); // it says nothing
    assert.equal(live.state, "connecting");
    await world.pass(2000);
    assert.equal(world.sockets.length, 1);
    await world.pass(15_000);
    assert.equal(world.sockets.length, 2);
    live.close();
  });
}

test("without WebSocket it says so, and does not try again", async () => {
  delete globalThis.WebSocket;
  const live = new Live("http://here");
  await world.pass(0);
  assert.deepEqual([live.state, live.error.code, live.error.message], ["closed", "not_allowed", "WebSocket is not defined"]);
});

test("who has a clock that is ahead asks for tokens now and then only", async () => {
  let tokens = 0;
  const live = await connected({ token: () => `token ${++tokens}` });
  for (let second = 0; second < 300; second++) {
    if (second < 1 || world.sent("token").length) await world.hear({ t: "welcome", user: "ann", until_ms: world.ms - 3_600_000 });
    await world.hear({ t: "pong" });
    await world.pass(1000);
  }
  assert.ok(tokens > 5 && tokens <= 11, String(tokens));
  live.close();
});

for (const url of ["", "ftp://here", "http://here?x=1", "here", 7]) {
  test(`${JSON.stringify(url)} is no address`, () => {
    assert.throws(() => new Live(url), (error) => error.code === "bad_request");
    assert.throws(() => new http.Client(url), (error) => error.code === "bad_request");
  });
}

test("what the types say is there", async () => {
  const live = await connected();
  const room = live.room("r");
  const client = new http.Client("http://here");
  const things = {
    Live: live,
    Room: room,
    RoomMap: room.map("m"),
    RoomList: room.list("l"),
    Presence: room.presence("p"),
    Client: client,
    Worker: client.worker("q", () => {}),
    LivePlace: new http.LivePlace(client.tables, room, { table: "t", user: "ann", role: "" }),
    OncewardError: new rooms.OncewardError("no"),
  };
  const found = [];
  for (const [file, module] of [["client", rooms], ["http", http]]) {
    const text = readFileSync(new URL(`../../clients/js/${file}.d.ts`, import.meta.url), "utf8");
    const classes = [...text.matchAll(/^export class (\w+)[^{]*\{\n(.*?)^\}/gms)];
    assert.deepEqual(Object.keys(module).sort(), classes.map(([, name]) => name).sort());
    for (const [, name, body] of classes) {
      for (const [, member] of body.matchAll(/^  (?:readonly )?(\w+)[?<(:]/gm)) {
        if (member === "constructor") continue;
        assert.ok(member in things[name], `${name}.${member}`);
        found.push(member);
      }
      const types = new Set(found);
      for (const member of Object.getOwnPropertyNames(Object.getPrototypeOf(things[name]))) {
        if (!/^(constructor|_.*|[$\w]{1,2})$/.test(member)) assert.ok(types.has(member), `${name}.${member} is not in the types`);
      }
    }
  }
  assert.ok(found.length > 60);
});

test("each operation is a method with a declaration, and the other way round", () => {
  const client = new http.Client("http://here");
  const text = readFileSync(new URL("../../clients/js/operations.d.ts", import.meta.url), "utf8");
  const [, operations] = text.match(/^export interface Operations \{\n(.*?)^\}/ms);
  const declared = [...operations.matchAll(/^  readonly (\w+): \{\n(.*?)^  \};/gms)].map(([, noun, body]) => [
    noun,
    [...body.matchAll(/^    (\w+)\(/gm)].map(([, verb]) => verb),
  ]);
  const more = { jobs: ["wait", "follow"], queues: ["redriveAll", "purgeAll"], locks: ["hold"], tables: ["follow"] };
  const found = Object.entries(client).filter(([, value]) => Object.values(value).some((one) => typeof one === "function"));
  assert.deepEqual(
    found.map(([noun, verbs]) => [noun, Object.keys(verbs)]),
    declared.map(([noun, verbs]) => [noun, [...verbs, ...(more[noun] ?? [])]]),
  );
  assert.ok(declared.length > 10);
});
