// A worker over HTTP: claims jobs, runs a handler on them, and reports the outcome.

import { Output } from "./output.js";
import { milliseconds, sleep } from "./transport.js";
import { AWAY_MS, refuse } from "./values.js";

const IDLE_MS_MAX = 5000;
const STACK_CHARS_MAX = 3800;
const MESSAGE_CHARS_MAX = 1000;
const CAUSES_MAX = 3;

// The name of the class of an error: many classes do not set `name`.
function typeOf(error) {
  if (!(error instanceof Error)) return typeof error;
  return String(error.name === "Error" ? error.constructor.name : error.name);
}

// The stack of an error and of its causes. A long message is cut, since the calls follow it.
function stackOf(error, causes = CAUSES_MAX) {
  const stack = String(error?.stack ?? "");
  const at = Math.max(stack.indexOf("\n    at "), 0);
  const cause = causes && error?.cause?.stack ? `\ncaused by: ${stackOf(error.cause, causes - 1)}` : "";
  return stack.slice(0, Math.min(at, MESSAGE_CHARS_MAX)) + stack.slice(at) + cause;
}

// Renews a lease until `end`. `begun` is when it began. `signal` is aborted if it is lost.
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
        const late = sleep(leftMs, ended.signal).then(() => refuse("lock_lost", "the lease ended; another worker may run the job"));
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
  #jobs;
  #queue;
  #handler;
  #options;
  #stopping = new AbortController();

  constructor(jobs, queue, handler, options = {}) {
    this.#options = { concurrency: 16, leaseS: 30, waitS: 20, name: "", ...options };
    const { concurrency, waitS } = this.#options;
    if (!Number.isInteger(concurrency) || concurrency < 1 || concurrency > 1000) {
      refuse("bad_request", `concurrency is ${concurrency}; use 1 to 1000`);
    }
    if (!(waitS >= 1)) refuse("bad_request", `waitS is ${waitS}; use 1 or more`);
    this.#jobs = jobs;
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
        const claims = await this.#jobs.claim(this.#queue, { max, leaseS, waitS, worker, signal });
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
    const jobs = this.#jobs;
    const { leaseS } = this.#options;
    const lease = keep(begun, leaseS, () => jobs.extend(id, token, leaseS));
    const output = new Output((values) => jobs.report(id, token, values));
    const job = {
      ...{ id, token, ...claim },
      progress: (fraction, text) => output.progress(fraction, text),
      stream: (chunk) => output.stream(chunk),
    };
    try {
      const end = await this.#outcome(job, lease.signal, output);
      if (!lease.signal.aborted) await end();
    } catch (error) {
      // The lease ends, and the job is attempted again.
      console.warn(`job ${id}: ${error.message}`);
    } finally {
      output.close();
      lease.end();
    }
  }

  // Runs the handler; returns a function that reports the outcome.
  async #outcome(claim, signal, output) {
    const jobs = this.#jobs;
    const { id, token } = claim;
    const fail = (error) =>
      jobs.fail(id, token, String(error?.message ?? error).slice(0, 1000) || "it failed", {
        retryAfterS: error?.retryAfterS,
        notBeforeS: error?.notBeforeS,
        final: error?.final === true,
        type: typeOf(error).slice(0, 100),
        traceback: stackOf(error).slice(0, STACK_CHARS_MAX),
      });
    try {
      const result = await this.#handler(claim, signal);
      await output.flush();
      return () =>
        jobs.complete(id, token, { result: result ?? null }).catch((error) => {
          // A result that is too large or not JSON is an error of the handler.
          if (/stale_token|no_such_job/.test(error.code) || error.retry) throw error;
          return fail(error);
        });
    } catch (error) {
      await output.flush().catch(() => {}); // the attempt fails in any case
      if (/stale_token|no_such_job/.test(error?.code)) throw error;
      return () => fail(error);
    }
  }
}
