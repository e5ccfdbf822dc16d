// Requests to a server, made again until it answers or patience ends.

import { OncewardError } from "./errors.js";
import { AWAY_MS, addressOf, encode, refuse } from "./values.js";

const PAUSE_MS = 50;
const PAUSE_MS_MAX = 2000;
// How long a request may take beyond the time that the server is asked to wait.
const ANSWER_MS = 30_000;
// After these, trying again may help, but is for the caller to decide.
const TOLD = ["lock_held", "too_many_waiters", "storage_full", "conflict", "table_full", "table_paused"];
// Of proxies that stand in for a server for a while.
const STAND_INS = [408, 425, 429, 502, 503, 504];
// Members whose inside is the user's own, or has names for members …
const OPAQUE =
  /^(body|result|meta|schemas|headers|values|maps|lists|items|ops|tokens|players|lanes|ratings|state|moves?|mine|answer)$/;
// … and one with names for members that are not the user's own inside.
const NAMED = "seats";

export const milliseconds = (seconds, what) =>
  typeof seconds === "number" && seconds >= 0 && seconds < 4e9
    ? Math.round(seconds * 1000)
    : refuse("bad_request", `${what} is a number of seconds, not ${seconds}`);

export const sleep = (ms, signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });

// Members of an answer, in camelCase.
function shown(value, name = "") {
  if (value === null || typeof value !== "object" || OPAQUE.test(name)) return value;
  if (Array.isArray(value)) return value.map((one) => shown(one));
  const camel = (key) =>
    name === NAMED ? key : key.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());
  return Object.fromEntries(
    Object.entries(value).map(([key, one]) => [camel(key), shown(one, name === NAMED ? "" : key)]),
  );
}

// Members as the server has them, without those that are not given. Times in seconds become ms,
// including those in a retry policy.
export function asked(members) {
  const found = {};
  for (let [name, value] of Object.entries(members)) {
    if (value === undefined || value === null) continue;
    if (/[a-z]S$/.test(name)) {
      value = Array.isArray(value) ? value.map((one) => milliseconds(one, name)) : milliseconds(value, name);
      name = name.slice(0, -1) + "Ms";
    }
    if (name === "retry") value = asked(value);
    found[name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)] = value;
  }
  return found;
}

// The error that an answer tells of: the server's own, or one that a proxy made up.
export function problem(status, text) {
  let said = {};
  try {
    said = JSON.parse(text);
  } catch {
    // a proxy's page
  }
  const { type, title, status: _, detail, code, retry, ...details } = said ?? {};
  if (code) return new OncewardError(detail, { code, retry, status, details });
  const passing = STAND_INS.includes(status);
  return new OncewardError(`the server answers ${status}: ${String(detail ?? text).slice(0, 200)}`, {
    code: passing ? "unreachable" : "internal",
    retry: passing,
    status,
  });
}

function word(text) {
  if (typeof text !== "string" || !/[^.]/.test(text)) refuse("bad_name", `"${text}" is no name`);
  try {
    return encodeURIComponent(text);
  } catch {
    refuse("not_text", "a name is valid Unicode");
  }
}

export class Transport {
  #key;
  #patienceMs;

  constructor(url, { key, patienceS = 60 } = {}) {
    this._url = addressOf(url);
    if (key && !/^[!-~]+$/.test(key)) refuse("no_credentials", "an API key or a token is one word");
    this.#key = key;
    this.#patienceMs = milliseconds(patienceS, "patience");
  }

  get _key() {
    return this.#key;
  }

  // Makes a request until it is answered. `waitS` is how long the server may take on purpose;
  // `course.lost` tells that an answer was lost, so that an earlier request may have done already
  // what the last one found done.
  async _call(method, path, { body, query = {}, waitS = 0, key, course = {}, signal } = {}) {
    const waitMs = milliseconds(waitS ?? 0, "waitS");
    const terms = String(new URLSearchParams(asked(query)));
    const address = `${this._url}/v1/${path.map(word).join("/")}${terms && `?${terms}`}`;
    const headers = {};
    if (this.#key) headers.Authorization = `Bearer ${this.#key}`;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    if (key) headers["Idempotency-Key"] = key;
    const sent = { method, headers, body: body === undefined ? body : encode(body), redirect: "error" };
    const until = performance.now() + this.#patienceMs + waitMs;
    for (let tries = 0; ; tries++) {
      let error;
      let afterMs = 0;
      let away = true;
      const timeout = AbortSignal.timeout(waitMs + ANSWER_MS);
      try {
        const limit = signal ? AbortSignal.any([signal, timeout]) : timeout;
        const answer = await fetch(address, { ...sent, signal: limit, cache: "no-store" });
        const text = await answer.text();
        if (answer.ok) return shown(JSON.parse(text || "{}"));
        error = problem(answer.status, text);
        afterMs = Number(answer.headers.get("Retry-After")) * 1000 || 0;
        away = /^50[234]$/.test(answer.status) && !afterMs; // a proxy's, whose server is away
      } catch (lost) {
        if (signal?.aborted) throw signal.reason;
        const why = `${this._url} does not answer: ${lost.message}`;
        error = new OncewardError(why, { code: "unreachable", retry: true });
      }
      if (!error.retry || TOLD.includes(error.code)) throw error;
      course.lost = true;
      const doubledMs = PAUSE_MS * 2 ** tries;
      const pauseMs = away
        ? Math.min(doubledMs, AWAY_MS) * Math.random()
        : Math.min(doubledMs, PAUSE_MS_MAX) * (0.5 + Math.random() / 2);
      const leftMs = Math.max(pauseMs, tries ? afterMs : 0);
      if (performance.now() + leftMs >= until) throw error;
      await sleep(leftMs, signal);
      signal?.throwIfAborted();
    }
  }

  // Makes a call that finds done what it asks for, if an earlier request of it has done it.
  async _once(code, method, path, options, otherwise = () => {}) {
    const course = {};
    try {
      return await this._call(method, path, { ...options, course });
    } catch (error) {
      if (error.code !== code || !course.lost) throw error;
      return otherwise(error);
    }
  }

  // A page of a list, and after which one the next ones come.
  async _page(what, options) {
    const found = await this._call("GET", [what], { query: { limit: 100, ...options } });
    return [found[what], found.next ?? null];
  }
}
