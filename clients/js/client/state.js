// The state of a room: maps and lists, changed by operations. Applying the same steps in the same
// order gives the same state: nothing here depends on time, randomness or the process.

import { FIRST, between, fits, following } from "./positions.js";
import { refuse, same } from "./values.js";

const THERE = { value: null };
const countable = (value) => typeof value === "number" && Math.abs(value) <= Number.MAX_SAFE_INTEGER;

// A place in the state as one string. Without a key it is the map or list itself.
export const placeOf = (kind, name, key) => `${kind}${name.length} ${name}${key === null ? "" : ` ${key}`}`;

// Cells by key or id and, for lists, their order. Positions are unique.
class Table {
  cells = new Map();
  ids = new Map(); // by position
  order = []; // all positions, sorted

  // The index of a position in the order, or where it would be.
  find(position) {
    let low = 0;
    for (let high = this.order.length; low < high; ) {
      const middle = (low + high) >> 1;
      if (this.order[middle] < position) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  write(key, cell) {
    const old = this.cells.get(key)?.position;
    if (cell) this.cells.set(key, cell);
    else this.cells.delete(key);
    if (old === cell?.position) return;
    if (old) {
      this.order.splice(this.find(old), 1);
      this.ids.delete(old);
    }
    if (cell?.position) {
      this.order.splice(this.find(cell.position), 0, cell.position);
      this.ids.set(cell.position, key);
    }
  }

  idAt(index) {
    return this.ids.get(this.order.at(index));
  }

  // The positions between which an item belongs; both are the requested one if it is free.
  gap(after, at) {
    const { order } = this;
    if (after === "") return [null, order[0] ?? null];
    const found = after == null ? undefined : this.cells.get(after);
    if (!found && at == null) return [order.at(-1) ?? null, null];
    const low = found ? found.position : at;
    if (!this.ids.has(low)) return [low, low];
    return [low, order[this.find(low) + 1] ?? null];
  }
}

export class State {
  map = new Map();
  list = new Map();
  numbered = new Map(); // how often lists were renumbered; older positions are obsolete

  // Applies operations, all or none; returns the changes as effects that can be reverted.
  apply(ops) {
    const effects = [];
    try {
      for (const does of ops) this.#run(does, effects);
    } catch (error) {
      this.revert(effects);
      throw error;
    }
    return effects;
  }

  revert(effects) {
    for (const { kind, name, key, old } of [...effects].reverse()) {
      this.put(kind, name, key, old);
    }
  }

  // The cell of a key or item; without a key, a dummy cell if the map or list exists.
  get({ kind, name, key }) {
    const table = this[kind].get(name);
    return key === null ? table && THERE : table?.cells.get(key);
  }

  put(kind, name, key, cell) {
    const tables = this[kind];
    if (key !== null) tables.get(name).write(key, cell);
    else if (!cell) tables.delete(name);
    else if (!tables.has(name)) tables.set(name, new Table());
  }

  // Loads a piece of a snapshot.
  load({ maps, lists }) {
    for (const [name, values] of Object.entries(maps)) {
      this.put("map", name, null, THERE);
      for (const [key, value] of Object.entries(values)) this.put("map", name, key, { value });
    }
    for (const [name, items] of Object.entries(lists)) {
      this.put("list", name, null, THERE);
      for (const [id, position, value] of items) this.put("list", name, id, { value, position });
    }
  }

  *places() {
    for (const kind of ["map", "list"]) {
      for (const [name, { cells }] of this[kind]) {
        for (const key of [null, ...cells.keys()]) {
          yield { kind, name, key, place: placeOf(kind, name, key) };
        }
      }
    }
  }

  #run(does, effects) {
    const [kind, verb] = does.op.split(".");
    const name = does[kind];
    const key = (kind === "map" ? does.key : does.id) ?? null;
    const found = this.get({ kind, name, key });
    // Other items that an insertion or a move changes are only renumbered, and keep their place.
    const change = (at, cell) =>
      this.#change(effects, kind, name, at, cell, at !== null && at !== key && verb !== "drop");
    const told = () => `"${key}" in "${name}"`;
    if (verb === "make") {
      if (!found) change(null, THERE);
    } else if (verb === "drop") {
      if (!found) return;
      for (const inside of [...this[kind].get(name).cells.keys()]) change(inside);
      change(null);
    } else if (verb === "delete") {
      if (found) change(key);
    } else if (verb === "set") {
      if (kind === "map" || found) change(key, { ...found, value: does.value });
    } else if (verb === "compare") {
      if (does.expect === undefined ? found : !found || !same(found.value, does.expect)) {
        refuse("not_expected", `${told()} is not as expected; read it again`);
      }
      change(key, { value: does.value });
    } else if (verb === "add") {
      const value = found ? found.value : 0;
      if (![value, does.by, value + does.by].every(countable)) {
        refuse("not_countable", `${told()} is not a number, or would be too large`);
      }
      change(key, { value: value + does.by });
    } else if (verb === "insert") {
      if (found) return;
      if (!this.list.has(name)) change(null, THERE);
      change(key, { value: does.value, position: this.#position(does, change) });
    } else if (verb === "move") {
      if (!found || does.after === key) return;
      change(key); // removed first, so that it does not count as its own neighbour
      change(key, { ...found, position: this.#position(does, change) });
    } else {
      refuse("unknown_frame", `unknown operation ${does.op}`);
    }
  }

  #change(effects, kind, name, key, cell, aside) {
    const place = placeOf(kind, name, key);
    if (key !== null && !this[kind].has(name)) this.#change(effects, kind, name, null, THERE);
    const [old, numbered] = [this.get({ kind, name, key }), this.numbered.get(name)];
    effects.push({ kind, name, key, place, old, new: cell, aside, numbered });
    this.put(kind, name, key, cell);
  }

  #position({ list, after, at }, change) {
    const table = this.list.get(list);
    const [low, high] = table.gap(after, at);
    if (low !== null && low === high) return low;
    const position = between(low, high);
    if (fits(position)) return position;
    // All items are renumbered. They are removed before they are added, since positions are unique.
    // Removal starts at the end, where no items move up.
    this.numbered.set(list, (this.numbered.get(list) ?? 0) + 1);
    const index = low === null ? 0 : table.find(low) + 1;
    const items = table.order.map((one) => table.ids.get(one)).map((id) => [id, table.cells.get(id)]);
    for (const [id] of [...items].reverse()) change(id);
    items.splice(index, 0, null);
    let next = FIRST;
    let found;
    for (const item of items) {
      if (item) change(item[0], { ...item[1], position: next });
      else found = next;
      next = following(next);
    }
    return found;
  }
}
