// The calls of the API: messages and jobs, queues, timers, endpoints, locks, and rooms for those who
// are in none. Those about tables and matches are in tables.js.

import { Live } from "./live.js";
import { TableCalls } from "./tables.js";
import { asked, milliseconds, problem } from "./transport.js";
import { fault, newId } from "./values.js";
import { Worker, keep } from "./work.js";

// How long one request waits on the server before it is asked again.
const WAIT_S = 20;
const DAY_S = 24 * 3600;
const ENDED = ["done", "failed", "doubt", "cancelled"];

export class Client extends TableCalls {
  live({ token } = {}) {
    return new Live(this._url, { token: token ?? this._key });
  }

  // Messages and jobs.

  accept(queue, body, { waitS, ...options } = {}) {
    const message = { ...asked(options), body };
    return this._call("POST", ["inbox", queue], { body: message, query: { waitS: waitS || null }, waitS });
  }

  async acceptMany(queue, messages) {
    const body = { messages: messages.map(({ body, ...options }) => ({ ...asked(options), body })) };
    const { results } = await this._call("POST", ["inbox", queue, "batch"], { body });
    return results.map(
      ({ accepted, rejected }) => accepted ?? problem(rejected.status, JSON.stringify(rejected)),
    );
  }

  async claim(queue, { max = 1, leaseS = 30, waitS = 0, worker = "", signal } = {}) {
    const body = asked({ max, leaseS, waitS, worker });
    return (await this._call("POST", ["queues", queue, "claim"], { body, waitS, signal })).jobs;
  }

  async complete(id, token, result = null) {
    await this._call("POST", ["jobs", id, "complete"], { body: { token, result } });
  }

  async fail(id, token, reason, { retryAfterS, notBeforeS, final = false } = {}) {
    const body = asked({ token, reason, final, retryAfterS, notBeforeS });
    return (await this._call("POST", ["jobs", id, "fail"], { body })).state;
  }

  async extend(id, token, leaseS) {
    const body = asked({ token, leaseS });
    return (await this._call("POST", ["jobs", id, "extend"], { body })).leaseUntilMs;
  }

  job(id, { waitS } = {}) {
    return this._call("GET", ["jobs", id], { query: { waitS: waitS || null }, waitS });
  }

  async wait(id, timeoutS = Infinity) {
    if (timeoutS !== Infinity) milliseconds(timeoutS, "a time limit");
    const begun = performance.now();
    while (true) {
      const leftS = Math.min(timeoutS - (performance.now() - begun) / 1000, WAIT_S);
      const job = await this.job(id, { waitS: Math.max(leftS, 0) });
      if (ENDED.includes(job.state) || leftS <= 0) return job;
    }
  }

  async cancel(id) {
    await this._call("DELETE", ["jobs", id]);
  }

  async redrive(id) {
    await this._once("not_failed", "POST", ["jobs", id, "retry"]);
  }

  async settle(id, step, { done, result = null, reason = "" }) {
    const body = { step, done, result, reason };
    await this._once("not_failed", "POST", ["jobs", id, "settle"], { body });
  }

  worker(queue, handler, options) {
    return new Worker(this, queue, handler, options);
  }

  // The clock of the server.

  serverClock() {
    return this._call("GET", ["clock"]);
  }

  confirmClock() {
    return this._call("POST", ["clock", "confirm"]);
  }

  // Queues.

  async queues() {
    return (await this._call("GET", ["queues"])).queues;
  }

  queue(name) {
    return this._call("GET", ["queues", name]);
  }

  configure(queue, settings) {
    return this._call("PUT", ["queues", queue], { body: asked(settings) });
  }

  pause(queue) {
    return this._call("POST", ["queues", queue, "pause"]);
  }

  resume(queue) {
    return this._call("POST", ["queues", queue, "resume"]);
  }

  async dead(queue, { start, limit = 100 } = {}) {
    const { jobs, next = null } = await this._call("GET", ["queues", queue, "failed"], { query: { after: start, limit } });
    return [jobs, next];
  }

  redriveAll(queue, chosen = {}, progress, inDoubt) {
    return this.#pages(["queues", queue, "redrive"], asked(chosen), progress, inDoubt);
  }

  purge(queue, progress) {
    return this.#pages(["queues", queue, "purge"], {}, progress);
  }

  async #pages(path, chosen, progress, inDoubt) {
    let done = 0;
    let held = 0;
    for (let start = ""; start !== null; ) {
      const { jobs, inDoubt: more = 0, next = null } = await this._call("POST", path, { body: { ...chosen, after: start } });
      done += jobs;
      held += more;
      progress?.(done);
      start = next;
    }
    inDoubt?.(held);
    return done;
  }

  // Timers and endpoints.

  setTimer({ body, ...options }) {
    const made = options.id || options.key ? {} : { id: newId() }; // so that it can be asked again
    const timer = { ...asked({ ...when(options), ...made }), ...(body === undefined ? {} : { body }) };
    return this._call("POST", ["timers"], { body: timer });
  }

  timer(id, options) {
    return this._call("GET", ["timers", id], { query: ofApp(options) });
  }

  timers({ app, ...options } = {}) {
    return this._page("timers", { ...options, ...ofApp({ app }) });
  }

  moveTimer(id, { app, ...options }) {
    const call = { body: asked(when(options)), query: ofApp({ app }) };
    return this._once("already_ended", "PATCH", ["timers", id], call, (error) => {
      if (error.details.state === "cancelled") throw error;
      return this.timer(id, { app }); // it was moved, and has fired since
    });
  }

  cancelTimer(id, options) {
    return this._call("DELETE", ["timers", id], { query: ofApp(options) });
  }

  resend(id, options) {
    const call = { query: ofApp(options) };
    return this._once("not_failed", "POST", ["timers", id, "resend"], call, () => this.timer(id, options));
  }

  makeEndpoint(url, { id = newId(), ...options } = {}) {
    return this._call("POST", ["endpoints"], { body: asked({ id, url, ...options }) });
  }

  endpoint(id, { secret = false } = {}) {
    return this._call("GET", ["endpoints", id], { query: { secret: secret ? "true" : null } });
  }

  endpoints(options = {}) {
    return this._page("endpoints", options);
  }

  changeEndpoint(id, changes) {
    return this._call("PATCH", ["endpoints", id], { body: asked(changes) });
  }

  async removeEndpoint(id) {
    try {
      await this._call("DELETE", ["endpoints", id]);
    } catch (error) {
      if (error.code !== "no_such_endpoint") throw error;
    }
  }

  rotateSecret(id, { overlapS = DAY_S, secret = newSecret() } = {}) {
    return this._call("POST", ["endpoints", id, "rotate"], { body: asked({ overlapS, secret }) });
  }

  testEndpoint(id) {
    return this._call("POST", ["endpoints", id, "test"], { key: newId() });
  }

  // Locks.

  acquire(names, { leaseS = 30, waitS = 0, owner = "", capacity = 1 } = {}) {
    const request = newId(); // so that it can be asked again
    const body = asked({ names: [names].flat(), owner, leaseS, waitS, capacity, request });
    return this._call("POST", ["locks", "acquire"], { body, waitS });
  }

  async renew(id, leaseS) {
    return (await this._call("POST", ["locks", "renew"], { body: asked({ id, leaseS }) })).leaseUntilMs;
  }

  async release(id) {
    const course = {};
    const { released } = await this._call("POST", ["locks", "release"], { body: { id }, course });
    return Boolean(released || course.lost);
  }

  lock(name) {
    return this._call("GET", ["locks", name]);
  }

  async hold(names, body, options = {}) {
    const { leaseS = 30 } = options;
    let asked = performance.now();
    const lock = await this.acquire(names, options);
    if (performance.now() - asked > (leaseS * 1000) / 3) {
      asked = performance.now(); // nobody here knows when the lease has begun
      await this.renew(lock.id, leaseS);
    }
    const lease = keep(asked, leaseS, () => this.renew(lock.id, leaseS));
    try {
      const result = await body(lock, lease.signal);
      if (lease.signal.aborted) throw fault("lock_lost", `the lock on ${names} was lost`);
      return result;
    } finally {
      lease.end();
      if (!lease.signal.aborted) await this.release(lock.id).catch(() => {}); // else the lease runs out
    }
  }

  // Rooms.

  createRoom(id, settings = {}) {
    const body = asked({ id: id ?? newId(), ...settings });
    return this._once("room_exists", "POST", ["rooms"], { body }, () => this.roomInfo(body.id));
  }

  roomInfo(id) {
    return this._call("GET", ["rooms", id]);
  }

  rooms({ meta, ...options } = {}) {
    return this._page("rooms", { ...options, meta: meta && JSON.stringify(meta) });
  }

  configureRoom(id, settings) {
    return this._call("PATCH", ["rooms", id], { body: asked(settings) });
  }

  async deleteRoom(id) {
    await this._once("no_such_room", "DELETE", ["rooms", id]);
  }

  async roomMembers(id) {
    return (await this._call("GET", ["rooms", id, "members"])).members;
  }

  roomState(id, at) {
    return this._call("GET", ["rooms", id, "snapshot"], { query: { at } });
  }

  async roomHistory(id, { since, digest, limit = 100 } = {}) {
    const query = { since, digest, limit };
    const { entries, next = null } = await this._call("GET", ["rooms", id, "history"], { query });
    return [entries, next];
  }

  async changeRoom(id, ops) {
    // With a name of its own the step can be sent again, and is taken once.
    const body = { ops, client: `call-${newId()}`, n: 1 };
    return (await this._call("POST", ["rooms", id, "ops"], { body })).seq;
  }

  async sayInRoom(id, event, value = null, { to } = {}) {
    const body = { ...asked({ event, to }), value };
    return (await this._call("POST", ["rooms", id, "broadcast"], { body })).members;
  }

  async roomMap(id, name) {
    return (await this._call("GET", ["rooms", id, "maps", name])).values;
  }

  async roomList(id, name) {
    return (await this._call("GET", ["rooms", id, "lists", name])).items;
  }

  async roomPresence(id, name) {
    return (await this._call("GET", ["rooms", id, "presences", name])).values;
  }

  async makeInRoom(id, kind, name, { schema } = {}) {
    await this._call("PUT", ["rooms", id, kind, name], { body: asked({ schema }) });
  }

  async dropInRoom(id, kind, name) {
    return (await this._call("DELETE", ["rooms", id, kind, name])).dropped;
  }
}

const when = ({ at, ...options }) => ({ at: at instanceof Date ? at.toISOString() : at, ...options });

// Of the application that is served, or the server's own.
const ofApp = ({ app } = {}) => ({ app: app ? "true" : null });

const newSecret = () =>
  `whsec_${btoa(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(24))))}`;
