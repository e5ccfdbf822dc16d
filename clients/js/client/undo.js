// Undo and redo of one's own steps. To undo is a step of its own, with what was there before. It
// restores a value only where one's own change is still the latest: what others have changed since
// stays as it is, and is told. Counting is undone by counting back, whoever has counted since.

import { OncewardError } from "./errors.js";
import { placeOf } from "./state.js";
import { refuse, same } from "./values.js";

const UNDO_MAX = 100;
const GESTURE_MAX = 10_000; // steps; a longer one is undone in several turns

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

  // From now on steps are undone as one, until `release` is called with what this returns.
  gather() {
    if (this.#gesture) refuse("bad_request", "there is a gesture already: end it first");
    return (this.#gesture = { entry: null });
  }

  // Says whether it went on until now, and is what would be undone next.
  release(gesture) {
    if (this.#gesture !== gesture) return false;
    this.#gesture = null;
    return gesture.entry !== null && this.#done.at(-1) === gesture.entry;
  }

  // A step was made: it can be undone, and what was undone before cannot be redone. One that has
  // changed nothing is nothing to undo.
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
    if (this.#replica.open) refuse("bad_request", `a batch is being made: end it before you ${what}`);
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

  // It cannot be undone any more: so nobody needs to know that its changes are the latest, unless
  // what was before them is to be found by it.
  #part(step) {
    const { latest } = this.#replica;
    step.below = new Map();
    if (step.undone) return;
    for (const { place } of step.effects ?? []) {
      if (latest.get(place) === step) latest.delete(place);
    }
  }

  // The operations that undo what was done, and what they leave as it is.
  #inverse(entry) {
    const before = new Map();
    const after = new Map();
    for (const { effects, below } of entry.steps) {
      const begun = new Set();
      for (const effect of effects ?? []) {
        const { place } = effect;
        // What others have changed between two steps of a gesture is what was there before.
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
        else kept.push(`${told(at)} is no number any more`);
      } else if (!this.#isLatest(at.place, entry)) {
        kept.push(`${told(at)} was changed by others since, or is not known`);
      } else if (at.key === null && !at.old && this.#filled(at, ops)) {
        kept.push(`${told(at)} is in use`);
      } else {
        const now = after.get(at.place);
        // A position from before its list was numbered anew says nothing any more.
        const stays = at.old && now && at.numbered !== this.#replica.state.numbered.get(at.name);
        if (stays && now.position !== at.old.position) {
          kept.push(`${told(at)} stays where it is: its list was numbered anew`);
        }
        ops.push(...restore(at, now, stays));
      }
    }
    // What was dropped must be there before it can be filled.
    const made = ({ op }) => op.endsWith(".make");
    return { ops: [...ops.filter(made), ...ops.filter((one) => !made(one))], kept };
  }

  // Whether one's change is the latest. Where one was undone, it is as before that.
  #isLatest(place, entry) {
    let latest = this.#replica.latest.get(place);
    while (latest && latest.entry !== entry) {
      if (latest.entry?.takenBack) latest = latest.below.get(place);
      else latest = latest.undone?.steps.findLast((step) => step.below.has(place))?.below.get(place);
    }
    return latest !== undefined;
  }

  // Whether something is in a map or list that these operations do not remove.
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

// The places that operations are about, of those that have changed.
function targets(ops, changed) {
  const named = new Set(
    ops.map((does) => {
      const [kind] = does.op.split(".");
      return placeOf(kind, does[kind], does.key ?? does.id ?? null);
    }),
  );
  return changed.filter(({ kind, name, place }) => named.has(place) || named.has(placeOf(kind, name, null)));
}

// How much was added at a place, if nothing else was done to it.
function count(ops, { kind, name, key }) {
  let total = 0;
  for (const does of ops) {
    if (kind !== "map" || does.map !== name) continue;
    if (does.op === "map.add" && does.key === key) total += does.by;
    else if (does.key === undefined || does.key === key) return 0;
  }
  return total;
}

// What brings a place from what is there now back to what was; or the value alone, if an item stays.
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
