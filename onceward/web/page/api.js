// Calls to the server. Requests are authenticated by a cookie that scripts cannot read, and a
// session token that pages of other sites do not have.

const BASE = new URL("../", import.meta.url);
let token = "", bearer = "";
/** The signed-in user; `onover` is called when the session ends. */
export const session = { user: null, onover: () => {} };

export class Problem extends Error {
  constructor(status, said) {
    super(said.detail ?? said.title ?? `The server responded with status ${status}.`);
    this.status = status;
    this.code = said.code ?? "";
    this.said = said;
  }
}

async function call(method, path, body) {
  const headers = { accept: "application/json" };
  if (token) headers["onceward-session"] = token;
  if (bearer) headers.authorization = `Bearer ${bearer}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  let answer;
  try {
    answer = await fetch(new URL(path, BASE), {
      method, headers, body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin", cache: "no-store",
    });
  } catch {
    throw new Problem(0, { detail: "Cannot reach the server.", code: "away" });
  }
  const said = await answer.json().catch(() => ({}));
  if (answer.ok) return said;
  const problem = new Problem(answer.status, said);
  if (answer.status === 401 && token) {
    token = "";
    session.user = null;
    session.onover(problem);
  }
  throw problem;
}

/** Authenticate requests by a token in place of a session. */
export function bear(given) {
  bearer = given;
}

/** A path with a query of the parameters that are not empty. */
export function query(path, given) {
  const pairs = Object.entries(given).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(pairs).toString();
  return text ? `${path}?${text}` : path;
}

/** A name as part of a path. */
export const part = (name) => encodeURIComponent(name).replace(/^\.{1,2}$/, (dots) => dots.replaceAll(".", "%2E"));

export const get = (path) => call("GET", path);
export const post = (path, body) => call("POST", path, body);
export const put = (path, body) => call("PUT", path, body);
export const remove = (path) => call("DELETE", path);

/** Load the signed-in user. Rejects with the reason if there is no session. */
export async function whoami() {
  const found = await get("v1/session");
  return take(found);
}

export async function enter(how) {
  return take(await post("v1/session", how));
}

export async function leave() {
  await remove("v1/session");
  token = "";
  session.user = null;
}

function take(found) {
  token = found.token;
  session.user = { name: found.name, caller: found.caller, grants: found.grants, everything: found.everything, dev: found.dev, until: found.until_ms };
  return session.user;
}

/**
 * Repeats a request while the page is open and visible, each after the response to the last one.
 * Errors slow it down and are passed to `trouble`, with null when they are over.
 */
export function repeat(work, everyMs, trouble = () => {}) {
  let over = false, timer = 0, wrong = false, busy = false;
  const run = async () => {
    if (over || busy) return;
    busy = true;
    const begun = performance.now();
    let pause = everyMs;
    try {
      if (!document.hidden) {
        await work();
        if (wrong) trouble(null);
        wrong = false;
      }
    } catch (error) {
      if (error instanceof Problem && error.status === 401) over = true;
      else trouble(error);
      wrong = true;
      pause = Math.max(everyMs, 2000);
    }
    busy = false;
    if (!over) timer = setTimeout(run, Math.max(pause - (performance.now() - begun), 20));
  };
  run();
  return {
    stop() {
      over = true;
      clearTimeout(timer);
    },
    now() {
      clearTimeout(timer);
      return run();
    },
  };
}
