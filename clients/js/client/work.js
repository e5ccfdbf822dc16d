// A worker over HTTP: claims jobs, runs a function on them, and says how they ended.

import { milliseconds, sleep } from "./transport.js";
import { AWAY_MS, refuse } from "./values.js";

const IDLE_MS_MAX = 5000;

// Renews a lease that began at a time, until `end`. `signal` is aborted when it is lost.
export function keep(begun, leaseS, renew) {
  const leaseMs = milliseconds(leaseS, "a lease");
  const lost = new AbortController();
  const ended = new AbortController();
  const run = async () => {
    let until = begun + leaseMs;
    let pauseMs = leaseMs / 3;
    while (!lost.signal.aborted) {
      await sleep(Math.min(pauseMs, Math.max(until - performance.now(), 0)), ended.signal);
      if (ended.signal.aborted) return;
      const asked = performance.now();
      try {
        const leftMs = Math.max(until - asked, 0);
        const late = sleep(leftMs, ended.signal).then(() => refuse("lock_lost", "the lease ran out"));
        await Promise.race([renew(), late]);
        until = asked + leaseMs;
        pauseMs = leaseMs / 3;
      } catch (error) {
        if (ended.signal.aborted) return;
        if (error.retry) pauseMs = leaseMs / 30;
        else lost.abort(error);
      }
    }
  };
  run();
  return { signal: lost.signal, end: () => ended.abort() };
}

export class Worker {
  #client;
  #queue;
  #handler;
  #options;
  #stopping = new AbortController();

  constructor(client, queue, handler, options = {}) {
    this.#options = { concurrency: 16, leaseS: 30, waitS: 20, name: "", ...options };
    const { concurrency, waitS } = this.#options;
    if (!Number.isInteger(concurrency) || concurrency < 1 || concurrency > 1000) {
      refuse("bad_request", `a worker has 1 to 1000 jobs at once, not ${concurrency}`);
    }
    if (!(waitS >= 1)) refuse("bad_request", "a worker waits for jobs for a second or more");
    this.#client = client;
    this.#queue = queue;
    this.#handler = handler;
  }

  stop() {
    this.#stopping.abort();
  }

  async run() {
    const { concurrency, leaseS, waitS, name: worker } = this.#options;
    const { signal } = this.#stopping;
    const running = new Set();
    let pauseMs = 100;
    while (!signal.aborted) {
      if (running.size >= concurrency) {
        await Promise.race(running);
        continue;
      }
      try {
        const begun = performance.now();
        const max = concurrency - running.size;
        const claims = await this.#client.claim(this.#queue, { max, leaseS, waitS, worker, signal });
        pauseMs = 100;
        for (const claim of claims) {
          const work = this.#work(claim, begun).finally(() => running.delete(work));
          running.add(work);
        }
      } catch (error) {
        if (signal.aborted) break;
        if (!error.retry) throw error;
        await sleep(pauseMs, signal);
        pauseMs = Math.min(2 * pauseMs, error.code === "unreachable" ? AWAY_MS : IDLE_MS_MAX);
      }
    }
    await Promise.all(running);
  }

  async #work({ id, token, ...claim }, begun) {
    const client = this.#client;
    const { leaseS } = this.#options;
    const lease = keep(begun, leaseS, () => client.extend(id, token, leaseS));
    try {
      const end = await this.#outcome({ id, token, ...claim }, lease.signal);
      if (!lease.signal.aborted) await end();
    } catch (error) {
      // The lease runs out, and another attempt finds out.
      console.warn(`job ${id}: ${error.message}`);
    } finally {
      lease.end();
    }
  }

  // Runs the handler; returns what says how it ended.
  async #outcome(claim, signal) {
    const client = this.#client;
    const { id, token } = claim;
    const fail = (error) =>
      client.fail(id, token, String(error?.message ?? error).slice(0, 1000) || "it failed", {
        retryAfterS: error?.retryAfterS,
        notBeforeS: error?.notBeforeS,
        final: error?.final === true,
      });
    try {
      const result = await this.#handler(claim, signal);
      return () =>
        client.complete(id, token, result ?? null).catch((error) => {
          // The result, too large or not JSON: that is the handler's mistake, to be heard of.
          if (/stale_token|no_such_job/.test(error.code) || error.retry) throw error;
          return fail(error);
        });
    } catch (error) {
      return () => fail(error);
    }
  }
}
