// A room: its maps, lists, presences and members, and events of other members.

import { Presence, RoomList, RoomMap, Saved } from "./objects.js";
import { Undo } from "./undo.js";
import { admitName, admitSize, call, fault, hidden, hooked, made, plain, refuse, same } from "./values.js";

const SAID_BYTES = 64_000;

// How many sent values of a presence are kept, since the server may reject each of them.
const SENT_KEPT = 16;

export class Room {
  status = "joining";
  error = null;
  user = "";
  me = "";
  members = new Map();
  #count = 0;
  _tries = 0; // attempts to rejoin since the last join
  _presences = new Map(); // values by name and user
  #line;
  #undo;
  #named = { map: new Map(), list: new Map(), presence: new Map() };
  #own = new Map(); // this client's presences by name, with their expiry
  #sent = new Map(); // the last sent values by name, which the server may still reject
  #removed = new Map(); // removed values, whose removal the server may not have received
  #out = [];
  #hooks = { members: new Set(), status: new Set(), steps: new Set(), refused: new Set() };
  #events = new Map();
  #items = 0;
  #shown = "";

  constructor(line, replica) {
    this.id = replica.room;
    this._replica = replica;
    this.#line = line;
    this.#undo = new Undo(replica);
  }

  // Content.

  map(name) {
    return this.#get("map", name, RoomMap);
  }

  list(name) {
    return this.#get("list", name, RoomList);
  }

  presence(name, { everyMs } = {}) {
    const presence = this.#get("presence", name, Presence);
    if (everyMs !== undefined) presence._everyMs = everyMs;
    return presence;
  }

  #get(kind, name, Kind) {
    return made(this.#named[kind], name, Kind, this, name);
  }

  get count() {
    return this.#count || this.members.size;
  }

  get position() {
    return [this._replica.epoch, this._replica.seq, this._replica.digest];
  }

  get waiting() {
    return this._replica.waiting.length;
  }

  get canUndo() {
    return this.#undo.canUndo;
  }

  get canRedo() {
    return this.#undo.canRedo;
  }

  batch(body) {
    this.#mustBeOpen();
    const step = this._replica.begin();
    try {
      if (body() instanceof Promise) refuse("bad_request", "the function of a batch must not be async");
    } catch (error) {
      if (this._replica.open === step) this._replica.abort();
      this._settle();
      throw error;
    }
    try {
      this._replica.commit();
      this.#made(step);
    } finally {
      this._settle();
    }
    return new Saved(step);
  }

  gesture() {
    this.#mustBeOpen();
    const gesture = this.#undo.gather();
    return {
      end: () => void this.#undo.release(gesture),
      cancel: () => (this.#undo.release(gesture) ? this.undo() : null),
    };
  }

  undo() {
    return this.#turned("undo");
  }

  redo() {
    return this.#turned("redo");
  }

  #turned(turn) {
    this.#mustBeOpen();
    const { step, kept } = this.#undo[turn]();
    step?.onAnswer(() => this.#answered(step));
    this._settle();
    return { step: step && new Saved(step), kept };
  }

  // Events.

  say(event, value = null) {
    this.#speak({ t: "say", room: this.id, event, value: plain(value) });
  }

  tell(member, event, value = null) {
    this.#speak({ t: "tell", room: this.id, to: member, event, value: plain(value) });
  }

  #speak(frame) {
    this.#mustBeOpen();
    admitName(frame.event, "an event's name");
    if ("to" in frame) admitName(frame.to, "a member's id");
    admitSize(frame.value, "the value of an event", SAID_BYTES);
    if (!this._replica.live) refuse("not_joined", "the room is not connected; wait until its status is `live`");
    this.#send(frame);
  }

  on(event, hook) {
    admitName(event, "an event's name");
    return hooked(made(this.#events, event, Set), hook);
  }

  onMembers(hook) {
    return hooked(this.#hooks.members, hook);
  }

  onStatus(hook) {
    return hooked(this.#hooks.status, hook);
  }

  onSteps(hook) {
    return hooked(this.#hooks.steps, hook);
  }

  onRefused(hook) {
    return hooked(this.#hooks.refused, hook);
  }

  leave() {
    this._close(null);
  }

  // For maps, lists and presences.

  _change(ops) {
    this.#mustBeOpen();
    const batched = this._replica.open;
    const step = this._replica.change(ops);
    if (!batched) this.#made(step);
    this._settle();
    return step;
  }

  _newItem() {
    return `${this._replica.client}.${++this.#items}`;
  }

  _setPresence(presence, value, ttlMs) {
    this.#mustBeOpen();
    this.#own.set(presence.name, { value, untilMs: Date.now() + ttlMs });
    this.#removed.delete(presence.name);
    this.#putPresence(presence.name, this.user, value, { user: this.user, mine: true });
    this.#sayPresence(presence);
  }

  _removePresence(presence) {
    this.#mustBeOpen();
    const own = this.#own.get(presence.name);
    if (!own) return;
    this.#own.delete(presence.name);
    this.#removed.set(presence.name, own.value);
    this.#dropPresence(presence.name, this.user, { user: this.user, mine: true });
    this.#sayPresence(presence);
  }

  // Sends the current value, at most once per interval; otherwise when the interval is over. The
  // last value is always sent. Timers of a hidden page are throttled, but little changes there.
  #sayPresence(presence, late = false) {
    if (!late && presence._timer !== null) return;
    const leftMs = presence._sentMs + presence._everyMs - performance.now();
    if (!late && leftMs > 0 && !hidden()) {
      presence._timer = setTimeout(() => this.#sayPresence(presence, true), leftMs);
      return;
    }
    clearTimeout(presence._timer);
    presence._timer = null;
    if (!this._replica.live) return; // it is sent with the next join
    presence._sentMs = performance.now();
    const { name } = presence;
    const own = this.#own.get(name);
    this.#out = this.#out.filter((frame) => frame.name !== name);
    if (!own) {
      this.#sent.delete(name);
      this.#send({ t: "presence.remove", room: this.id, name });
    } else {
      this.#sent.set(name, [...(this.#sent.get(name) ?? []), own].slice(-SENT_KEPT));
      const ttl_ms = Math.max(own.untilMs - Date.now(), 1);
      this.#send({ t: "presence.set", room: this.id, name, value: own.value, ttl_ms });
    }
  }

  // Restores the previous value after a rejection by the server; all other members still see it.
  _presenceRefused({ name, value = null, code, detail }) {
    const sent = this.#sent.get(name) ?? [];
    const at = sent.findLastIndex((one) => same(one.value, value));
    if (at < 0) return;
    sent.splice(at, 1);
    if (this.#own.has(name) && same(this.#own.get(name).value, value)) {
      const who = { user: this.user, mine: true };
      const before = sent.at(-1);
      if (before && before.untilMs > Date.now()) {
        this.#own.set(name, before);
        this.#putPresence(name, this.user, before.value, who);
      } else {
        this.#own.delete(name);
        this.#dropPresence(name, this.user, who);
      }
    }
    call(this.#hooks.refused, fault(code, detail || `the presence ${name} was rejected`), []);
  }

  #putPresence(name, user, value, who) {
    made(this._presences, name, Map).set(user, value);
    this.#named.presence.get(name)?._tell(who);
  }

  #dropPresence(name, user, who) {
    if (this._presences.get(name)?.delete(user)) this.#named.presence.get(name)?._tell(who);
  }

  // For the connection.

  _takeOut() {
    const out = [...this._replica.out, ...this.#out];
    this._replica.out = [];
    this.#out = [];
    return out;
  }

  // Sends values that wait for a timer when the page is hidden.
  _hide() {
    for (const presence of this.#named.presence.values()) {
      if (presence._timer !== null) this.#sayPresence(presence, true);
    }
  }

  _lost() {
    this._replica.lost();
    this.#out = [];
    if (this.status !== "closed") this.#setStatus(this._replica.epoch ? "away" : "joining");
  }

  _close(error) {
    if (this.status === "closed") return;
    this.error = error;
    this._replica.lost();
    this.#out = [];
    for (const presence of this.#named.presence.values()) clearTimeout(presence._timer);
    this._replica.drop(error ?? fault("outcome_unknown", "the room was left; join it again"));
    this.#line._forget(this);
    this.#setStatus("closed");
    this._settle();
  }

  // Processes a frame of this room; call `_settle` after the last one for now.
  _receive(frame) {
    const { t, name, user } = frame;
    const who = { user, mine: user === this.user };
    if (t === "presence") this.#putPresence(name, user, frame.value, who);
    else if (t === "gone") {
      if (who.mine) this.#own.delete(name);
      this.#dropPresence(name, user, who);
    } else if (t === "came" || t === "went") {
      this.members = new Map(this.members);
      if (t === "came") this.members.set(frame.id, { id: frame.id, user });
      else this.members.delete(frame.id);
      call(this.#hooks.members, this.members);
    } else if (t === "crowd") {
      this.#count = frame.count ?? 0;
      call(this.#hooks.members, this.members);
    } else if (t === "said") {
      const { event, value = null, sender = "", by = "", direct = false } = frame;
      call(this.#events.get(event) ?? [], value, { event, value, sender, by, direct });
    } else if (t === "left") {
      const error = fault(frame.code, frame.detail || `this client is not in the room ${this.id}`);
      // A previous member waits until there is a place; a new one gets the error.
      if (error.retry && (error.code !== "room_full" || this._replica.epoch)) {
        this._lost();
        this.#line._rejoin(this);
      } else this._close(error);
    } else this.#follow(frame);
  }

  #follow(frame) {
    try {
      this._replica.receive(frame);
    } catch (error) {
      console.warn(`loading the room ${this.id} again:`, error);
      this._replica.heal();
      this.#line._restart();
      return;
    }
    if (frame.t !== "joined") return;
    this.me = frame.me;
    this.members = new Map(frame.members.map((member) => [member.id, member]));
    this.#count = frame.count ?? 0;
    const now = Object.entries(frame.presences).map(([name, all]) => [name, new Map(Object.entries(all))]);
    this._presences = new Map(now);
    for (const [name, { value, untilMs }] of this.#own) {
      if (untilMs > Date.now()) made(this._presences, name, Map).set(this.user, value);
    }
    for (const [name, value] of this.#removed) {
      const all = this._presences.get(name);
      // A removed value that is still there was not set by another tab, so it is removed again.
      if (same(all?.get(this.user), value)) all.delete(this.user);
      else this.#removed.delete(name);
    }
    for (const presence of this.#named.presence.values()) presence._tell({ user: "", mine: false });
    call(this.#hooks.members, this.members);
  }

  // Applies received changes and notifies subscribers.
  _settle() {
    this._replica.settle();
    const { changed } = this._replica;
    this._replica.changed = new Map();
    for (const { who, places } of changed.values()) {
      const found = { map: new Map(), list: new Map() };
      for (const { kind, name, key } of places) {
        made(found[kind], name, Set).add(key);
      }
      for (const [name, keys] of found.map) this.#named.map.get(name)?._tell(keys, who);
      for (const name of [...found.list.keys()].sort()) this.#named.list.get(name)?._tell(who);
    }
    if (this._replica.live && /joining|away/.test(this.status)) {
      this.#setStatus("live");
      for (const [name, { untilMs }] of this.#own) if (untilMs <= Date.now()) this.#own.delete(name);
      for (const name of [...this.#own.keys(), ...this.#removed.keys()]) {
        this.#sayPresence(this.presence(name), true);
      }
    }
    const shown = [this.waiting, this.canUndo, this.canRedo].join();
    if (shown !== this.#shown) {
      this.#shown = shown;
      call(this.#hooks.steps, this);
    }
    if (this._replica.out.length) this.#line._stir();
  }

  #send(frame) {
    this.#out.push(frame);
    this.#line._stir();
  }

  #setStatus(status) {
    if (status === this.status) return;
    this.status = status;
    call(this.#hooks.status, status);
  }

  #made(step) {
    this.#undo.record(step);
    step.onAnswer(() => this.#answered(step));
  }

  #answered({ error, ops }) {
    if (error) call(this.#hooks.refused, error, ops);
  }

  #mustBeOpen() {
    if (this.status === "closed") throw this.error ?? fault("not_joined", "the room was left; join it again");
  }
}
