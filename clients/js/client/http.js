// The client of the API over HTTP: one method for each operation, and those that combine several.

import { namespaces } from "./calls.js";
import { Live } from "./live.js";
import { ENDED } from "./operations.js";
import { follow } from "./output.js";
import { LivePlace } from "./place.js";
import { Transport, milliseconds, problem } from "./transport.js";
import { fault } from "./values.js";
import { Worker, keep } from "./work.js";

// How long one request waits on the server before the next one.
const WAIT_S = 20;

export class Client extends Transport {
  constructor(url, options) {
    super(url, options);
    const { jobs, queues, locks, tables } = Object.assign(this, namespaces(this));
    jobs.wait = (id, options) => wait(jobs, id, options);
    jobs.follow = (id, options) => follow(jobs, id, options);
    queues.redriveAll = (queue, options) => pages(queues.redrive, queue, options);
    queues.purgeAll = (queue, options) => pages(queues.purge, queue, options);
    locks.hold = (names, body, options) => hold(locks, [names].flat(), body, options);
    tables.follow = (id, live, options) => followTable(tables, id, live, options);
  }

  live({ token } = {}) {
    return new Live(this._url, { token: token ?? this._key });
  }

  send(queue, body, options) {
    return this.messages.send(queue, body, options);
  }

  async sendMany(queue, messages, options) {
    const verdicts = await this.messages.sendMany(queue, messages, options);
    return verdicts.map(({ accepted, rejected }) => accepted ?? problem(rejected.status, JSON.stringify(rejected)));
  }

  worker(queue, handler, options) {
    return new Worker(this.jobs, queue, handler, options);
  }
}

async function wait(jobs, id, { timeoutS = Infinity, signal } = {}) {
  if (timeoutS !== Infinity) milliseconds(timeoutS, "timeoutS");
  const begun = performance.now();
  while (true) {
    const leftS = Math.min(timeoutS - (performance.now() - begun) / 1000, WAIT_S);
    const job = await jobs.get(id, { waitS: Math.max(leftS, 0), signal });
    if (ENDED.includes(job.state) || leftS <= 0) return job;
  }
}

// Repeats a bulk change until it is complete.
async function pages(change, queue, { progress, ...options } = {}) {
  const found = { jobs: 0, inDoubt: 0 };
  for (let after; after !== null; ) {
    const { jobs, inDoubt = 0, next = null } = await change(queue, { ...options, after });
    found.jobs += jobs;
    found.inDoubt += inDoubt;
    progress?.(found.jobs);
    after = next;
  }
  return found;
}

async function hold(locks, names, body, { leaseS = 30, ...options } = {}) {
  let asked = performance.now();
  const lock = await locks.acquire(names, { leaseS, ...options });
  if (performance.now() - asked > (leaseS * 1000) / 3) {
    asked = performance.now(); // the lease began at an unknown time while the request waited
    await locks.renew(lock.id, { leaseS });
  }
  const lease = keep(asked, leaseS, () => locks.renew(lock.id, { leaseS }));
  try {
    const result = await body(lock, lease.signal);
    if (lease.signal.aborted) throw fault("lock_lost", `the lock on ${names.join(", ")} was lost; acquire it again`);
    return result;
  } finally {
    lease.end();
    if (!lease.signal.aborted) await locks.release(lock.id).catch(() => {}); // else the lease ends by itself
  }
}

async function followTable(tables, id, live, options = {}) {
  const room = await live.join(`table:${id}`);
  const place = await tables.join(id, { user: live.user, ...options });
  return new LivePlace(tables, room, place);
}
