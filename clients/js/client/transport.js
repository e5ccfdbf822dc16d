// Requests to a server, retried until it responds or `patienceS` is over.

import { OncewardError } from "./errors.js";
import { AWAY_MS, addressOf, encode, refuse } from "./values.js";

const PAUSE_MS = 50;
const PAUSE_MS_MAX = 2000;
// How long a request may take, in addition to the time that the server waits on purpose.
const ANSWER_MS = 30_000;
// Errors that a retry may solve, if the caller decides so.
const FOR_CALLER = ["lock_held", "too_many_waiters", "storage_full", "conflict", "table_full", "table_paused"];
// The statuses of proxies while the server is down.
const PASSING = [408, 425, 429, 502, 503, 504];

export const milliseconds = (seconds, what) =>
  typeof seconds === "number" && seconds >= 0 && seconds < 4e9
    ? Math.round(seconds * 1000)
    : refuse("bad_request", `${what} must be a number of seconds, not ${seconds}`);

export const sleep = (ms, signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });

// The error of a response, from the server or from a proxy.
export function problem(status, text) {
  let said = {};
  try {
    said = JSON.parse(text);
  } catch {
    // the page of a proxy
  }
  const { type, title, status: _, detail, code, retry, ...details } = said ?? {};
  if (code) return new OncewardError(detail, { code, retry, status, details });
  const passing = PASSING.includes(status);
  return new OncewardError(`the server responded with ${status}: ${String(detail ?? text).slice(0, 200)}`, {
    code: passing ? "unreachable" : "internal",
    retry: passing,
    status,
  });
}

export class Transport {
  #key;
  #patienceMs;

  constructor(url, { key, patienceS = 60 } = {}) {
    this._url = addressOf(url);
    if (key && !/^[!-~]+$/.test(key)) refuse("no_credentials", "an API key or token must be printable ASCII without spaces");
    this.#key = key;
    this.#patienceMs = milliseconds(patienceS, "patience");
  }

  get _key() {
    return this.#key;
  }

  // Repeats a request until there is a response. The server may wait for `waitS` on purpose.
  // `course.lost` is set if a response was lost: then an earlier request may have taken effect.
  // With `course.once`, the request is not repeated then.
  async _call(method, path, { body, waitS = 0, headers: more, course = {}, signal } = {}) {
    const waitMs = milliseconds(waitS, "waitS");
    const headers = { ...more };
    if (this.#key) headers.Authorization = `Bearer ${this.#key}`;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const request = { method, headers, body: body === undefined ? body : encode(body), redirect: "error" };
    const until = performance.now() + this.#patienceMs + waitMs;
    for (let tries = 0; ; tries++) {
      let error;
      let afterMs = 0;
      let away = true;
      let sent = true;
      const timeout = AbortSignal.timeout(waitMs + ANSWER_MS);
      try {
        const limit = signal ? AbortSignal.any([signal, timeout]) : timeout;
        const answer = await fetch(this._url + path, { ...request, signal: limit, cache: "no-store" });
        const text = await answer.text();
        if (answer.ok) return JSON.parse(text || "{}");
        error = problem(answer.status, text);
        afterMs = Number(answer.headers.get("Retry-After")) * 1000 || 0;
        sent = answer.status !== 429; // a throttled request was not processed
        away = /^50[234]$/.test(answer.status) && !afterMs; // of a proxy whose server is down
      } catch (lost) {
        if (signal?.aborted) throw signal.reason;
        // Without a connection, the request was not sent. Browsers do not report this.
        sent = lost.cause?.code !== "ECONNREFUSED";
        const why = `cannot reach ${this._url}: ${lost.message}`;
        error = new OncewardError(why, { code: "unreachable", retry: true });
      }
      if (!error.retry || FOR_CALLER.includes(error.code)) throw error;
      course.lost ||= sent;
      const doubledMs = PAUSE_MS * 2 ** tries;
      const pauseMs = away
        ? Math.min(doubledMs, AWAY_MS) * Math.random()
        : Math.min(doubledMs, PAUSE_MS_MAX) * (0.5 + Math.random() / 2);
      const leftMs = Math.max(pauseMs, tries ? afterMs : 0);
      if (performance.now() + leftMs >= until || (course.lost && course.once)) throw error;
      await sleep(leftMs, signal);
      signal?.throwIfAborted();
    }
  }
}
