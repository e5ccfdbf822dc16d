// The client's own steps: their local effects and their results.

import { admitName, admitSize, refuse } from "./values.js";

const OPS_MAX = 1000;
const STEP_BYTES = 256_000;

// Throws for operations that are invalid in every room; returns their size.
export function admitStep(ops) {
  if (ops.length > OPS_MAX) refuse("value_too_large", `a step must have at most ${OPS_MAX} operations, not ${ops.length}`);
  for (const does of ops) {
    admitName(does.map ?? does.list, "a name in a room");
    if ("key" in does) admitName(does.key, "a map's key", 256, 0);
    if ("id" in does) admitName(does.id, "an item's id", 256);
    if (does.after !== undefined) admitName(does.after, "an item's id", 256, 0);
  }
  return admitSize(ops, "a step", STEP_BYTES);
}

// Operations that are applied locally at once, and by the server as one step.
export class Step {
  n = 0; // the number with which it is sent
  ops = [];
  effects = []; // null if it conflicts with the current state and waits for the server's rejection
  below = new Map(); // the previous latest step, by place
  entry = null; // the undo entry that contains it
  undone = null; // the entry that it undoes
  bytes = 0;
  seq = null;
  error = null;
  answered = false;
  #hooks = [];

  onAnswer(hook) {
    if (this.answered) hook(this);
    else this.#hooks.push(hook);
  }

  // The first call counts.
  answer(seq, error = null) {
    if (this.answered) return;
    Object.assign(this, { seq, error, answered: true });
    if (!this.entry) this.below = new Map();
    for (const hook of this.#hooks.splice(0)) hook(this);
  }
}
