// Maps, lists and presences of a room, with optimistic updates and subscriptions. They return
// copies.

import { admitName, admitSize, call, copy, hooked, made, plain, refuse } from "./values.js";

const PRESENCE_BYTES = 16_000;
const DAY_S = 24 * 3600;
const NONE = new Map();

// A pending change. It creates a promise only on demand, so that an ignored rejection is no error.
export class Saved {
  #step;

  constructor(step, id = "") {
    this.#step = step;
    this.id = id;
  }

  get done() {
    return this.#step.answered;
  }

  then(fulfilled, rejected) {
    return new Promise((resolve, reject) => {
      this.#step.onAnswer(({ seq, error }) => (error ? reject(error) : resolve(seq)));
    }).then(fulfilled, rejected);
  }

  catch(rejected) {
    return this.then(null, rejected);
  }
}

class Named {
  _hooks = new Set();

  constructor(room, name) {
    admitName(name, "a name in a room");
    this._room = room;
    this.name = name;
  }

  subscribe(hook) {
    return hooked(this._hooks, hook);
  }

  _saved(ops, id) {
    return new Saved(this._room._change(ops), id);
  }
}

export class RoomMap extends Named {
  _byKey = new Map();

  subscribe(hook, key) {
    if (key === undefined) return super.subscribe(hook);
    return hooked(made(this._byKey, key, Set), hook);
  }

  get #cells() {
    return this._room._replica.state.map.get(this.name)?.cells ?? NONE;
  }

  get size() {
    return this.#cells.size;
  }

  get(key, otherwise) {
    const cell = this.#cells.get(key);
    return cell ? copy(cell.value) : otherwise;
  }

  has(key) {
    return this.#cells.has(key);
  }

  keys() {
    return [...this.#cells.keys()];
  }

  *[Symbol.iterator]() {
    for (const [key, { value }] of [...this.#cells]) yield [key, copy(value)];
  }

  whole() {
    return Object.fromEntries(this);
  }

  set(key, value) {
    return this.#do("set", { key, value: plain(value) });
  }

  delete(key) {
    return this.#do("delete", { key });
  }

  add(key, by = 1) {
    if (!Number.isFinite(by)) refuse("bad_value", `the amount must be a number, not ${by}`);
    return this.#do("add", { key, by: plain(by) });
  }

  compare(key, value, { expect } = {}) {
    const expected = expect === undefined ? {} : { expect: plain(expect) };
    return this.#do("compare", { key, value: plain(value), ...expected });
  }

  clear() {
    return this.#do("drop", {});
  }

  #do(verb, more) {
    return this._saved([{ op: `map.${verb}`, map: this.name, ...more }]);
  }

  _tell(keys, who) {
    if (this._hooks.size) call(this._hooks, this.whole(), who);
    for (const key of keys) {
      const hooks = this._byKey.get(key);
      if (hooks) call(hooks, this.get(key), who);
    }
  }
}

export class RoomList extends Named {
  get #table() {
    return this._room._replica.state.list.get(this.name);
  }

  get length() {
    return this.#table?.order.length ?? 0;
  }

  at(index) {
    return this.get(this.#table?.idAt(index));
  }

  get(id) {
    return copy(this.#table?.cells.get(id)?.value);
  }

  has(id) {
    return this.#table?.cells.has(id) ?? false;
  }

  items() {
    const table = this.#table;
    return (table?.order ?? []).map((position) => {
      const id = table.ids.get(position);
      return { id, value: copy(table.cells.get(id).value) };
    });
  }

  values() {
    return this.items().map((item) => item.value);
  }

  [Symbol.iterator]() {
    return this.values()[Symbol.iterator]();
  }

  idAt(index) {
    return this.#table?.idAt(index) ?? refuse("bad_key", `"${this.name}" has no item at ${index}; read the list again`);
  }

  push(value) {
    return this.#insert(value);
  }

  insert(index, value) {
    this.#admitIndex(index, this.length);
    return this.#insert(value, index ? this.idAt(index - 1) : "");
  }

  insertAfter(id, value) {
    if (id !== "") this.#admit(id);
    return this.#insert(value, id);
  }

  set(id, value) {
    this.#admit(id);
    return this.#do("set", id, { value: plain(value) });
  }

  move(id, index) {
    this.#admit(id);
    this.#admitIndex(index, this.length - 1);
    const here = this.#table.find(this.#position(id));
    return this.moveAfter(id, index ? this.idAt(index > here ? index : index - 1) : "");
  }

  moveAfter(id, other) {
    this.#admit(id);
    if (other !== "") this.#admit(other);
    return this.#do("move", id, { after: other, at: this.#position(other) });
  }

  delete(id) {
    return this.#do("delete", id);
  }

  clear() {
    return this._saved([{ op: "list.drop", list: this.name }]);
  }

  #insert(value, after) {
    const id = this._room._newItem();
    return this.#do("insert", id, { value: plain(value), after, at: this.#position(after) });
  }

  #do(verb, id, more) {
    return this._saved([{ op: `list.${verb}`, list: this.name, id, ...more }], id);
  }

  #admit(id) {
    if (!this.has(id)) refuse("bad_key", `"${this.name}" has no item "${id}"; read the list again`);
  }

  #admitIndex(index, most) {
    if (!Number.isInteger(index) || index < 0 || index > most) {
      refuse("bad_request", `an index in "${this.name}" must be 0 to ${most}, not ${index}`);
    }
  }

  // The position to use if the item is deleted before the step arrives.
  #position(id) {
    return id ? this.#table.cells.get(id).position : undefined;
  }

  _tell(who) {
    if (this._hooks.size) call(this._hooks, this.values(), who);
  }
}

export class Presence extends Named {
  _everyMs = 40;
  _sentMs = -Infinity;
  _timer = null;

  get #values() {
    return this._room._presences.get(this.name) ?? NONE;
  }

  get mine() {
    return copy(this.#values.get(this._room.user));
  }

  all() {
    return Object.fromEntries([...this.#values].map(([user, value]) => [user, copy(value)]));
  }

  set(value, ttlS = 60) {
    if (!(ttlS >= 0.001 && ttlS <= DAY_S)) {
      refuse("bad_request", "a presence must last 1 ms to 24 hours");
    }
    const given = plain(value);
    admitSize(given, "a presence", PRESENCE_BYTES);
    this._room._setPresence(this, given, Math.round(ttlS * 1000));
  }

  remove() {
    this._room._removePresence(this);
  }

  _tell(who) {
    if (this._hooks.size) call(this._hooks, this.all(), who);
  }
}
