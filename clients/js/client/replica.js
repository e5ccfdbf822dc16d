// A local replica of a room. It uses no connection, time or randomness. The state is that of the
// server at the position, with the client's unanswered steps on top. For a change of others, the
// own steps are reverted, the change is applied, and they are applied again.

import { OncewardError } from "./errors.js";
import { State } from "./state.js";
import { Step, admitStep } from "./steps.js";
import { fault, refuse, same } from "./values.js";

const WAITING_MAX = 10_000;
const WAITING_BYTES = 16 << 20;
// The rest of the frame size is for the other fields of a join.
const JOIN_BYTES = (1 << 20) - 64_000;
const WHY_LOST = "the room rejected it; the reason was lost with the connection";
const NOBODY = { user: "", mine: false };

// Rejects a frame that cannot follow the previous ones.
const astray = () => refuse("bad_request", "the local replica of the room was invalid; read the room again");

export class Replica {
  user = "";
  epoch = "";
  seq = 0;
  digest = ""; // the digest that came with `seq`; only the server interprets it
  waiting = []; // unanswered own steps, in order
  open = null; // an open batch, on top of all other steps
  latest = new Map(); // the step with the latest change, by place that this client has changed
  live = false; // whether the state has reached the server's position on this connection
  out = []; // frames to send on this connection
  changed = new Map(); // changes to report to subscribers, by author
  #state = new State();
  #n = 0;
  #bytes = 0;
  #sent = 0;
  #known = 0; // the highest number that may have been sent before this connection
  #joined = null;
  #loading = null;
  #lowered = false; // whether the own steps are reverted at the moment
  #before = new Map(); // the cells at the last report, by place
  #whose = new Map(); // the authors of changes since, by place
  #cause = NOBODY;
  #answers = [];

  constructor(room, client, create = false) {
    Object.assign(this, { room, client, create });
  }

  // The visible state.
  get state() {
    this.raise();
    return this.#state;
  }

  get #mine() {
    return { user: this.user, mine: true };
  }

  // Local changes.

  // Applies operations locally, and sends them when possible. Throws, without a change, if they are
  // invalid or conflict with the local state.
  change(ops) {
    this.raise();
    const step = this.open ?? new Step();
    const size = admitStep(ops);
    if (!this.open) this.#admitMore(size);
    const effects = this.#state.apply(ops);
    step.ops.push(...ops);
    step.effects &&= step.effects.concat(effects);
    this.#note(step, effects);
    for (const effect of effects) this.#saw(effect, this.#mine);
    if (!this.open) this.#send(step, size);
    this.#tell();
    return step;
  }

  // Opens a batch: changes until `commit` or `abort` are one step.
  begin() {
    if (this.open) refuse("bad_request", "a batch is open already; end it first");
    this.raise();
    return (this.open = new Step());
  }

  // Sends the changes since `begin` as one step, which may be empty. Throws, and reverts all of
  // them, if they are invalid or conflict with changes of others.
  commit() {
    this.raise();
    const step = this.open;
    let size = 0;
    try {
      if (!step.effects) refuse("not_expected", "the batch conflicts with changes of others; read the room again");
      size = admitStep(step.ops);
      this.#admitMore(size);
    } catch (error) {
      step.answer(null, error);
      this.abort();
      throw error;
    }
    this.open = null;
    if (step.ops.length) this.#send(step, size);
    else step.answer(this.seq);
  }

  abort() {
    this.raise();
    const step = this.open;
    this.#lower(this.#mine);
    this.open = null;
    this.raise();
    step.answer(null, fault("bad_request", "the batch was aborted"));
  }

  #admitMore(size) {
    if (this.waiting.length >= WAITING_MAX || this.#bytes + size > WAITING_BYTES) {
      refuse("overloaded", "too many changes wait for a response of the server; retry later");
    }
  }

  #send(step, size) {
    step.n = ++this.#n;
    step.bytes = size;
    this.waiting.push(step);
    this.#bytes += size;
    this.#flush();
  }

  #flush() {
    if (!this.live || !(this.waiting.at(-1)?.n > this.#sent)) return;
    for (const { n, ops } of this.waiting) {
      if (n <= this.#sent) continue;
      this.#sent = n;
      this.out.push({ t: "ops", room: this.room, n, ops });
    }
  }

  // Connection.

  // The first frame on a new connection: the position, and the unanswered steps.
  join() {
    this.lost();
    this.#known = Math.max(this.#known, this.#sent);
    const steps = [];
    let size = 0;
    for (const step of this.epoch ? this.waiting : []) {
      size += step.bytes + 32;
      if (size > JOIN_BYTES) break; // the others are sent after the join
      steps.push({ n: step.n, ops: step.ops });
    }
    this.#sent = steps.at(-1)?.n ?? 0;
    const { room, client, epoch, seq, digest, create } = this;
    const frame = { t: "join", room, client, epoch, seq, digest, steps: steps.length && steps, create };
    return Object.fromEntries(Object.entries(frame).filter(([, value]) => value));
  }

  lost() {
    this.live = false;
    this.#joined = this.#loading = null;
    this.out = [];
  }

  // Applies a state frame of the server; call `settle` after the last one for now. Throws for a
  // frame that cannot follow; call `heal` then, and join again.
  receive(frame) {
    const { t, n, seq } = frame;
    if (!this.#joined && t !== "joined") return; // a frame of an earlier membership
    if (t === "change") {
      this.#advance(frame);
      const mine = frame.client === this.client && this.waiting.some((step) => step.n === n);
      if (mine) this.#acked(n, seq);
      else this.#others(frame.ops, { user: frame.by ?? "", mine: false });
    } else if (t === "ack") {
      if (seq <= this.seq) return; // a duplicate of an earlier connection
      this.#advance(frame);
      this.#acked(n, seq);
    } else if (t === "refused") {
      // it crossed a `left`, and is sent with the next join
      if (frame.code === "not_joined") return;
      const error = fault(frame.code, frame.detail || "the room rejected it");
      this.#refused(this.waiting.filter((step) => step.n === n), error);
    } else if (t === "joined") {
      this.#joined = frame;
      if (frame.reset) this.#loading = new State();
      else if (frame.epoch !== this.epoch || seq < this.seq) {
        astray();
      }
    } else if (t === "snapshot") {
      this.#piece(frame);
    }
    if (!this.live && this.#joined && !this.#loading && this.seq >= this.#joined.seq) {
      this.live = true;
      this.#flush();
    }
  }

  // Applies reverted own steps again.
  raise() {
    if (!this.#lowered) return;
    this.#lowered = false;
    for (const step of this.#own()) {
      step.below = new Map();
      try {
        step.effects = this.#state.apply(step.ops);
        this.#note(step, step.effects);
      } catch (error) {
        if (!(error instanceof OncewardError)) throw error;
        step.effects = null;
      }
    }
    this.#tell();
  }

  // `raise`, and reports responses.
  settle() {
    this.raise();
    for (const [step, seq, error] of this.#answers.splice(0)) step.answer(seq, error);
  }

  // Discards the position after an error, so that the next join gets a snapshot. The outcome of
  // unanswered steps is unknown then.
  heal() {
    Object.assign(this, { epoch: "", seq: 0, digest: "" });
    this.lost();
    this.drop(fault("outcome_unknown", "the local replica of the room was invalid; read the room again"));
  }

  // Drops unanswered steps up to a number; neither they nor their numbers are sent again.
  drop(error, most = Infinity) {
    this.#refused(this.waiting.filter(({ n }) => n <= most), error);
    this.settle();
  }

  #advance({ seq, digest = "" }) {
    if (this.#loading || !this.#joined || seq !== this.seq + 1) {
      astray();
    }
    Object.assign(this, { seq, digest });
  }

  #piece(frame) {
    const [joined, state] = [this.#joined, this.#loading];
    if (!joined || !state) astray();
    state.load(frame);
    if (frame.more) return;
    this.#lower(NOBODY);
    for (const at of [...this.#state.places(), ...state.places()]) this.#seen(at, this.#state.get(at));
    this.#state = state;
    this.#loading = null;
    const { epoch, seq, digest = "" } = joined;
    Object.assign(this, { epoch, seq, digest });
    this.latest.clear();
    for (const step of this.waiting.filter(({ n }) => n <= joined.n)) {
      this.#answer([step], null, fate(step, joined));
    }
    if (joined.reset === "forgotten") {
      // Steps that are in this join for the first time were not applied: send them again.
      this.#sent = this.#known;
      this.drop(fault("outcome_unknown", "the server has no record of this client; read the room again"), this.#known);
    } else if (joined.reset === "epoch") {
      this.drop(fault("room_deleted", "the room was deleted and created again; join it again"));
    }
  }

  // State.

  #own() {
    return this.open ? [...this.waiting, this.open] : [...this.waiting];
  }

  // Reverts the own steps until `raise`, so that the state is the server's.
  #lower(cause) {
    this.#cause = cause;
    if (this.#lowered) return;
    this.#lowered = true;
    const own = this.#own();
    for (const { effects } of own) effects?.forEach((effect) => this.#seen(effect, this.#state.get(effect)));
    for (const step of own.reverse()) {
      if (!step.effects) continue;
      this.#state.revert(step.effects);
      for (const [place, below] of step.below) {
        if (below) this.latest.set(place, below);
        else this.latest.delete(place);
      }
    }
  }

  #others(ops, who) {
    this.#lower(who);
    for (const effect of this.#state.apply(ops)) {
      this.#saw(effect, who);
      if (!effect.aside) this.latest.delete(effect.place);
    }
  }

  #acked(n, seq) {
    const skipped = this.waiting.filter((step) => step.n < n);
    if (this.waiting[skipped.length]?.n !== n) {
      astray();
    }
    // A skipped step was rejected, and the response was lost.
    this.#refused(skipped, fault("bad_request", WHY_LOST));
    const [step] = this.waiting;
    if (this.#lowered) {
      step.effects = this.#state.apply(step.ops);
      step.below = new Map();
      this.#note(step, step.effects);
    } else if (!step.effects) {
      astray();
    } // otherwise it was applied directly on top of the server's state, so nothing changes
    this.#answer([step], seq);
  }

  #refused(steps, error) {
    if (!steps.length) return;
    this.#lower(this.#mine);
    this.#answer(steps, null, error);
  }

  #answer(steps, seq, error) {
    if (steps.length === 1 && this.waiting[0] === steps[0]) this.waiting.shift();
    else {
      const gone = new Set(steps);
      this.waiting = this.waiting.filter((step) => !gone.has(step));
    }
    for (const step of steps) {
      this.#bytes -= step.bytes;
      this.#answers.push([step, seq, error]);
    }
  }

  // Records a step as the latest at its places.
  #note(step, effects) {
    for (const { place, aside } of effects) {
      if (aside) continue;
      if (!step.below.has(place)) step.below.set(place, this.latest.get(place));
      this.latest.set(place, step);
    }
  }

  #seen(at, cell) {
    if (!this.#before.has(at.place)) this.#before.set(at.place, { at, cell });
  }

  #saw(effect, who) {
    this.#seen(effect, effect.old);
    this.#whose.set(effect.place, who);
  }

  // Reports places that have changed since the last report.
  #tell() {
    for (const [place, { at, cell }] of this.#before) {
      const now = this.#state.get(at);
      if (now === cell || (now && cell && now.position === cell.position && same(now.value, cell.value))) {
        continue;
      }
      const who = this.#whose.get(place) ?? this.#cause;
      const key = `${who.mine} ${who.user}`;
      if (!this.changed.has(key)) this.changed.set(key, { who, places: [] });
      this.changed.get(key).places.push(at);
    }
    this.#before.clear();
    this.#whose.clear();
  }
}

// The outcome of a step up to the highest applied number that is not in a replay.
function fate({ n }, { skipped = [], known = 0 }) {
  if (skipped.includes(n)) return fault("bad_request", WHY_LOST);
  return n < known ? fault("outcome_unknown", "the server no longer has the outcome of this step; read the room again") : null;
}
