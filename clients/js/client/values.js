// Values: validation, copies and comparison; errors; and hooks.

import { OncewardError } from "./errors.js";

// The longest pause while the server is unreachable. Such attempts are cheap, and a server is found
// within a second of its return. Clients spread their attempts over the whole pause.
export const AWAY_MS = 800;
// A server accepts 100 nested arrays and objects, some of which belong to the frame.
const DEPTH_MAX = 90;
// With the flag `u`, a valid surrogate pair does not match.
const LONE = /\p{Surrogate}/u;

const odd = (one) =>
  typeof one === "number" ? !Number.isFinite(one) : typeof one === "string" && LONE.test(one);

// JSON for a value. Throws for values that JSON cannot represent exactly.
export function encode(value) {
  let why = typeof value;
  try {
    const text = JSON.stringify(value, (key, one) => {
      if (typeof one === "bigint") throw Error(`${one}n is a BigInt; use text instead`);
      if (odd(key) || odd(one)) throw Error(`${key}: ${one}`);
      return one;
    });
    if (text) return text;
  } catch (error) {
    why = error.message;
  }
  refuse("bad_value", `not JSON: ${why}; use values that JSON has`);
}

// A copy of a value as plain JSON, as other members see it.
export function plain(value) {
  const copied = JSON.parse(encode(value));
  admit(copied, 0);
  return copied;
}

// Throws for values that are nested too deeply, and for numbers that were or will be rounded.
function admit(value, depth) {
  if (typeof value === "number" && Math.abs(value) > Number.MAX_SAFE_INTEGER) {
    const most = Number.MAX_SAFE_INTEGER;
    refuse("bad_value", `the number ${value} is outside ±${most} (2^53 - 1); use text instead`);
  }
  if (value === null || typeof value !== "object") return;
  if (depth >= DEPTH_MAX) refuse("too_deep", `a value must have at most ${DEPTH_MAX} nested levels`);
  for (const one of Object.values(value)) admit(one, depth + 1);
}

export const copy = (value) =>
  value !== null && typeof value === "object" ? JSON.parse(JSON.stringify(value)) : value;

const encoder = new TextEncoder();
const bytes = (text) => encoder.encode(text).length;

// The size of a value as JSON. Throws if it exceeds the limit.
export function admitSize(value, what, most) {
  const size = bytes(encode(value));
  if (size > most) refuse("value_too_large", `${what} must have at most ${most} bytes, not ${size}`);
  return size;
}

// Throws unless `name` is a string of a permitted length.
export function admitName(name, what, most = 128, least = 1) {
  const size = typeof name === "string" && !odd(name) ? bytes(name) : -1;
  if (size < least || size > most) refuse("bad_name", `${what} must be a string of ${least} to ${most} bytes`);
}

export function same(one, other) {
  if (one === other) return true;
  if (!one || !other || typeof one !== "object" || typeof other !== "object") return false;
  const keys = Object.keys(one);
  return (
    Array.isArray(one) === Array.isArray(other) &&
    keys.length === Object.keys(other).length &&
    keys.every((key) => Object.hasOwn(other, key) && same(one[key], other[key]))
  );
}

export const newId = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(13)), (byte) =>
    byte.toString(16).padStart(2, "0"),
  ).join("");

// The value of a map at a key, created if it is missing.
export function made(map, key, Kind, ...args) {
  if (!map.has(key)) map.set(key, new Kind(...args));
  return map.get(key);
}

// Whether the page is hidden; its timers are throttled then.
export const hidden = () => globalThis.document?.hidden;

// Adds a hook; returns an idempotent function that removes it.
export function hooked(hooks, hook) {
  const entry = { hook };
  hooks.add(entry);
  return () => void hooks.delete(entry);
}

// Calls hooks, and logs their exceptions.
export function call(hooks, ...args) {
  for (const { hook } of [...hooks]) {
    try {
      hook(...args);
    } catch (error) {
      console.error("a subscriber failed:", error);
    }
  }
}

export const fault = (code, message) => new OncewardError(message, { code });

export function refuse(code, message) {
  throw fault(code, message);
}

// The server's URL without a trailing slash; the origin of the page by default.
export function addressOf(url) {
  let found;
  try {
    found = new URL(url ?? globalThis.location?.origin);
  } catch {
    // invalid URLs are rejected below
  }
  if (!/^https?:$/.test(found?.protocol) || found.search || found.hash) {
    refuse("bad_request", `invalid server URL ${url}; use http://… or https://…`);
  }
  return found.href.replace(/\/+$/, "");
}
