// Uses a server over HTTP as a program does: node tests/js/calls.js http://… It says "well" at the end.

import assert from "node:assert/strict";

const { OncewardError } = await import(process.env.CLIENT ?? "../../clients/js/client.js");
const { Client } = await import(process.env.HTTP ?? "../../clients/js/http.js");
const client = new Client(process.argv[2], { patienceS: 20 });
const refused = (code) => (error) => error instanceof OncewardError && error.code === code;

// Messages and jobs.
const first = await client.accept("orders", { item_id: 7 }, { key: "order-1", orderKey: "ann" });
assert.deepEqual([first.duplicate, first.state], [false, "ready"]);
const again = await client.accept("orders", { item_id: 7 }, { key: "order-1", orderKey: "ann" });
assert.deepEqual([again.id, again.duplicate, again.sameBody ?? true], [first.id, true, true]);
await assert.rejects(client.accept("orders", NaN), refused("bad_value"));
await assert.rejects(client.accept("", 1), refused("bad_name"));
await assert.rejects(client.accept("orders", 1, { waitS: "long" }), refused("bad_request"));
await assert.rejects(client.job("none"), (error) => refused("no_such_job")(error) && error.status === 404);
const many = await client.acceptMany("many", [{ body: 1, key: "a" }, { body: 2, key: "a" }, { body: 3, key: "b", priority: 2 }]);
assert.deepEqual(many.map((one) => one.code ?? one.duplicate), [false, "key_reused", false]);

const [claim] = await client.claim("orders", { leaseS: 20, waitS: 5, worker: "me" });
assert.deepEqual([claim.id, claim.body, claim.orderKey, claim.attempt], [first.id, { item_id: 7 }, "ann", 1]);
assert.ok((await client.extend(claim.id, claim.token, 25)) >= claim.leaseUntilMs);
await client.complete(claim.id, claim.token, { as_it_is: 1 });
const job = await client.wait(claim.id, 5);
assert.deepEqual([job.state, job.result, job.attemptsMax > 0], ["done", { as_it_is: 1 }, true]);
await assert.rejects(client.cancel(claim.id), refused("already_ended"));
assert.equal((await client.serverClock()).held, false);
const retry = { pausesS: [1, 2.5], attemptsMax: 3, timeoutS: 4 };
const patient = await client.setTimer({ id: "patient", url: "https://example.com/", delayS: 600, retry });
assert.deepEqual(patient.retry, { pausesMs: [1000, 2500], attemptsMax: 3, timeoutMs: 4000 });
await client.cancelTimer("patient");
const { id } = await client.accept("orders", 2, { key: "order-2", delayMs: 60_000 });
await client.cancel(id);
await client.cancel(id);
assert.equal((await client.job(id)).state, "cancelled");

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
const sent = await Promise.all(["works", "fails", "later"].map((body) => client.accept("work", body, { key: body })));
const ended = await Promise.all(sent.map((receipt) => client.wait(receipt.id, 20)));
assert.deepEqual(ended.map((one) => one.state), ["done", "failed", "done"]);
assert.deepEqual([ended[0].result, ended[1].reason, done.get("later")], [{ was: "works" }, "never", 2]);
worker.stop();
await working;
assert.throws(() => client.worker("work", () => 1, { concurrency: 0 }), refused("bad_request"));
const [dead, next] = await client.dead("work");
assert.deepEqual([dead.length, next], [1, null]);
await client.redrive(sent[1].id);
await assert.rejects(client.redrive(sent[1].id), refused("not_failed"));
let told = 0;
assert.equal(await client.purge("work", (count) => (told = count)), 1);
assert.equal(told, 1);
assert.equal(await client.redriveAll("work", { reason: "never" }), 0);

// Queues.
const configured = await client.configure("orders", { attemptsMax: 3 });
assert.equal(configured.settings.attemptsMax, 3);
assert.equal((await client.pause("orders")).settings.paused ?? true, true);
await client.resume("orders");
assert.ok((await client.queues()).some((queue) => queue.name === "orders"));
assert.equal((await client.queue("orders")).name, "orders");

// Timers and endpoints.
const timer = await client.setTimer({ queue: "orders", body: { a_b: 1 }, at: new Date(Date.now() + 3_600_000), key: "t" });
assert.deepEqual([timer.state, timer.body, timer.queue], ["active", { a_b: 1 }, "orders"]);
assert.equal((await client.timer(timer.id)).leftMs > 3_000_000, true);
assert.ok((await client.moveTimer(timer.id, { delayS: 60 })).leftMs <= 60_001); // no part of a ms is lost
assert.equal((await client.timers({ state: "active" }))[0].length, 1);
assert.equal((await client.cancelTimer(timer.id)).state, "cancelled");
await assert.rejects(client.moveTimer(timer.id, { delayS: 1 }), refused("already_ended"));
await assert.rejects(client.resend(timer.id), refused("not_failed"));
await assert.rejects(client.setTimer({ queue: "orders", cron: "never" }), refused("bad_timer"));
const endpoint = await client.makeEndpoint("https://example.com/hook", { id: "hook", description: "d" });
assert.deepEqual([endpoint.id, endpoint.health.failing], ["hook", false]);
assert.equal((await client.rotateSecret("hook")).secrets.length, 2);
assert.equal((await client.endpoint("hook", { secret: true })).secrets.length, 2);
assert.equal((await client.changeEndpoint("hook", { disabled: true })).disabled, true);
assert.equal((await client.endpoints())[0].length >= 1, true);
await client.removeEndpoint("hook");
await client.removeEndpoint("hook");
await assert.rejects(client.endpoint("hook"), refused("no_such_endpoint"));

// Locks.
const lock = await client.acquire(["a_b", "c"], { leaseS: 10, owner: "me" });
assert.deepEqual(Object.keys(lock.tokens).sort(), ["a_b", "c"]);
await assert.rejects(client.acquire("c"), refused("lock_held"));
assert.ok((await client.renew(lock.id, 20)) >= lock.leaseUntilMs);
assert.equal((await client.lock("c")).holders[0].owner, "me");
assert.deepEqual([await client.release(lock.id), await client.release(lock.id)], [true, false]);
assert.equal(await client.hold("c", async (held) => typeof held.token, { leaseS: 5 }), "number");
await assert.rejects(client.hold("c", () => Promise.reject(new RangeError("mine"))), RangeError);
const taken = await client.acquire("c", { waitS: 1 });
await client.release(taken.id);
// One that is lost meanwhile: the body is told.
await assert.rejects(
  client.hold("lost", async (held, signal) => {
    await client.release(held.id);
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
  }, { leaseS: 0.3 }),
  refused("lock_lost"),
);

// Rooms.
const made = await client.createRoom("board", { meta: { team_name: "a" }, capacity: 5 });
assert.deepEqual([made.capacity, made.meta], [5, { team_name: "a" }]);
await assert.rejects(client.createRoom("board"), refused("room_exists"));
const add = { op: "map.add", map: "m", key: "k_1", by: 1 };
assert.deepEqual([await client.changeRoom("board", [add]), await client.changeRoom("board", [add])], [1, 2]);
assert.deepEqual((await client.roomState("board")).maps, { m: { k_1: 2 } });
assert.deepEqual((await client.roomState("board", 1)).maps, { m: { k_1: 1 } });
const [steps, since] = await client.roomHistory("board", { since: 1, limit: 1 });
assert.deepEqual([steps.length, steps[0].ops, typeof steps[0].atMs], [1, [add], "number"]);
assert.ok(since === null || since === 2);
assert.deepEqual((await client.rooms({ meta: { team_name: "a" } }))[0].map((room) => room.id), ["board"]);
assert.equal((await client.configureRoom("board", { keep: 7 })).keep, 7);
assert.equal((await client.roomInfo("board")).seq, 2);
const creator = { id: "", user: (await client.roomInfo("board")).by };
assert.deepEqual([await client.roomMembers("board"), await client.sayInRoom("board", "hi", { a: 1 })], [[creator], 0]);
await client.makeInRoom("board", "lists", "l", { schema: { type: "number" } });
await client.changeRoom("board", [{ op: "list.insert", list: "l", id: "i", value: 1 }]);
assert.deepEqual([await client.roomList("board", "l"), await client.roomMap("board", "m")], [[["i", 1]], { k_1: 2 }]);
assert.deepEqual(await client.roomPresence("board", "p"), {});
assert.deepEqual([await client.dropInRoom("board", "lists", "l"), await client.dropInRoom("board", "lists", "l")], [true, false]);
await client.deleteRoom("board");
await assert.rejects(client.deleteRoom("board"), refused("no_such_room"));

// Tables.
const policy = { kind: "ranked", tiers: [], maxWins: 3, seats: ["a_b", "O"], turnS: 30 };
const table = await client.createTable("corner", { policy, meta: { a_b: 1 } });
assert.deepEqual([table.phase, table.meta, table.policy.maxWins, table.policy.turnMs], ["waiting", { a_b: 1 }, 3, 30_000]);
assert.deepEqual(table.seats, { a_b: null, O: null });
await assert.rejects(client.createTable("corner"), refused("table_exists"));
await assert.rejects(client.createTable("bad", { policy: { maxWins: -1 } }), refused("bad_policy"));
await assert.rejects(client.joinTable("none"), refused("no_such_table"));
for (const user of ["ann", "ben", "cas"]) await client.joinTable("corner", { user });
const { seats } = await client.table("corner");
assert.deepEqual([seats.a_b.user, seats.O.user, typeof seats.O.sinceMs], ["ann", "ben", "number"]);
const place = await client.place("corner", { user: "cas" });
assert.deepEqual([place.role, place.position], ["waiting", 1]);
await client.joinTable("corner", { user: "eve" });
const [[front], after] = await client.waitlist("corner", { limit: 1 });
assert.deepEqual([front.users, front.position, front.lane, typeof front.sinceMs], [["cas"], 1, "main", "number"]);
const [[behind], end] = await client.waitlist("corner", { after });
assert.deepEqual([behind.users, behind.position, end], [["eve"], 2, null]);
await client.leaveTable("corner", { user: "eve" });

// One's own place, live.
const dan = new Client(process.argv[2], { key: "dev:dan" });
const live = dan.live();
const standing = await dan.stand("corner", live);
assert.deepEqual([standing.place.role, standing.place.position], ["waiting", 2]);
const until = (wanted) =>
  new Promise((resolve) => {
    const end = standing.subscribe((now) => wanted(now) && (end(), resolve(now)));
  });
const moved = until((now) => now.position === 1);
const ending = await client.endGame("corner", ["ben"], { game: 1 });
assert.deepEqual([ending.winners, ending.reason, ending.players], [["ben"], "result", { a_b: "ann", O: "ben" }]);
assert.deepEqual([(await moved).role, typeof standing.waitMs], ["waiting", "number"]);
await assert.rejects(client.endGame("corner", [], { game: 1 }), refused("other_game"));
const seated = until((now) => now.role === "seated");
await client.leaveTable("corner", { user: "cas" });
assert.equal((await seated).marker, "a_b");
const gone = until((now) => now.role === "");
await client.leaveTable("corner", { user: "dan" });
await gone;
for (const user of ["eve", "fay"]) await client.joinTable("corner", { user });
const rejoined = until((now) => now.role === "waiting");
await client.joinTable("corner", { user: "dan" });
await rejoined;
const satAgain = until((now) => now.role === "seated");
for (const user of ["eve", "fay", "ann"]) await client.leaveTable("corner", { user });
await satAgain;
standing.close();
standing.close();
assert.equal((await live.act("leave", "corner")).role, "");
await assert.rejects(live.act("dance", "corner"), refused("bad_request"));
live.close();

const [best] = await client.leaders();
assert.equal(best.user, "ben");
assert.deepEqual((await client.leaders("tables", { after: best, limit: 1 })).length, 1);
assert.ok((await client.rating("ben")).won > 0);
assert.equal(await client.rating("zoe"), null);
assert.equal((await client.watchTable("corner", { user: "eve" })).role, "watching");
await client.alive("corner", { user: "eve" });
await assert.rejects(client.ready("corner", { user: "eve" }), refused("not_seated"));
assert.deepEqual([(await client.pauseTable("corner")).paused, (await client.resumeTable("corner")).paused ?? false], [true, false]);
assert.equal((await client.closeTable("corner")).phase, "closed");
assert.deepEqual((await client.tables({ phase: "closed" }))[0].map((one) => one.id), ["corner"]);

// Matches.
await client.createTable("guessing", { game: "guess" });
for (const user of ["developer", "ben"]) await client.joinTable("guessing", { user });
const { match } = (await client.roomMap("table:guessing", "game")).now;
await client.move("guessing", "heads");
const seen = await client.match(match);
assert.deepEqual([seen.seat, seen.mine, seen.awaited, seen.players], ["even", "heads", ["odd"], { even: "developer", odd: "ben" }]);
await assert.rejects(client.matchLog(match), refused("match_on"));
await client.move("guessing", "heads", { user: "ben", key: "my-move" });
const log = await client.matchLog(match);
assert.deepEqual([log.map((one) => one.type), typeof log[0].atMs], [["begun", "moved", "moved"], "number"]);
assert.deepEqual((await client.matchReplay(match)).at(-1).outcome.winners, ["even"]);
await assert.rejects(client.match("none"), refused("no_such_match"));

// A server that is not there is asked again, until patience ends.
await assert.rejects(new Client("http://127.0.0.1:9", { patienceS: 0.2 }).queues(), refused("unreachable"));
console.log("well");
