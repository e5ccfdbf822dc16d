// The WebSocket connection to the rooms of a server, with automatic reconnection.

import { reconnects } from "./errors.js";
import { Replica } from "./replica.js";
import { Room } from "./room.js";
import { AWAY_MS, addressOf, admitName, admitSize, call, fault, hidden, hooked, newId, plain } from "./values.js";

const PAUSE_MS = 200;
const PAUSE_MS_MAX = 15_000;
const WELCOME_MS = 20_000;
// How long to wait for `close` after `error`.
const ERROR_MS = 50;
const BEAT_MS = 15_000;
// The timeout of a heartbeat when the connection is doubtful.
const PROBE_MS = 5000;
// The minimum interval of notifying subscribers, or the time that they take if that is longer.
// Changes in between are shown together.
const FRAME_MS = 16;
// A token is renewed after this part of its lifetime, with a minimum in case clocks differ.
const RENEW_AT = 0.8;
const RENEW_MS_MIN = 30_000;
const TIMER_MS_MAX = 2 ** 31 - 1;
// The rest of the frame size is for the other fields.
const ACT_BYTES = (1 << 20) - 4000;
// The pause after an unreadable frame is that after this many attempts.
const UNREADABLE = 6;

const closed = () => fault("bad_request", "the connection is closed; open another one");

export class Live {
  state = "connecting";
  error = null;
  user = "";
  rooms = new Map();
  #address;
  #credentials;
  #hooks = new Set();
  #socket = null;
  #trying = null; // the current connection attempt
  #opened; // whether the server has responded to the last attempt
  #attempts = 0;
  #spoiled = 0; // consecutive connections that sent an invalid frame of a room
  #pause = null;
  #timers = new Set(); // of this connection
  #beat = null;
  #heard = false;
  #out = [];
  #acts = new Map(); // unanswered acts at tables, by number
  #act = 0;
  #stirred = false;
  #settling = false;
  #restMs = 0; // when subscribers may be notified again
  #ending = new AbortController();

  constructor(url, { token } = {}) {
    this.#address = addressOf(url).replace(/^http/, "ws") + "/v1/ws";
    this.#credentials = token;
    const { signal } = this.#ending;
    const on = (target, event, hook) => target?.addEventListener?.(event, hook, { signal });
    for (const event of ["online", "pageshow"]) on(globalThis, event, () => this.wake());
    on(globalThis, "offline", () => this.#lost());
    on(globalThis.document, "visibilitychange", () => {
      if (!hidden()) this.wake();
      else for (const room of this.rooms.values()) room._hide();
    });
    this.#connect();
  }

  onState(hook) {
    return hooked(this.#hooks, hook);
  }

  room(id, { create = false } = {}) {
    admitName(id, "a room's id", 256);
    this.#mustBeOpen();
    if (!this.rooms.has(id)) {
      const replica = new Replica(id, newId(), create);
      const room = new Room(this, replica);
      room.user = replica.user = this.user;
      this.rooms.set(id, room);
      if (this.state === "connected") this.#send(replica.join());
    }
    return this.rooms.get(id);
  }

  async join(id, options) {
    const room = this.room(id, options);
    await new Promise((resolve) => {
      const look = () => /live|closed/.test(room.status) && (end(), resolve());
      const end = room.onStatus(look);
      look();
    });
    if (room.status === "live") return room;
    throw room.error ?? fault("not_joined", "the room was left during the join; join it again");
  }

  async act(does, table = "", body = {}) {
    this.#mustBeOpen();
    for (const text of [does, table]) admitName(text, "the name or table of an act", 256, 0);
    const frame = { t: "act", n: ++this.#act, do: does, table, body: { ...plain(body) } };
    admitSize(frame.body, "the body of an act", ACT_BYTES);
    return new Promise((resolve, reject) => {
      this.#acts.set(frame.n, { frame, resolve, reject });
      if (this.state === "connected") this.#sendActs();
    });
  }

  wake() {
    if (this.#pause !== null) {
      this.#attempts = 0;
      this.#connect();
    } else if (this.state === "connected") this.#ask(PROBE_MS);
  }

  close() {
    this.#end(null);
  }

  // For rooms.

  // Sends pending frames at the end of this turn.
  _stir() {
    if (this.#stirred) return;
    this.#stirred = true;
    queueMicrotask(() => {
      this.#stirred = false;
      if (this.state !== "connected") return;
      const frames = this.#out.splice(0);
      for (const room of this.rooms.values()) frames.push(...room._takeOut());
      for (const frame of frames) this.#socket.send(JSON.stringify(frame));
    });
  }

  _restart() {
    queueMicrotask(() => this.#lost(null, true));
  }

  _rejoin(room) {
    this.#after(this.#pauseMs(room._tries++), () => {
      if (this.rooms.get(room.id) === room && !room._replica.live) this.#send(room._replica.join());
    });
  }

  _forget(room) {
    if (this.rooms.get(room.id) !== room) return;
    this.rooms.delete(room.id);
    if (this.state === "connected" && !room.error) this.#send({ t: "leave", room: room.id });
  }

  #send(frame) {
    this.#out.push(frame);
    this._stir();
  }

  #sendActs() {
    for (const act of this.#acts.values()) {
      if (!act.sent) this.#send(act.frame);
      act.sent = true;
    }
  }

  #acted({ t, n, value, code, detail }) {
    const act = this.#acts.get(n);
    this.#acts.delete(n);
    if (t === "done") act?.resolve(value);
    else act?.reject(fault(code, detail));
  }

  #mustBeOpen() {
    if (this.state === "closed") throw this.error ?? closed();
  }

  // Connection loop.

  async #connect() {
    clearTimeout(this.#pause);
    this.#pause = null;
    this.#opened = false;
    const trying = (this.#trying = {});
    const now = (hook) => (event) => this.#trying === trying && hook(event);
    let token = null;
    try {
      token = await this.#token();
      if (this.#trying !== trying) return;
      const socket = (this.#socket = new WebSocket(this.#address, ["onceward.rooms.1"]));
      socket.onopen = now(() => {
        this.#opened = true;
        socket.send(JSON.stringify({ t: "hello", token }));
      });
      socket.onmessage = now(({ data }) => this.#receive(data));
      socket.onclose = now(({ code, reason }) => this.#closed(code, reason));
      // Node 20 reports a refused connection only by `error`. If `close` follows, it has the code.
      socket.onerror = now(() => this.#after(ERROR_MS, now(() => this.#lost())));
      this.#after(WELCOME_MS, () => {
        if (this.state !== "connected") this.#lost();
      });
    } catch (error) {
      // Without a network the token request fails, which is temporary. Errors with `retry: false`
      // are final, and so is an exception of the WebSocket constructor.
      const barred = token !== null && fault("not_allowed", error.message);
      // `fetch` throws a TypeError if the server does not respond
      this.#opened = !(error instanceof TypeError);
      if (this.#trying === trying) this.#lost(error.retry === false ? error : barred);
    }
  }

  async #token() {
    const token = this.#credentials;
    return (typeof token === "function" ? await token() : token) || undefined;
  }

  #pauseMs(tries) {
    const most = Math.min(PAUSE_MS * 2 ** tries, PAUSE_MS_MAX);
    // Clients that lost the connection at the same time should not reconnect at the same time.
    return most * (0.2 + 0.8 * Math.random());
  }

  #after(ms, hook) {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      hook();
    }, ms);
    this.#timers.add(timer);
  }

  #closed(code, reason) {
    // A client with a token function tries a new token.
    const renewed = reason === "token_expired" && typeof this.#credentials === "function";
    const final = !renewed && !reconnects(code, reason);
    this.#lost(final && fault(reason || "internal", `the server closed the connection with ${code}`));
  }

  #receive(data) {
    this.#heard = true;
    let frame;
    try {
      frame = JSON.parse(data);
      frame.t; // throws for null
    } catch {
      this.#attempts = UNREADABLE;
      return this.#lost();
    }
    if (frame.t === "welcome") this.#welcome(frame);
    else if (/done|failed/.test(frame.t)) this.#acted(frame);
    else if (frame.t === "error") {
      console.warn(`rejected by the server: ${frame.detail} [${frame.code}]`);
      if (frame.name) this.rooms.get(frame.room)?._presenceRefused(frame);
    } else if (this.rooms.has(frame.room)) {
      this.rooms.get(frame.room)._receive(frame);
      if (frame.t === "joined") this.#attempts = this.rooms.get(frame.room)._tries = 0;
      this.#settleSoon();
    }
  }

  #settleSoon() {
    if (this.#settling) return;
    this.#settling = true;
    const leftMs = this.#restMs - performance.now();
    if (leftMs <= 0) queueMicrotask(() => this.#settle());
    else if (!hidden()) setTimeout(() => this.#settle(), leftMs);
    else {
      // Timers of a hidden page are throttled; messages are not.
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => (port1.close(), this.#settle());
      port2.postMessage(null);
    }
  }

  #settle() {
    this.#settling = false;
    const begun = performance.now();
    for (const room of [...this.rooms.values()]) room._settle();
    const ended = performance.now();
    this.#restMs = ended + Math.max(FRAME_MS, ended - begun);
  }

  #welcome({ user, until_ms }) {
    this.user = user;
    this.#attempts = 0;
    if (until_ms && typeof this.#credentials === "function") {
      const renewMs = Math.max((until_ms - Date.now()) * RENEW_AT, RENEW_MS_MIN);
      this.#after(Math.min(renewMs, TIMER_MS_MAX), () => this.#renew());
    }
    if (this.state === "connected") return;
    this.#out = [];
    for (const room of this.rooms.values()) {
      room.user = room._replica.user = user;
      this.#send(room._replica.join());
    }
    this.#sendActs();
    this.#ask(BEAT_MS);
    this.#setState("connected");
  }

  // Sends a new token before the old one expires.
  async #renew() {
    const trying = this.#trying;
    try {
      const token = await this.#token();
      if (this.#trying === trying) this.#send({ t: "token", token });
    } catch (error) {
      console.warn("could not get a new token:", error);
    }
  }

  // Sends a heartbeat, and closes the connection without a response. A late timer, on a hidden page
  // or after the machine slept, proves nothing, so another heartbeat is sent then.
  #ask(ms) {
    clearTimeout(this.#beat);
    this.#heard = false;
    this.#send({ t: "ping" });
    const dueMs = performance.now() + ms;
    this.#beat = setTimeout(() => {
      if (this.#heard) {
        this.#spoiled = 0;
        this.#ask(BEAT_MS);
      } else if (performance.now() > dueMs + PROBE_MS) this.#ask(PROBE_MS);
      else this.#lost();
    }, ms);
  }

  // Handles a lost connection; reconnects after a pause unless the error is final.
  #lost(final, spoiled = false) {
    if (this.state === "closed" || this.#pause !== null) return;
    this.#cut();
    for (const room of [...this.rooms.values()]) {
      room._lost();
      room._settle();
    }
    if (final) return this.#end(final);
    this.#spoiled = spoiled ? this.#spoiled + 1 : 0;
    // A refused handshake looks like an unreachable server. Only a client that was connected before
    // treats it as that.
    const away = this.user && !this.#opened;
    const pauseMs = away ? AWAY_MS * Math.random() : this.#pauseMs(Math.max(this.#attempts++, this.#spoiled - 1));
    this.#pause = setTimeout(() => this.#connect(), pauseMs);
    this.#setState("connecting");
  }

  #cut() {
    this.#trying = null;
    this.#socket?.close();
    this.#socket = null;
    this.#out = [];
    clearTimeout(this.#beat);
    clearTimeout(this.#pause);
    this.#pause = null;
    for (const timer of this.#timers) clearTimeout(timer);
    this.#timers.clear();
    for (const [n, { sent }] of this.#acts) {
      if (sent) this.#acted({ n, code: "outcome_unknown", detail: "the connection was lost before the response" });
    }
  }

  #end(error) {
    if (this.state === "closed") return;
    this.#cut();
    this.#ending.abort();
    this.error = error;
    this.state = "closed"; // before the rooms notify theirs: no further frames are sent
    for (const { reject } of this.#acts.values()) reject(error ?? closed());
    this.#acts.clear();
    for (const room of [...this.rooms.values()]) room._close(error);
    this.rooms.clear();
    call(this.#hooks, this.state);
  }

  #setState(state) {
    if (state === this.state) return;
    this.state = state;
    call(this.#hooks, state);
  }
}
