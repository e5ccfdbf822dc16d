// A world for tests without a network: time that passes when it is told to, and sockets whose other
// end is in the test's hand.

export class World {
  ms = 1_000_000;
  hidden = false;
  sockets = [];
  #timers = new Map();
  #next = 1;
  #hooks = new Map();
  #saved = {};

  // Puts this in place of what a browser has, until `end`.
  begin() {
    const world = this;
    const listening = {
      addEventListener: (event, hook) => this.#hooks.set(event, [...(this.#hooks.get(event) ?? []), hook]),
    };
    class WebSocket {
      sent = [];
      constructor(url, protocols) {
        Object.assign(this, { url, protocols });
        world.sockets.push(this);
      }
      send(text) {
        this.sent.push(JSON.parse(text));
      }
      close() {
        this.closed = true;
      }
    }
    this.#put("WebSocket", WebSocket);
    this.#put("performance", { now: () => this.ms });
    this.#put("setTimeout", (hook, ms = 0) => {
      this.#timers.set(this.#next, { hook, at: this.ms + ms });
      return this.#next++;
    });
    this.#put("clearTimeout", (timer) => this.#timers.delete(timer));
    this.#put("addEventListener", listening.addEventListener);
    this.#put("document", {
      addEventListener: listening.addEventListener,
      get hidden() {
        return world.hidden;
      },
    });
    this.#saved.now = Date.now;
    Date.now = () => this.ms;
    return this;
  }

  end() {
    Date.now = this.#saved.now;
    delete this.#saved.now;
    for (const [name, found] of Object.entries(this.#saved)) {
      if (found) Object.defineProperty(globalThis, name, found);
      else delete globalThis[name];
    }
  }

  #put(name, value) {
    this.#saved[name] = Object.getOwnPropertyDescriptor(globalThis, name);
    Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
  }

  happens(event) {
    for (const hook of this.#hooks.get(event) ?? []) hook({});
  }

  // Lets time pass, and what is due happen in its order. With `late`, timers come only at the end.
  async pass(ms, { late = false } = {}) {
    const until = this.ms + ms;
    if (late) this.ms = until;
    await turn();
    while (true) {
      const due = [...this.#timers].filter(([, { at }]) => at <= until).sort((a, b) => a[1].at - b[1].at)[0];
      if (!due) break;
      this.#timers.delete(due[0]);
      this.ms = Math.max(this.ms, due[1].at);
      due[1].hook();
      await turn();
    }
    this.ms = until;
  }

  get socket() {
    return this.sockets.at(-1);
  }

  // The last socket connects, and its server says welcome.
  async welcome(more = {}) {
    this.socket.onopen();
    await this.hear({ t: "welcome", user: "ann", beat_ms: 30_000, ...more });
  }

  async hear(...frames) {
    for (const frame of frames) this.socket.onmessage({ data: JSON.stringify(frame) });
    await turn();
  }

  // The server lets one into an empty room, or back into it.
  async joined(room = "r", more = { reset: "new" }) {
    const frame = { t: "joined", room, epoch: "e", seq: 0, n: 0, me: "m1", members: [], presences: {} };
    await this.hear({ ...frame, ...more });
    if (more.reset) await this.hear({ t: "snapshot", room, seq: 0, maps: {}, lists: {} });
    await this.pass(20);
  }

  // What was sent since this was last asked, of some kind.
  sent(kind) {
    const found = this.socket.sent.filter((frame) => frame.t === kind);
    this.socket.sent = this.socket.sent.filter((frame) => frame.t !== kind);
    return found;
  }
}

// Lets everyone else have a turn.
export const turn = () => new Promise((resolve) => setImmediate(resolve));
