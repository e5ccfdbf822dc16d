// A drop-in for `@roomservice/browser` 3: the same names, on rooms of an Onceward server. A page
// that was written for Room Service needs only another import; see roomservice.d.ts.
//
// Where the server is: where this file is served from, or the page's own origin, or `url`.

import { Live } from "./client.js";

const PRESENCE_S = 60;
const PRESENCE_S_MAX = 24 * 3600;
const LOOP = "Infinite loop: this changes an object within a function that is subscribed to it";

export class RoomService {
  #auth;
  #ctx;
  #url;
  #rooms = new Map();

  constructor({ auth, ctx = {}, url } = {}) {
    if (typeof auth !== "string" && typeof auth !== "function") {
      throw new TypeError("auth must be the URL of tokens, or a function that returns one");
    }
    this.#auth = auth;
    this.#ctx = ctx;
    this.#url = url ?? home(import.meta.url);
  }

  room(name) {
    if (!this.#rooms.has(name)) {
      const joining = this.#join(name);
      this.#rooms.set(name, joining);
      joining.catch(() => this.#rooms.delete(name)); // allow another attempt
    }
    return this.#rooms.get(name);
  }

  async #join(name) {
    let session = await this.#session(name);
    const { user, id } = session;
    const live = new Live(this.#url, {
      // Each later connection requests a new token, since tokens expire.
      token: async () => {
        const { token } = session ?? (await this.#session(name));
        session = null;
        return token;
      },
    });
    try {
      const room = await live.join(id, { create: true });
      if (room.user !== user) {
        throw new Error(`auth returned the user ${user}, but its token is for ${room.user}`);
      }
      return new RoomClient(room);
    } catch (error) {
      live.close();
      throw error;
    }
  }

  async #session(room) {
    const auth = this.#auth;
    const found =
      typeof auth === "function" ? await auth({ room, ctx: this.#ctx }) : await ask(auth, room);
    const { token, user, resources } = found ?? {};
    if (!token || !user || !Array.isArray(resources)) {
      throw new Error("auth must return { token, user, resources }");
    }
    const id = resources.find((resource) => resource?.object === "room")?.id;
    return { token, user, id: id || room };
  }
}

export default RoomService;

function home(module) {
  const found = new URL(module);
  // The URL of a server, not of a bundler.
  const served = /^https?:$/.test(found.protocol) && /^(?!.*node_modules).*\/roomservice\.js$/.test(found.pathname);
  return served ? new URL(".", found).href : globalThis.location?.origin;
}

async function ask(url, room) {
  const resources = [
    { object: "document", reference: "default", permission: "read_write", room },
    { object: "room", reference: room, permission: "join" },
  ];
  const answer = await fetch(url, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ resources }),
  });
  if (answer.status === 401) throw new Error(`auth at ${url} rejects this user; check its credentials`);
  if (answer.status !== 200) throw new Error(`auth at ${url} responded with ${answer.status}, not 200`);
  return answer.json().catch(() => null);
}

// The subscribers of one object of a room, and whether they are being called.
class Topic {
  hooks = new Set();
  #telling = false;
  #changing = false;

  // `whole` returns the value for subscribers.
  constructor(room, inner, whole) {
    this.room = room;
    this.inner = inner;
    this.whole = whole;
    inner.subscribe((value, { user }) => this.#changing || this.#tell(value, user));
  }

  // Change the object, and call subscribers `times` times. Subscribers cannot change it.
  change(does, times = 1) {
    if (this.#telling) throw new Error(LOOP);
    this.#changing = true;
    try {
      does(this.inner);
    } finally {
      this.#changing = false;
    }
    while (times-- > 0) this.#tell(this.whole(), this.room.user);
  }

  // The first error of a subscriber is thrown after all were called.
  #tell(value, by) {
    const thrown = [];
    this.#telling = true;
    for (const hook of [...this.hooks]) {
      try {
        hook(value, by);
      } catch (error) {
        thrown.push(error);
      }
    }
    this.#telling = false;
    if (thrown.length) throw thrown[0];
  }
}

const topicOf = new WeakMap();

// An object as a page has it. Each change gives another one, so that it can be a state of React; all
// of them are the same map or list.
class Handle {
  constructor(topic) {
    topicOf.set(this, topic);
  }

  get _inner() {
    return topicOf.get(this).inner;
  }

  _change(does) {
    const topic = topicOf.get(this);
    topic.change(does);
    return new this.constructor(topic);
  }
}

class MapClient extends Handle {
  get keys() {
    return this._inner.keys();
  }

  get(key) {
    return this._inner.get(String(key));
  }

  set(key, value) {
    if (value === undefined) return this.delete(key);
    return this._change((map) => map.set(String(key), value));
  }

  delete(key) {
    return this._change((map) => map.delete(String(key)));
  }

  toObject() {
    return this._inner.whole();
  }
}

class ListClient extends Handle {
  get(index) {
    return this.#has(index) ? this._inner.at(index) : undefined;
  }

  set(index, value) {
    if (value === undefined) return this.delete(index);
    if (!this.#has(index)) {
      throw new RangeError(`"${this._inner.name}" has no item ${index}; add one with push or insertAt`);
    }
    return this._change((list) => list.set(list.idAt(index), value));
  }

  delete(index) {
    if (this.#has(index)) return this._change((list) => list.delete(list.idAt(index)));
    console.warn(`"${this._inner.name}" has no item ${index}; nothing was deleted`);
    return new ListClient(topicOf.get(this));
  }

  insertAfter(index, value) {
    return this.insertAt(index + 1, value);
  }

  insertAt(index, value) {
    const { name, length } = this._inner;
    if (index !== length && !this.#has(index)) {
      throw new RangeError(`"${name}" has ${length} items, but no index ${index}`);
    }
    return this._change((list) => list.insert(index, value));
  }

  push(...values) {
    topicOf.get(this).change((list) => values.forEach((value) => list.push(value)), values.length);
    return this;
  }

  map(fn) {
    return this._inner.items().map(({ id, value }, index) => fn(value, index, id));
  }

  toArray() {
    return this._inner.values();
  }

  #has(index) {
    return Number.isInteger(index) && index >= 0 && index < this._inner.length;
  }
}

class PresenceClient extends Handle {
  set(value, exp) {
    const seconds = Math.min(exp || PRESENCE_S, PRESENCE_S_MAX);
    this._change((presence) => presence.set(value, seconds));
    return this.getAll();
  }

  getMine() {
    return this._inner.mine;
  }

  getAll() {
    return this._inner.all();
  }
}

export class RoomClient {
  #room;
  #handles = new Map();

  constructor(room) {
    this.#room = room;
  }

  get me() {
    return this.#room.user;
  }

  get onceward() {
    return this.#room;
  }

  map(name) {
    return this.#handle(MapClient, this.#room.map(name), (map) => map.whole());
  }

  list(name) {
    return this.#handle(ListClient, this.#room.list(name), (list) => list.values());
  }

  presence(name) {
    return this.#handle(PresenceClient, this.#room.presence(name), (presence) => presence.all());
  }

  subscribe(object, hook) {
    const topic = topicOf.get(object);
    if (topic?.room !== this.#room) {
      throw new TypeError("subscribe needs a map, a list or a presence of this room");
    }
    if (typeof hook !== "function") throw new TypeError("subscribe needs a function");
    const fn = (value, by) => hook(value, by); // the same one may be subscribed twice
    topic.hooks.add(fn);
    return [{ objID: topic.inner.name, fn }];
  }

  unsubscribe(listeners) {
    for (const { fn } of listeners) {
      for (const handle of this.#handles.values()) topicOf.get(handle).hooks.delete(fn);
    }
  }

  #handle(Kind, inner, whole) {
    if (!this.#handles.has(inner)) {
      this.#handles.set(inner, new Kind(new Topic(this.#room, inner, () => whole(inner))));
    }
    return this.#handles.get(inner);
  }
}
