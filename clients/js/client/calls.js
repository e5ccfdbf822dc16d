// Builds the methods of a client from the table of operations: `client.jobs.retry(id)`.
//
// Arguments in the path and required members are positional, all others are options.

import { OPERATIONS, STRUCTS } from "./operations.js";
import { milliseconds } from "./transport.js";
import { encode, fault, newId, refuse } from "./values.js";

const HEADER = "Idempotency-Key";

const words = (text = "") => text.split(" ").filter(Boolean);
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const newSecret = () =>
  `whsec_${btoa(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(24))))}`;

// The namespaces of a client: for each noun, an object with one function per operation.
export function namespaces(client) {
  const found = {};
  for (const [name, row] of Object.entries(OPERATIONS)) {
    const [noun, verb] = name.split(".");
    const namespace = (found[noun] ??= {});
    const operation = parsed(name, row);
    namespace[verb] = async (...given) => call(client, namespace, operation, ...read(operation, given));
    if (operation.pages) {
      const iterator = `iterate${verb[0].toUpperCase()}${verb.slice(1)}`.replace("List", "");
      namespace[iterator] = (...given) => iterate(namespace[verb], operation, given);
    }
  }
  return found;
}

function parsed(name, [verb, path, spec, more = {}]) {
  const declared = words(spec).map((word) => {
    const [, required, inQuery, argument, struct] = /^(!?)(\??)(\w+):?(\w*)$/.exec(word);
    return { required, inQuery, argument, struct };
  });
  const names = (wanted) => declared.filter(wanted).map(({ argument }) => argument);
  const inPath = [...path.matchAll(/\{(\w+)\}/g)].map(([, parameter]) => parameter);
  const positional = [...inPath, ...names(({ required }) => required)];
  return { name, verb, path, declared, positional, optional: names(({ required }) => !required), ...more };
}

// The entries of all pages of a list.
async function* iterate(list, { positional, pages }, given) {
  const [entries, cursor] = words(pages);
  const [before, [options, ...more]] = [given.slice(0, positional.length), given.slice(positional.length)];
  for (let next; next !== null; ) {
    const page = await list(...before, next === undefined ? options : { ...options, [cursor]: next }, ...more);
    yield* page[entries];
    next = page.next ?? null;
  }
}

// The arguments of a call by name, and its signal.
function read({ name, positional, optional }, given) {
  const usage = `${name}(${[...positional, "options"].join(", ")})`;
  if (given.length > positional.length + 1) refuse("bad_request", `too many arguments; use ${usage}`);
  const options = given[positional.length] ?? {};
  if (!isObject(options)) refuse("bad_request", `the options must be an object; use ${usage}`);
  admitNames(name, options, [...optional, "signal"]);
  const { signal, ...found } = options;
  positional.forEach((argument, index) => {
    if (given[index] === undefined) refuse("bad_request", `${argument} is missing; use ${usage}`);
    found[argument] = given[index];
  });
  return [found, signal];
}

async function call(client, namespace, operation, found, signal) {
  const { name, verb, returns, opaque, done, doneMember, unknown, repeatsWith } = operation;
  const headers = fill(operation, found);
  const { path, body } = request(operation, found);
  const course = { once: Boolean(repeatsWith) && (found[repeatsWith] ?? null) === null };
  try {
    const answer = await client._call(verb, path, { body, headers, course, signal, waitS: found.waitS ?? 0 });
    const value = camel(answer, words(opaque));
    // After a lost response, an earlier request has done what this one found done.
    if (course.lost && doneMember) value[doneMember] = true;
    return returns ? value[returns] : value;
  } catch (error) {
    if (!course.lost) throw error;
    if (course.once) {
      const advice = `to make it safe to repeat, give ${repeatsWith}`;
      throw fault("outcome_unknown", `the response to ${name} was lost; ${advice}: ${error.message}`);
    }
    if (words(unknown).includes(error.code)) {
      throw fault("outcome_unknown", `the response to ${name} was lost, and now: ${error.message}. Check whether it took effect`);
    }
    // A cancelled timer was not moved.
    if (!words(done).includes(error.code) || error.details.state === "cancelled") throw error;
    return current(namespace, operation, found, signal);
  }
}

// Adds new ids, so that a repeated request takes effect once. Returns the headers.
function fill({ fills }, found) {
  const headers = {};
  for (const name of words(fills)) {
    if (found[name] || found.key) continue;
    if (name === HEADER) {
      if (found.key !== "") headers[name] = newId(); // the server rejects ""
    } else found[name] = name === "secret" ? newSecret() : newId();
  }
  return headers;
}

// The resource after a call whose response was lost. Of a deleted one, only the id is known.
function current(namespace, { verb, declared }, found, signal) {
  if (verb === "DELETE") return { id: found.id };
  const whose = declared.filter(({ inQuery }) => inQuery).map(({ argument }) => [argument, found[argument]]);
  return namespace.get(found.id, { ...Object.fromEntries(whose), signal });
}

function request({ name, path, declared }, found) {
  const query = new URLSearchParams();
  const body = declared.some(({ inQuery }) => !inQuery) ? {} : undefined;
  for (const { inQuery, argument, struct } of declared) {
    if (found[argument] === undefined) continue;
    const [field, value] = member(argument, found[argument]);
    if (!inQuery) body[field] = struct ? inStruct(`${argument} of ${name}`, struct, value) : value;
    else if (value !== null) query.set(field, struct === "json" ? encode(value) : value);
  }
  const address = path.replace(/\{(\w+)\}/g, (_, parameter) => inPath(parameter, found[parameter]));
  return { path: String(query) ? `${address}?${query}` : address, body };
}

function inPath(parameter, text) {
  if (typeof text !== "string" || !/[^.]/.test(text)) {
    refuse("bad_name", `${parameter} must be a name, not ${JSON.stringify(text)}`);
  }
  try {
    return encodeURIComponent(text);
  } catch {
    refuse("not_text", `${parameter} is not valid Unicode; remove lone surrogates`);
  }
}

// A member of a request: `leaseS: 1` is `lease_ms: 1000`.
function member(name, value) {
  const snake = (text) => text.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  if (!/[a-z]S$/.test(name)) return [snake(name), value];
  const ms = (one) => (one === null ? one : milliseconds(one, name));
  return [snake(name.slice(0, -1) + "Ms"), Array.isArray(value) ? value.map(ms) : ms(value)];
}

function inStruct(what, struct, value) {
  if (Array.isArray(value)) return value.map((one) => inStruct(what, struct, one));
  if (!isObject(value)) return value; // the server rejects it
  admitNames(what, value, words(STRUCTS[struct]));
  const given = Object.entries(value).filter(([, one]) => one !== undefined);
  return Object.fromEntries(given.map(([name, one]) => member(name, one)));
}

function admitNames(what, given, known) {
  for (const name of Object.keys(given)) {
    if (given[name] === undefined || known.includes(name)) continue;
    refuse("bad_request", `unknown option "${name}" of ${what}; use ${known.join(", ")}`);
  }
}

// A response with its members in camelCase. Values and names of the user (`opaque`) stay as they are.
function camel(value, opaque, path = "") {
  if (value === null || typeof value !== "object" || opaque.includes(path)) return value;
  if (Array.isArray(value)) return value.map((one) => camel(one, opaque, path));
  const before = path && `${path}.`;
  const named = opaque.includes(`${path}*`);
  return Object.fromEntries(
    Object.entries(value).map(([name, one]) => [
      named ? name : name.replace(/_([a-z0-9])/g, (_, letter) => letter.toUpperCase()),
      camel(one, opaque, before + (named ? "*" : name)),
    ]),
  );
}
