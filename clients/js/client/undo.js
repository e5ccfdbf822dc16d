// Undo and redo of the client's own steps. Undoing is a new step that restores the previous values.
// It restores a value only if the client's own change is still the latest. Later changes of other
// members are kept and reported. Additions are undone by subtraction, even if others have added
// since.

import { OncewardError } from "./errors.js";
import { placeOf } from "./state.js";
import { refuse, same } from "./values.js";

const UNDO_MAX = 100;
const GESTURE_MAX = 10_000; // steps; a longer gesture takes several undos

export class Undo {
  #replica;
  #done = [];
  #undone = [];
  #gesture = null;

  constructor(replica) {
    this.#replica = replica;
  }

  get canUndo() {
    return this.#done.length > 0;
  }

  get canRedo() {
    return this.#undone.length > 0;
  }

  // Groups the following steps into one undo entry until `release` is called with the result.
  gather() {
    if (this.#gesture) refuse("bad_request", "a gesture is active already; end it first");
    return (this.#gesture = { entry: null });
  }

  // Ends a gesture; returns whether it was active and is the next entry to undo.
  release(gesture) {
    if (this.#gesture !== gesture) return false;
    this.#gesture = null;
    return gesture.entry !== null && this.#done.at(-1) === gesture.entry;
  }

  // Adds a new step to the undo stack and clears the redo stack. Steps without changes are ignored.
  record(step) {
    if (!step.effects?.length) return;
    this.#forget(this.#undone.splice(0));
    const gesture = this.#gesture;
    const entry = gesture?.entry;
    if (entry && this.#done.at(-1) === entry && entry.steps.length < GESTURE_MAX) {
      this.#add(entry, step);
    } else {
      const made = this.#push(this.#done, step);
      if (gesture) gesture.entry = made;
    }
  }

  undo() {
    return this.#turn(this.#done, this.#undone, "undo");
  }

  redo() {
    return this.#turn(this.#undone, this.#done, "redo");
  }

  #turn(source, target, what) {
    if (this.#replica.open) refuse("bad_request", `a batch is open; end it before you ${what}`);
    this.#gesture = null;
    this.#replica.settle();
    const entry = source.pop() ?? refuse("bad_request", `there is nothing to ${what}`);
    entry.takenBack = true;
    const { ops, kept } = this.#inverse(entry);
    let step = null;
    try {
      if (ops.length) step = this.#replica.change(ops);
    } catch (error) {
      if (!(error instanceof OncewardError)) throw error;
      kept.push(error.message);
    }
    if (step) {
      step.undone = entry;
      this.#push(target, step);
    }
    return { step, kept };
  }

  #push(entries, step) {
    const entry = { steps: [], takenBack: false };
    entries.push(entry);
    if (entries.length > UNDO_MAX) this.#forget(entries.splice(0, 1));
    this.#add(entry, step);
    return entry;
  }

  #add(entry, step) {
    step.entry = entry;
    entry.steps.push(step);
    step.onAnswer(() => this.#answered(step));
  }

  #answered(step) {
    const { entry } = step;
    if (!entry) this.#part(step);
    else if (step.error && !entry.takenBack) {
      entry.steps.splice(entry.steps.indexOf(step), 1);
      for (const entries of [this.#done, this.#undone]) {
        const place = entries.indexOf(entry);
        if (place >= 0 && !entry.steps.length) entries.splice(place, 1);
      }
    }
  }

  #forget(entries) {
    for (const step of entries.flatMap((entry) => entry.steps)) {
      step.entry = null;
      if (step.answered) this.#part(step);
    }
  }

  // Drops the records of a step that cannot be undone, unless it is an undo step: other steps find
  // their predecessors by it.
  #part(step) {
    const { latest } = this.#replica;
    step.below = new Map();
    if (step.undone) return;
    for (const { place } of step.effects ?? []) {
      if (latest.get(place) === step) latest.delete(place);
    }
  }

  // The operations that undo an entry, and the values that they do not restore.
  #inverse(entry) {
    const before = new Map();
    const after = new Map();
    for (const { effects, below } of entry.steps) {
      const begun = new Set();
      for (const effect of effects ?? []) {
        const { place } = effect;
        // Changes of others between two steps of a gesture are restored as the previous value.
        if (!begun.has(place) && !(before.has(place) && below.get(place)?.entry === entry)) {
          before.set(place, effect);
        }
        begun.add(place);
        after.set(place, effect.new);
      }
    }
    const done = entry.steps.flatMap((step) => step.ops);
    const ops = [];
    const kept = [];
    for (const at of targets(done, [...before.values()]).reverse()) {
      const counted = count(done, at);
      if (counted) {
        const is = typeof this.#replica.state.get(at)?.value;
        if (is === "number") ops.push({ op: "map.add", map: at.name, key: at.key, by: -counted });
        else kept.push(`${told(at)} is no longer a number`);
      } else if (!this.#isLatest(at.place, entry)) {
        kept.push(`${told(at)} was changed by others since, or its history is unknown`);
      } else if (at.key === null && !at.old && this.#filled(at, ops)) {
        kept.push(`${told(at)} is in use`);
      } else {
        const now = after.get(at.place);
        // A position from before its list was renumbered is obsolete.
        const stays = at.old && now && at.numbered !== this.#replica.state.numbered.get(at.name);
        if (stays && now.position !== at.old.position) {
          kept.push(`${told(at)} keeps its position, because its list was renumbered`);
        }
        ops.push(...restore(at, now, stays));
      }
    }
    // Dropped maps and lists must be created before they are filled.
    const made = ({ op }) => op.endsWith(".make");
    return { ops: [...ops.filter(made), ...ops.filter((one) => !made(one))], kept };
  }

  // Whether the entry's change is the latest, ignoring changes that were undone.
  #isLatest(place, entry) {
    let latest = this.#replica.latest.get(place);
    while (latest && latest.entry !== entry) {
      if (latest.entry?.takenBack) latest = latest.below.get(place);
      else latest = latest.undone?.steps.findLast((step) => step.below.has(place))?.below.get(place);
    }
    return latest !== undefined;
  }

  // Whether a map or list has content that these operations do not remove.
  #filled({ kind, name }, ops) {
    const gone = new Set(
      ops.filter((one) => one.op === `${kind}.delete` && one[kind] === name).map((one) => one.key ?? one.id),
    );
    const table = this.#replica.state[kind].get(name);
    return [...(table?.cells.keys() ?? [])].some((key) => !gone.has(key));
  }
}

const told = ({ kind, name, key }) =>
  key === null ? `the ${kind} "${name}"` : `"${key}" in "${name}"`;

// The places that operations address, among those that have changed.
function targets(ops, changed) {
  const named = new Set(
    ops.map((does) => {
      const [kind] = does.op.split(".");
      return placeOf(kind, does[kind], does.key ?? does.id ?? null);
    }),
  );
  return changed.filter(({ kind, name, place }) => named.has(place) || named.has(placeOf(kind, name, null)));
}

// The sum that was added at a place if it had no other operations; otherwise 0.
function count(ops, { kind, name, key }) {
  let total = 0;
  for (const does of ops) {
    if (kind !== "map" || does.map !== name) continue;
    if (does.op === "map.add" && does.key === key) total += does.by;
    else if (does.key === undefined || does.key === key) return 0;
  }
  return total;
}

// The operations that restore the old cell of a place; only its value if the item stays in place.
function restore({ kind, name, key, old }, now, stays) {
  const op = (verb, more) => ({ op: `${kind}.${verb}`, [kind]: name, ...more });
  if (key === null) return [op(old ? "make" : "drop")];
  if (kind === "map") return [old ? op("set", { key, value: old.value }) : op("delete", { key })];
  if (!old) return [op("delete", { id: key })];
  if (!now) return [op("insert", { id: key, value: old.value, at: old.position })];
  const ops = [];
  if (!same(now.value, old.value)) ops.push(op("set", { id: key, value: old.value }));
  if (now.position !== old.position && !stays) ops.push(op("move", { id: key, at: old.position }));
  return ops;
}
