// Uses a server over HTTP as a program does: node tests/js/calls.js http://… It says "well" at the end.

import assert from "node:assert/strict";

const { OncewardError } = await import(process.env.CLIENT ?? "../../clients/js/client.js");
const { Client } = await import(process.env.HTTP ?? "../../clients/js/http.js");
const client = new Client(process.argv[2], { patienceS: 20 });
const refused = (code) => (error) => error instanceof OncewardError && error.code === code;

// Messages and jobs.
const first = await client.send("orders", { item_id: 7 }, { key: "order-1", orderKey: "ann" });
assert.deepEqual([first.duplicate, first.state], [false, "queued"]);
const again = await client.send("orders", { item_id: 7 }, { key: "order-1", orderKey: "ann" });
assert.deepEqual([again.id, again.duplicate, again.sameBody ?? true], [first.id, true, true]);
await assert.rejects(client.send("orders", NaN), refused("bad_value"));
await assert.rejects(client.send("", 1), refused("bad_name"));
await assert.rejects(client.send("orders", 1, { waitS: "long" }), refused("bad_request"));
await assert.rejects(client.jobs.get("none"), (error) => refused("no_such_job")(error) && error.status === 404);
const many = await client.sendMany("many", [{ body: 1, key: "a" }, { body: 2, key: "a" }, { body: 3, key: "b", priority: 2 }]);
assert.deepEqual(many.map((one) => one.code ?? one.duplicate), [false, "key_reused", false]);

const [claim] = await client.jobs.claim("orders", { leaseS: 20, waitS: 5, worker: "me" });
assert.deepEqual([claim.id, claim.body, claim.orderKey, claim.attempt], [first.id, { item_id: 7 }, "ann", 1]);
assert.ok((await client.jobs.extend(claim.id, claim.token, 25)) >= claim.leaseUntilMs);
await client.jobs.complete(claim.id, claim.token, { result: { as_it_is: 1 } });
const job = await client.jobs.wait(claim.id, { timeoutS: 5 });
assert.deepEqual([job.state, job.result, job.attemptsMax > 0], ["succeeded", { as_it_is: 1 }, true]);
await assert.rejects(client.jobs.cancel(claim.id), refused("already_ended"));
assert.equal((await client.server.clock()).held, false);
const retry = { pausesS: [1, 2.5], attemptsMax: 3, timeoutS: 4 };
const patient = await client.timers.create({ id: "patient", url: "https://example.com/", delayS: 600, retry });
assert.deepEqual(patient.retry, { pausesMs: [1000, 2500], attemptsMax: 3, timeoutMs: 4000 });
await client.timers.cancel("patient");
const { id } = await client.send("orders", 2, { key: "order-2", delayS: 60 });
await client.jobs.cancel(id);
await client.jobs.cancel(id);
assert.equal((await client.jobs.get(id)).state, "cancelled");

// A worker: results, errors, and the end.
const done = new Map();
const worker = client.worker("work", async (claim, signal) => {
  assert.equal(signal.aborted, false);
  done.set(claim.body, claim.attempt);
  if (claim.body === "fails") throw Object.assign(new Error("never"), { final: true });
  if (claim.body === "later" && claim.attempt === 1) throw Object.assign(new Error("soon"), { retryAfterS: 0 });
  return { was: claim.body };
}, { concurrency: 4, waitS: 1 });
const working = worker.run();
const sent = await Promise.all(["works", "fails", "later"].map((body) => client.send("work", body, { key: body })));
const ended = await Promise.all(sent.map((receipt) => client.jobs.wait(receipt.id, { timeoutS: 20 })));
assert.deepEqual(ended.map((one) => one.state), ["succeeded", "failed", "succeeded"]);
assert.deepEqual([ended[0].result, ended[1].reason, done.get("later")], [{ was: "works" }, "never", 2]);
worker.stop();
await working;
assert.throws(() => client.worker("work", () => 1, { concurrency: 0 }), refused("bad_request"));
// A failed attempt keeps the type and the stack of its error, which are bounded.
class SoldOut extends Error {}
const ordering = (item) => {
  throw new SoldOut(`no ${item}`, { cause: new TypeError("no stock") });
};
const thrown = { odd: "a text", long: undefined };
const failing = client.worker("failing", ({ body }) => {
  if (body === "long") throw Object.assign(new RangeError("x".repeat(50_000)), { final: true });
  if (body in thrown) throw thrown[body];
  ordering(body);
}, { waitS: 1 });
await client.queues.configure("failing", { attemptsMax: 1 });
const attempts = failing.run();
const errors = {};
for (const body of ["lamp", "long", "odd"]) {
  const { id } = await client.send("failing", body, { key: body });
  const job = await client.jobs.wait(id, { timeoutS: 20 });
  errors[body] = job.history[0];
}
failing.stop();
await attempts;
const { lamp, long, odd } = errors;
assert.deepEqual([lamp.reason, lamp.type, long.type, odd.type], ["no lamp", "SoldOut", "RangeError", "string"]);
assert.match(lamp.traceback, /^Error: no lamp\n +at ordering .*calls\.js[^]*\ncaused by: TypeError: no stock\n +at/);
assert.ok(long.traceback.length <= 4000 && /\n +at .*calls\.js/.test(long.traceback), long.traceback.slice(-300));
assert.deepEqual([odd.reason, odd.traceback ?? ""], ["a text", ""]);

// The output of a job: its worker reports it, and readers follow it.
const chunks = Array.from({ length: 300 }, (_, number) => ({ the_number: number }));
const teller = client.worker("stories", async (job) => {
  for (const wrong of [NaN, 1.5, -1, "0.4", null]) await assert.rejects(job.progress(wrong), refused("bad_request"));
  await assert.rejects(job.progress(0.5, "x".repeat(201)), refused("bad_request"));
  await assert.rejects(job.stream("x".repeat(70_000)), refused("value_too_large"));
  for (const [number, chunk] of chunks.entries()) {
    await job.progress(number / chunks.length, `chunk ${number}`);
    await job.stream(chunk);
  }
  await job.progress(1, "told");
}, { waitS: 1 });
const telling = teller.run();
const story = await client.send("stories", 1, { key: "story" });
const updates = [];
for await (const update of client.jobs.follow(story.id)) updates.push(update);
assert.deepEqual(updates.filter(({ kind }) => kind === "chunk").map(({ value }) => value), chunks);
const told = updates.filter(({ kind }) => kind === "progress").at(-1);
assert.deepEqual([told.progress, told.text], [1, "told"]);
assert.deepEqual([updates.at(-1).kind, updates.at(-1).state, updates.at(-1).result], ["end", "succeeded", null]);
const middle = updates.findIndex(({ value }) => value?.the_number === 100);
const rest = [];
for await (const { kind, value } of client.jobs.follow(story.id, { after: updates[middle].seq })) if (kind === "chunk") rest.push(value);
assert.deepEqual(rest, chunks.slice(101));
teller.stop();
await telling;
const verbose = await client.send("stories", 2, { key: "verbose", attemptsMax: 1 });
const filler = client.worker("stories", async (job) => {
  for (let number = 0; number < 20; number++) await job.stream("x".repeat(60_000));
}, { waitS: 1 });
const filling = filler.run();
const filled = await client.jobs.wait(verbose.id, { timeoutS: 20 });
filler.stop();
await filling;
assert.equal(filled.state, "failed");
assert.match(filled.reason, /at most 1000000 bytes as JSON/);
const failed = await client.queues.failed("work");
assert.deepEqual([failed.jobs.length, failed.next, failed.jobs[0].history[0].reason], [1, null, "never"]);
assert.equal(typeof failed.jobs[0].history[0].endedMs, "number");
assert.equal((await client.jobs.retry(sent[1].id)).id, sent[1].id);
await assert.rejects(client.jobs.retry(sent[1].id), refused("not_failed"));
let count = 0;
assert.deepEqual(await client.queues.purgeAll("work", { progress: (jobs) => (count = jobs) }), { jobs: 1, inDoubt: 0 });
assert.equal(count, 1);
assert.deepEqual(await client.queues.redriveAll("work", { reason: "never" }), { jobs: 0, inDoubt: 0 });

// Messages without a key: the queue makes one from the body, or each call sends a message.
const keyless = [await client.send("work", { n: 1 }), await client.send("work", { n: 1 })];
assert.deepEqual([keyless[0].duplicate, keyless[1].duplicate, keyless[0].id === keyless[1].id], [false, false, false]);
await client.queues.configure("keyed", { keyFields: ["n"], keyRetentionS: null });
assert.equal((await client.queues.get("keyed")).settings.keyRetentionMs, null);
await client.send("keyed", { n: 1 });
assert.equal((await client.send("keyed", { n: 1 })).duplicate, true);
const batch = await client.sendMany("work", [{ body: 1 }, { body: 1, key: "mine" }]);
assert.deepEqual(batch.map(({ duplicate }) => duplicate), [false, false]);

// Queues.
const configured = await client.queues.configure("orders", { attemptsMax: 3 });
assert.equal(configured.settings.attemptsMax, 3);
assert.equal((await client.queues.pause("orders")).settings.paused ?? true, true);
await client.queues.resume("orders");
assert.ok((await client.queues.list()).some((queue) => queue.name === "orders"));
assert.equal((await client.queues.get("orders")).name, "orders");
assert.deepEqual((await client.jobs.list({ queue: "orders", limit: 1 })).jobs.map((one) => one.attemptsMax > 0), [true]);
assert.equal((await client.jobs.history(first.id)).job.id, first.id);
const tagged = await client.send("tagged", 1, { tags: ["red", "big"] });
assert.deepEqual((await client.jobs.get(tagged.id)).tags, ["red", "big"]);
assert.deepEqual((await client.jobs.list({ tag: "big" })).jobs.map((one) => one.id), [tagged.id]);
assert.deepEqual(await client.jobs.count({ tag: "red" }), { jobs: 1, complete: true, next: null });
await assert.rejects(client.send("tagged", 1, { tags: "red" }), { code: "wrong_type" });

// Timers and endpoints.
const timer = await client.timers.create({ queue: "orders", body: { a_b: 1 }, at: new Date(Date.now() + 3_600_000), key: "t" });
assert.deepEqual([timer.state, timer.body, timer.queue], ["active", { a_b: 1 }, "orders"]);
assert.equal((await client.timers.get(timer.id)).leftMs > 3_000_000, true);
assert.ok((await client.timers.move(timer.id, { delayS: 60 })).leftMs <= 60_001); // no part of a ms is lost
for await (const one of client.timers.iterate({ limit: 1 })) assert.equal(typeof one.dueMs, "number");
assert.equal((await client.timers.list({ state: "active" })).timers.length, 1);
assert.equal((await client.timers.cancel(timer.id)).state, "cancelled");
await assert.rejects(client.timers.move(timer.id, { delayS: 1 }), refused("already_ended"));
await assert.rejects(client.timers.resend(timer.id), refused("not_failed"));
await assert.rejects(client.timers.create({ queue: "orders", cron: "never" }), refused("bad_timer"));
const endpoint = await client.endpoints.create("https://example.com/hook", { id: "hook", description: "d" });
assert.deepEqual([endpoint.id, endpoint.health.failing], ["hook", false]);
assert.equal((await client.endpoints.rotate("hook")).secrets.length, 2);
assert.equal((await client.endpoints.get("hook", { secret: true })).secrets.length, 2);
assert.equal((await client.endpoints.update("hook", { disabled: true })).disabled, true);
assert.equal((await client.endpoints.list()).endpoints.length >= 1, true);
assert.deepEqual(await client.endpoints.delete("hook"), { id: "hook" });
await assert.rejects(client.endpoints.delete("hook"), refused("no_such_endpoint"));
await assert.rejects(client.endpoints.get("hook"), refused("no_such_endpoint"));

// Locks.
const lock = await client.locks.acquire(["a_b", "c"], { leaseS: 10, owner: "me" });
assert.deepEqual(Object.keys(lock.tokens).sort(), ["a_b", "c"]);
await assert.rejects(client.locks.acquire(["c"]), refused("lock_held"));
assert.ok((await client.locks.renew(lock.id, { leaseS: 20 })) >= lock.leaseUntilMs);
assert.equal((await client.locks.get("c")).holders[0].owner, "me");
assert.deepEqual([await client.locks.release(lock.id), await client.locks.release(lock.id)], [true, false]);
assert.equal(await client.locks.hold("c", async (held) => typeof held.token, { leaseS: 5 }), "number");
await assert.rejects(client.locks.hold("c", () => Promise.reject(new RangeError("mine"))), RangeError);
const taken = await client.locks.acquire(["c"], { waitS: 1 });
await client.locks.release(taken.id);
// One that is lost meanwhile: the body is told.
await assert.rejects(
  client.locks.hold("lost", async (held, signal) => {
    await client.locks.release(held.id);
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
  }, { leaseS: 0.3 }),
  refused("lock_lost"),
);

// Rooms.
const made = await client.rooms.create({ id: "board", meta: { team_name: "a" }, capacity: 5 });
assert.deepEqual([made.capacity, made.meta], [5, { team_name: "a" }]);
await assert.rejects(client.rooms.create({ id: "board" }), refused("room_exists"));
const add = { op: "map.add", map: "m", key: "k_1", by: 1 };
assert.deepEqual([(await client.rooms.apply("board", [add])).seq, (await client.rooms.apply("board", [add])).seq], [1, 2]);
assert.deepEqual((await client.rooms.snapshot("board")).maps, { m: { k_1: 2 } });
assert.deepEqual((await client.rooms.snapshot("board", { at: 1 })).maps, { m: { k_1: 1 } });
const { entries: steps, next: since } = await client.rooms.history("board", { since: 1, limit: 1 });
assert.deepEqual([steps.length, steps[0].ops, typeof steps[0].atMs], [1, [add], "number"]);
assert.ok(since === null || since === 2);
assert.deepEqual((await client.rooms.list({ meta: { team_name: "a" } })).rooms.map((room) => room.id), ["board"]);
assert.equal((await client.rooms.update("board", { keep: 7 })).keep, 7);
assert.equal((await client.rooms.get("board")).seq, 2);
const creator = { id: "", user: (await client.rooms.get("board")).by };
assert.deepEqual([await client.rooms.members("board"), await client.rooms.broadcast("board", "hi", { value: { a: 1 } })], [[creator], 0]);
await client.rooms.putList("board", "l", { schema: { type: "number" } });
await client.rooms.apply("board", [{ op: "list.insert", list: "l", id: "i", value: 1 }]);
assert.deepEqual([await client.rooms.getList("board", "l"), await client.rooms.getMap("board", "m")], [[["i", 1]], { k_1: 2 }]);
assert.deepEqual(await client.rooms.getPresence("board", "p"), {});
assert.deepEqual([await client.rooms.deleteList("board", "l"), await client.rooms.deleteList("board", "l")], [true, false]);
await client.rooms.delete("board");
await assert.rejects(client.rooms.delete("board"), refused("no_such_room"));

// Tables.
const policy = { kind: "ranked", tiers: [], maxWins: 3, seats: ["a_b", "O"], turnS: 30 };
const table = await client.tables.create({ id: "corner", policy, meta: { a_b: 1 } });
assert.deepEqual([table.phase, table.meta, table.policy.maxWins, table.policy.turnMs], ["waiting", { a_b: 1 }, 3, 30_000]);
assert.deepEqual(table.seats, { a_b: null, O: null });
await assert.rejects(client.tables.create({ id: "corner" }), refused("table_exists"));
await assert.rejects(client.tables.create({ id: "bad", policy: { maxWins: -1 } }), refused("bad_policy"));
await assert.rejects(client.tables.create({ id: "bad", policy: { turnMs: 1 } }), /unknown option "turnMs" of policy of tables.create; use kind, seats, /);
await assert.rejects(client.tables.join("none"), refused("no_such_table"));
for (const user of ["ann", "ben", "cas"]) await client.tables.join("corner", { user });
const { seats } = await client.tables.get("corner");
assert.deepEqual([seats.a_b.user, seats.O.user, typeof seats.O.sinceMs], ["ann", "ben", "number"]);
const place = await client.tables.place("corner", { user: "cas" });
assert.deepEqual([place.role, place.position], ["waiting", 1]);
await client.tables.join("corner", { user: "eve" });
const { waitlist: [front], next: after } = await client.tables.waitlist("corner", { limit: 1 });
assert.deepEqual([front.users, front.position, front.lane, typeof front.sinceMs], [["cas"], 1, "main", "number"]);
const { waitlist: [behind], next: end } = await client.tables.waitlist("corner", { after });
assert.deepEqual([behind.users, behind.position, end], [["eve"], 2, null]);
await client.tables.leave("corner", { user: "eve" });

// One's own place, live.
const dan = new Client(process.argv[2], { key: "dev:dan" });
const live = dan.live();
const followed = await dan.tables.follow("corner", live);
assert.deepEqual([followed.place.role, followed.place.position], ["waiting", 2]);
const until = (wanted) =>
  new Promise((resolve) => {
    const end = followed.subscribe((now) => wanted(now) && (end(), resolve(now)));
  });
const moved = until((now) => now.position === 1);
const ending = await client.tables.result("corner", { winners: ["ben"], game: 1 });
assert.deepEqual([ending.winners, ending.reason, ending.players], [["ben"], "result", { a_b: "ann", O: "ben" }]);
assert.deepEqual([(await moved).role, typeof followed.waitMs], ["waiting", "number"]);
await assert.rejects(client.tables.result("corner", { game: 1 }), refused("other_game"));
const seated = until((now) => now.role === "seated");
await client.tables.leave("corner", { user: "cas" });
assert.equal((await seated).marker, "a_b");
const gone = until((now) => now.role === "");
await client.tables.leave("corner", { user: "dan" });
await gone;
for (const user of ["eve", "fay"]) await client.tables.join("corner", { user });
const rejoined = until((now) => now.role === "waiting");
await client.tables.join("corner", { user: "dan" });
await rejoined;
const satAgain = until((now) => now.role === "seated");
for (const user of ["eve", "fay", "ann"]) await client.tables.leave("corner", { user });
await satAgain;
followed.close();
followed.close();
assert.equal((await live.act("leave", "corner")).role, "");
await assert.rejects(live.act("dance", "corner"), refused("bad_request"));
live.close();

const [best] = await client.tables.leaders("tables");
assert.equal(best.user, "ben");
assert.deepEqual((await client.tables.leaders("tables", { rating: best.rating, user: best.user, limit: 1 })).length, 1);
assert.ok((await client.tables.rating("tables", "ben")).won > 0);
assert.equal(await client.tables.rating("tables", "zoe"), null);
assert.equal((await client.tables.watch("corner", { user: "eve" })).role, "watching");
await client.tables.heartbeat("corner", { user: "eve" });
await assert.rejects(client.tables.ready("corner", { user: "eve" }), refused("not_seated"));
assert.deepEqual([(await client.tables.pause("corner")).paused, (await client.tables.resume("corner")).paused ?? false], [true, false]);
assert.equal((await client.tables.close("corner")).phase, "closed");
assert.deepEqual((await client.tables.list({ phase: "closed" })).tables.map((one) => one.id), ["corner"]);

// Matches.
await client.tables.create({ id: "guessing", game: "guess" });
for (const user of ["developer", "ben"]) await client.tables.join("guessing", { user });
const { match } = (await client.rooms.getMap("table:guessing", "game")).now;
await client.tables.move("guessing", { move: "heads" });
const seen = await client.matches.get(match);
assert.deepEqual([seen.seat, seen.mine, seen.awaited, seen.players], ["even", "heads", ["odd"], { even: "developer", odd: "ben" }]);
await assert.rejects(client.matches.log(match), refused("match_on"));
await client.tables.move("guessing", { move: "heads", user: "ben", key: "my-move" });
const log = await client.matches.log(match);
assert.deepEqual([log.map((one) => one.type), typeof log[0].at_ms], [["begun", "moved", "moved"], "number"]);
assert.deepEqual((await client.matches.replay(match)).at(-1).outcome.winners, ["even"]);
await assert.rejects(client.matches.get("none"), refused("no_such_match"));

// A server that is not there is asked again, until patience ends.
await assert.rejects(new Client("http://127.0.0.1:9", { patienceS: 0.2 }).queues.list(), refused("unreachable"));
console.log("well");
