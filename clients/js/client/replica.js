// One client's copy of a room: frames in, frames out, and what a person sees at once. It knows no
// connection, no time and no chance. The state is what the server has told up to the position, with
// one's own steps that have no answer yet on top: when a change of others comes, they are taken
// back, the change is applied, and they are applied again.

import { OncewardError } from "./errors.js";
import { State } from "./state.js";
import { Step, admitStep } from "./steps.js";
import { fault, refuse, same } from "./values.js";

const WAITING_MAX = 10_000;
const WAITING_BYTES = 16 << 20;
// What a join brings along besides steps has room in what is left of a frame.
const JOIN_BYTES = (1 << 20) - 64_000;
const WHY_LOST = "the room refused it, and why was lost";
const NOBODY = { user: "", mine: false };

// Something came that cannot follow what came before.
const astray = () => refuse("bad_request", "this copy of the room has gone astray");

export class Replica {
  user = "";
  epoch = "";
  seq = 0;
  digest = ""; // as it came with `seq`: only the server knows what it means
  waiting = []; // own steps without an answer, in order
  open = null; // a batch that is being made; it is on top of all
  latest = new Map(); // by place: whose change is the latest, where it is one of this client's
  live = false; // whether all up to the server's position has come, on this connection
  out = []; // frames to be sent, on this connection
  changed = new Map(); // what a person is to be told: who has changed which places
  #state = new State();
  #n = 0;
  #bytes = 0;
  #sent = 0;
  #known = 0; // the highest number that the server may have heard of before this connection
  #joined = null;
  #loading = null;
  #lowered = false; // whether the own steps are taken back for now
  #before = new Map(); // by place: what was seen there when it was last told …
  #whose = new Map(); // … and by whom it has changed since
  #cause = NOBODY;
  #answers = [];

  constructor(room, client, create = false) {
    Object.assign(this, { room, client, create });
  }

  // What a person sees.
  get state() {
    this.raise();
    return this.#state;
  }

  get #mine() {
    return { user: this.user, mine: true };
  }

  // What happens here.

  // Applies operations at once, and sends them when that is possible. Throws if they cannot be a
  // step, or are refused as things look from here; nothing changes then.
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

  // Begins a batch: what is changed until `commit` or `abort` is one step.
  begin() {
    if (this.open) refuse("bad_request", "a batch is being made: they cannot be in each other");
    this.raise();
    return (this.open = new Step());
  }

  // Sends what was done since `begin` as one step; it may be nothing. Throws, and nothing of it
  // stays, if it cannot be one, or does not go with what others did.
  commit() {
    this.raise();
    const step = this.open;
    let size = 0;
    try {
      if (!step.effects) refuse("not_expected", "what others did does not go with the batch");
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
    step.answer(null, fault("bad_request", "the batch was given up"));
  }

  #admitMore(size) {
    if (this.waiting.length >= WAITING_MAX || this.#bytes + size > WAITING_BYTES) {
      refuse("overloaded", "too many changes wait for an answer of the server");
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

  // What the connection does.

  // The frame to send first on a new connection: the position, and the steps without answer.
  join() {
    this.lost();
    this.#known = Math.max(this.#known, this.#sent);
    const steps = [];
    let size = 0;
    for (const step of this.epoch ? this.waiting : []) {
      size += step.bytes + 32;
      if (size > JOIN_BYTES) break; // the rest is sent when it is joined
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

  // Takes what the server says of the state; `settle` when there is no more for now. Throws for
  // what cannot follow: then `heal`, and join again.
  receive(frame) {
    const { t, n, seq } = frame;
    if (!this.#joined && t !== "joined") return; // of the time before, and was under way
    if (t === "change") {
      this.#advance(frame);
      const mine = frame.client === this.client && this.waiting.some((step) => step.n === n);
      if (mine) this.#acked(n, seq);
      else this.#others(frame.ops, { user: frame.by ?? "", mine: false });
    } else if (t === "ack") {
      if (seq <= this.seq) return; // it came twice, over an old connection too
      this.#advance(frame);
      this.#acked(n, seq);
    } else if (t === "refused") {
      if (frame.code === "not_joined") return; // it crossed a `left`, and goes with the next join
      const error = fault(frame.code, frame.detail || "the room refused it");
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

  // Applies the own steps again that are not applied.
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

  // The same, and tells what was answered.
  settle() {
    this.raise();
    for (const [step, seq, error] of this.#answers.splice(0)) step.answer(seq, error);
  }

  // Forgets the position, because something is wrong: the next join gets a snapshot. Nobody knows
  // then whether steps without answer were taken.
  heal() {
    Object.assign(this, { epoch: "", seq: 0, digest: "" });
    this.lost();
    this.drop(fault("outcome_unknown", "this copy of the room has gone astray"));
  }

  // Gives up the steps without answer, up to a number: they are not sent again, nor are their
  // numbers.
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
      // What goes with this join for the first time was not taken: it is sent again.
      this.#sent = this.#known;
      this.drop(fault("outcome_unknown", "the server has forgotten this client"), this.#known);
    } else if (joined.reset === "epoch") {
      this.drop(fault("room_deleted", "the room was deleted, and made again"));
    }
  }

  // How the state is kept.

  #own() {
    return this.open ? [...this.waiting, this.open] : [...this.waiting];
  }

  // Takes the own steps back, until `raise`: the state is what the server has told.
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
    // A step that was skipped was refused, and the answer was lost.
    this.#refused(skipped, fault("bad_request", WHY_LOST));
    const [step] = this.waiting;
    if (this.#lowered) {
      step.effects = this.#state.apply(step.ops);
      step.below = new Map();
      this.#note(step, step.effects);
    } else if (!step.effects) {
      astray();
    } // else it was applied right on top of what the server has told: so nothing changes
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

  // Its changes are the latest now.
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

  // Notes what looks other than when it was last told.
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

// What became of a step that is not above the highest one taken, and not in a replay.
function fate({ n }, { skipped = [], known = 0 }) {
  if (skipped.includes(n)) return fault("bad_request", WHY_LOST);
  return n < known ? fault("outcome_unknown", "it was taken or refused too long ago to tell") : null;
}
