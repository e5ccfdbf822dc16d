// The methods that the client makes from the table of operations, with a server that loses responses.

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

const { OncewardError } = await import(process.env.CLIENT ?? "../../clients/js/client.js");
const { Client } = await import(process.env.HTTP ?? "../../clients/js/http.js");
const client = new Client("http://here/below/", { key: "k" });
let requests;
let responses;

const lost = () => {
  throw new TypeError("fetch failed");
};
const answers = (value) => () => new Response(JSON.stringify(value), { status: 200 });
const fails = (code, more = {}) => () =>
  new Response(JSON.stringify({ code, detail: `no: ${code}`, retry: false, ...more }), { status: 409 });

beforeEach(() => {
  [requests, responses] = [[], []];
  globalThis.fetch = serve;
});

async function serve(url, { method, headers, body }) {
  const { pathname, searchParams } = new URL(url);
  requests.push({ method, path: pathname, query: Object.fromEntries(searchParams), headers, body: body && JSON.parse(body) });
  return responses.shift()();
}

const rejects = (promise, code, message) =>
  assert.rejects(promise, (error) => {
    assert.ok(error instanceof OncewardError);
    assert.equal(error.code, code);
    assert.match(error.message, message);
    return true;
  });

test("arguments go to the path, the query and the body", async () => {
  responses = [answers({ id: "t", left_ms: 5 }), answers({ jobs: [] })];
  assert.deepEqual(await client.timers.move("a/b", { delayS: 1.5, app: true }), { id: "t", leftMs: 5 });
  assert.deepEqual(await client.jobs.claim("q", { leaseS: 2, worker: undefined }), []);
  const [moved, claimed] = requests;
  assert.deepEqual([moved.method, moved.path, moved.query], ["POST", "/below/v1/timers/a%2Fb/move", { app: "true" }]);
  assert.deepEqual(moved.body, { delay_ms: 1500 });
  assert.deepEqual(claimed.body, { lease_ms: 2000 });
  assert.equal(claimed.headers.Authorization, "Bearer k");
});

test("structs have durations in seconds, and null is sent", async () => {
  responses = [answers({}), answers({}), answers({}), answers({ results: [] })];
  await client.endpoints.create("https://x", { id: "e", retry: { pausesS: [1, 2.5], timeoutS: 3, attemptsMax: null } });
  await client.endpoints.update("e", { retry: null });
  await client.queues.configure("q", { keyRetentionS: null, limitPerKey: 2 });
  await client.messages.sendMany("q", [{ body: { a_b: 1 }, key: "k", delayS: 1, orderKey: "o" }]);
  assert.deepEqual(
    requests.map(({ body }) => body),
    [
      { id: "e", url: "https://x", retry: { pauses_ms: [1000, 2500], timeout_ms: 3000, attempts_max: null } },
      { retry: null },
      { key_retention_ms: null, limit_per_key: 2 },
      { messages: [{ body: { a_b: 1 }, key: "k", delay_ms: 1000, order_key: "o" }] },
    ],
  );
});

test("members of responses are in camelCase, and values of the user as they are", async () => {
  const seats = { a_b: { user: "ann", since_ms: 1 }, O: null };
  responses = [
    answers({ id: "j", body: { a_b: 1 }, created_ms: 1, result: [{ c_d: 2 }], history: [{ ended_ms: 3 }] }),
    answers({ id: "t", seats, meta: { e_f: { g_h: 1 } }, policy: { max_wins: 3 }, lanes: { v_i_p: 1 } }),
    answers({ tables: [{ seats }], next: "c" }),
    answers({ name: "q", jobs: { in_doubt: 1 }, oldest_queued_ms: null, settings: { limit_per_key: 1 } }),
  ];
  const job = await client.jobs.get("j");
  assert.deepEqual([job.body, job.result, job.history], [{ a_b: 1 }, [{ c_d: 2 }], [{ endedMs: 3 }]]);
  const shown = { a_b: { user: "ann", sinceMs: 1 }, O: null };
  assert.deepEqual(await client.tables.get("t"), {
    id: "t", seats: shown, meta: { e_f: { g_h: 1 } }, policy: { maxWins: 3 }, lanes: { v_i_p: 1 },
  });
  assert.deepEqual(await client.tables.list(), { tables: [{ seats: shown }], next: "c" });
  assert.deepEqual(await client.queues.get("q"), {
    name: "q", jobs: { in_doubt: 1 }, oldestQueuedMs: null, settings: { limitPerKey: 1 },
  });
});

test("wrong arguments are rejected before a request is made", async () => {
  const usage = /use jobs\.complete\(id, token, options\)/;
  await rejects(client.jobs.complete("j"), "bad_request", /token is missing; use jobs\.complete\(id, token, options\)/);
  await rejects(client.jobs.complete("j", "t", {}, 1), "bad_request", usage);
  await rejects(client.jobs.complete("j", "t", "result"), "bad_request", usage);
  await rejects(client.jobs.complete("j", "t", [1]), "bad_request", usage);
  await rejects(client.jobs.complete("j", "t", { token: "u" }), "bad_request", /unknown option "token" of jobs\.complete/);
  await rejects(client.locks.acquire(["a"], { leaseMs: 1 }), "bad_request", /"leaseMs" .*; use owner, leaseS, /);
  await rejects(client.locks.acquire(["a"], { leaseS: "1" }), "bad_request", /leaseS must be a number of seconds, not 1/);
  await rejects(client.locks.acquire(["a"], { leaseS: -1 }), "bad_request", /leaseS/);
  await rejects(client.jobs.get(7), "bad_name", /id must be a name, not 7/);
  await rejects(client.jobs.get(".."), "bad_name", /id must be a name, not "\.\."/);
  await rejects(client.jobs.get("\ud800"), "not_text", /id is not valid Unicode/);
  await rejects(client.send("q", 1n), "bad_value", /BigInt/);
  await rejects(client.timers.create({ url: "u", retry: { timeoutMs: 1 } }), "bad_request", /"timeoutMs" of retry of timers\.create; use pausesS/);
  await rejects(client.jobs.wait("j", { timeoutS: -1 }), "bad_request", /timeoutS/);
  assert.deepEqual(requests, []);
});

test("a repeated request has the id of the first one", async () => {
  for (const [call, field] of [
    [() => client.timers.create({ url: "u", delayS: 1 }), "id"],
    [() => client.rooms.create(), "id"],
    [() => client.tables.create({ game: "g" }), "id"],
    [() => client.endpoints.create("https://x"), "id"],
    [() => client.endpoints.rotate("e"), "secret"],
    [() => client.locks.acquire(["a"]), "request"],
    [() => client.tables.move("t", { move: 1 }), "key"],
    [() => client.rooms.apply("r", []), "client"],
  ]) {
    requests = [];
    responses = [lost, answers({}), answers({})];
    await call();
    await call();
    const [first, again, next] = requests.map(({ body }) => body[field]);
    assert.ok(first.length >= 26 && first === again && next !== first, `${field}: ${first} ${again} ${next}`);
  }
  responses = [lost, answers({})];
  requests = [];
  await client.endpoints.test("e");
  const [first, again] = requests.map(({ headers }) => headers["Idempotency-Key"]);
  assert.ok(first && first === again);
});

test("a given id or key is not replaced", async () => {
  responses = [answers({}), answers({}), answers({ answer: 1 }), answers({})];
  await client.timers.create({ key: "k", url: "u" });
  await client.rooms.create({ id: "r" });
  await client.tables.move("t", { move: 1, key: "m" });
  await client.endpoints.rotate("e", { secret: "whsec_x" });
  assert.deepEqual(
    requests.map(({ body }) => body),
    [{ key: "k", url: "u" }, { id: "r" }, { move: 1, key: "m" }, { secret: "whsec_x" }],
  );
});

test("messages without a key are sent once", async () => {
  responses = [lost, answers({ id: "j" }), answers({ id: "j" }), answers({ id: "j" }), answers({ results: [] })];
  await client.send("q", 1);
  await client.send("q", 1);
  await client.send("q", 1, { key: "k" });
  await client.sendMany("q", [{ body: 1 }]);
  const [first, again, next, keyed, many] = requests.map(({ headers }) => headers["Idempotency-Key"]);
  assert.deepEqual([first.length, again, next !== first, keyed, many.length], [26, first, true, undefined, 26]);
});

test("after a lost response, an error that means success is one", async () => {
  for (const [call, code, found, expected] of [
    [() => client.jobs.retry("j"), "not_failed", { id: "j", state: "queued" }, { id: "j", state: "queued" }],
    [() => client.jobs.settle("j", "s", true), "not_failed", { id: "j", state: "queued" }, { id: "j", state: "queued" }],
    [() => client.timers.resend("t"), "not_failed", { id: "t", due_ms: 1 }, { id: "t", dueMs: 1 }],
    [() => client.rooms.create({ id: "r" }), "room_exists", { id: "r", per_user: 1 }, { id: "r", perUser: 1 }],
    [() => client.tables.create({ id: "t" }), "table_exists", { id: "t" }, { id: "t" }],
    [() => client.rooms.delete("r"), "no_such_room", null, { id: "r" }],
    [() => client.endpoints.delete("e"), "no_such_endpoint", null, { id: "e" }],
  ]) {
    requests = [];
    responses = [lost, fails(code), answers(found)];
    assert.deepEqual(await call(), expected);
    if (found) assert.deepEqual([requests[2].method, requests[2].path.split("/").at(-1)], ["GET", found.id]);
    responses = [fails(code)];
    await rejects(call(), code, /^no: /);
    responses = [lost, fails("no_such_thing")];
    await rejects(call(), "no_such_thing", /^no: /);
  }
});

test("a timer that was moved, and has fired since, is found for the same caller", async () => {
  responses = [lost, fails("already_ended", { state: "success" }), answers({ id: "t", state: "success" })];
  assert.equal((await client.timers.move("t", { delayS: 1, caller: "key:ann" })).state, "success");
  assert.deepEqual([requests[2].method, requests[2].query], ["GET", { caller: "key:ann" }]);
  responses = [lost, fails("already_ended", { state: "cancelled" })];
  await rejects(client.timers.move("t", { delayS: 1 }), "already_ended", /^no: /);
});

test("after a lost response, what was released or deleted is reported as such", async () => {
  responses = [lost, answers({ released: false }), answers({ released: false })];
  assert.deepEqual([await client.locks.release("l"), await client.locks.release("l")], [true, false]);
  responses = [lost, answers({ dropped: false }), answers({ dropped: false })];
  assert.deepEqual([await client.rooms.deleteMap("r", "m"), await client.rooms.deleteMap("r", "m")], [true, false]);
});

test("after a lost response, the result of a game is unknown if the game is over", async () => {
  responses = [lost, fails("other_game")];
  await rejects(client.tables.result("t", { game: 1 }), "outcome_unknown", /the response to tables\.result was lost/);
  responses = [fails("other_game")];
  await rejects(client.tables.result("t", { game: 1 }), "other_game", /^no: /);
});

test("the result of a game without its number is not repeated after a lost response", async () => {
  responses = [lost, answers({ number: 2 })];
  await rejects(client.tables.result("t", { winners: ["a"] }), "outcome_unknown", /give game/);
  assert.equal(requests.length, 1);
});

test("a request that was not sent is not a lost response", async () => {
  const refused = () => {
    throw Object.assign(new TypeError("fetch failed"), { cause: { code: "ECONNREFUSED" } });
  };
  responses = [refused, fails("no_such_endpoint")];
  await rejects(client.endpoints.delete("e"), "no_such_endpoint", /^no: /);
});

test("an iterator reads all pages of a list", async () => {
  responses = [answers({ timers: [{ id: "a" }, { id: "b" }], next: "c" }), answers({ timers: [{ id: "d", due_ms: 1 }], next: null })];
  const found = [];
  for await (const timer of client.timers.iterate({ state: "failed", limit: 2 })) found.push(timer);
  assert.deepEqual(found, [{ id: "a" }, { id: "b" }, { id: "d", dueMs: 1 }]);
  assert.deepEqual(requests.map(({ query }) => query), [
    { state: "failed", limit: "2" },
    { state: "failed", limit: "2", after: "c" },
  ]);
  responses = [answers({ entries: [{ seq: 1 }], next: 1 }), answers({ entries: [], next: null })];
  requests = [];
  for await (const { seq } of client.rooms.iterateHistory("r")) assert.equal(seq, 1);
  assert.deepEqual(requests.map(({ query }) => query), [{}, { since: "1" }]);
  await rejects(client.rooms.iterateHistory("r", {}, 1).next(), "bad_request", /too many arguments/);
  await rejects(client.rooms.iterateHistory().next(), "bad_request", /id is missing/);
});

test("a signal aborts a call", async () => {
  const stop = new AbortController();
  responses = [() => (stop.abort(new RangeError("mine")), lost())];
  await assert.rejects(client.queues.list({ signal: stop.signal }), RangeError);
  assert.equal(requests.length, 1);
});
