// In place of the servers of Room Service, which are gone: as much of their protocol as version 3.0.4 of
// `@roomservice/browser` speaks, in memory. Use `begin` before that is loaded. What changes is told to
// all others in the room, and each room has one document, which is empty for whoever comes.

const ADDRESS = /^(?:wss|https):\/\/super\.roomservice\.dev\/(ws|docs|presence)(?:\/(.+))?$/;
const sockets = new Set();
const bootstraps = new Map(); // by token, how often a client has asked for what is there
let stamps = 0;

const stamp = () => Buffer.from(String(++stamps).padStart(10, "0")).toString("base64");

function answer(what, id, { Authorization }) {
  if (what === "presence") return {};
  bootstraps.set(Authorization, (bootstraps.get(Authorization) ?? 0) + 1);
  return { body: { id, index: 0, api_version: 0, vs: stamp(), actors: {}, lists: {}, maps: {} } };
}

class StandIn {
  constructor(url) {
    if (ADDRESS.exec(url)?.[1] !== "ws") throw Error(`there is no ${url}`);
    sockets.add(this);
    setImmediate(() => this.onopen());
  }

  send(text) {
    const { type, body } = JSON.parse(text);
    const from = this.user;
    if (type === "guest:authenticate") {
      this.user = body.replace(/^dev:/, "");
      this.#hear("guest:authenticated", body);
    } else if (type === "room:join") {
      this.room = body;
      this.#hear("room:joined", body);
    } else if (type === "doc:cmd") {
      if (!/create$/.test(body.args[0])) this.#forward("doc:fwd", { ...body, from, vs: stamp(), ack: false });
    } else if (type === "presence:cmd") this.#forward("presence:fwd", { ...body, from });
    else throw Error(`there is no ${type}`);
  }

  close() {
    sockets.delete(this);
    this.onclose?.();
  }

  #hear(type, body) {
    setImmediate(() => this.onmessage?.({ data: JSON.stringify({ type, ver: 0, body }) }));
  }

  #forward(type, body) {
    for (const other of sockets) if (other !== this && other.room === body.room) other.#hear(type, body);
  }
}

export function begin() {
  const { fetch } = globalThis;
  globalThis.WebSocket = StandIn;
  globalThis.fetch = async (url, options) => {
    const [found, what, id] = ADDRESS.exec(url) ?? [];
    return found ? Response.json(answer(what, id, options.headers)) : fetch(url, options);
  };
}

// Waits until a client has asked for the second time, over its connection: before that, it forgets what
// was changed meanwhile.
export async function connected(token) {
  while ((bootstraps.get(`Bearer: ${token}`) ?? 0) < 2) await new Promise((resolve) => setTimeout(resolve, 1));
  await new Promise((resolve) => setTimeout(resolve, 20));
}
