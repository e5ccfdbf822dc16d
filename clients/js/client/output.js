// The output of a job: what a worker reports, written in the background, and what readers get.

import { ENDED } from "./operations.js";
import { encode, refuse } from "./values.js";

const PROGRESS_MS = 500;
const STREAM_MS = 200;
const TEXT_CHARS_MAX = 200;
const CHUNK_BYTES_MAX = 65_536;
const WAITING_BYTES_MAX = 65_536;
// How long one request waits on the server before the next one.
const WAIT_S = 20;

// The updates of a job from a position until its end.
export async function* follow(jobs, id, { after = 0, signal } = {}) {
  for (let known = ""; ; ) {
    const found = await jobs.output(id, { after, state: known, waitS: WAIT_S, signal });
    const { seq, state, more, restarted, attempt, chunks, progress, progressText: text, progressSeq } = found;
    const ended = ENDED.includes(state) && !more;
    if (state !== known && !ended) yield { kind: "state", seq: after, state };
    const updates = chunks.map((chunk) => ({ kind: "chunk", ...chunk, state, attempt }));
    if (restarted) updates.push({ kind: "restart", seq: restarted, state, attempt });
    if (after < progressSeq && progressSeq <= seq) updates.push({ kind: "progress", seq: progressSeq, state, progress, text });
    yield* updates.sort((one, other) => one.seq - other.seq);
    if (ended) {
      yield { kind: "end", seq, state, result: found.result ?? null, reason: found.reason };
      return;
    }
    [after, known] = [seq, state];
  }
}

// Values wait for the next request: the first one at once, later ones in intervals. `flush` sends the rest.
export class Output {
  #send;
  #progress = null;
  #chunks = [];
  #first = 0;
  #bytes = 0;
  #wrote = -Infinity;
  #timer = 0;
  #hurries = false;
  #writing = null;
  #error = null;

  constructor(send) {
    this.#send = send;
  }

  async progress(fraction, text = "") {
    if (typeof fraction !== "number" || !(fraction >= 0 && fraction <= 1)) {
      refuse("bad_request", `a progress must be a number from 0 to 1, not ${fraction}`);
    }
    if (typeof text !== "string" || text.length > TEXT_CHARS_MAX) {
      refuse("bad_request", `the text of a progress must have at most ${TEXT_CHARS_MAX} characters`);
    }
    this.#goOn();
    this.#progress = { progress: fraction, text };
    this.#plan();
  }

  async stream(chunk) {
    const bytes = new TextEncoder().encode(encode(chunk ?? null)).length;
    if (bytes > CHUNK_BYTES_MAX) {
      refuse("value_too_large", `a chunk of a stream must have at most ${CHUNK_BYTES_MAX} bytes as JSON, not ${bytes}`);
    }
    this.#goOn();
    this.#chunks.push(chunk ?? null);
    this.#bytes += bytes;
    if (this.#bytes > WAITING_BYTES_MAX) await this.flush();
    else this.#plan();
  }

  async flush() {
    while (this.#chunks.length || this.#progress || this.#writing) {
      this.#stopTimer();
      const trouble = await (this.#writing ?? this.#write());
      if (trouble && this.#chunks.length) throw trouble;
      if (trouble) this.#progress = null; // not worth the failure of an attempt
    }
    this.#goOn();
  }

  close() {
    this.#stopTimer();
    this.#drop();
  }

  #goOn() {
    if (this.#error) throw this.#error;
  }

  #drop() {
    [this.#chunks, this.#progress, this.#bytes] = [[], null, 0];
  }

  #plan() {
    if (this.#writing || (this.#timer && (this.#hurries || !this.#chunks.length))) return;
    this.#stopTimer();
    this.#hurries = this.#chunks.length > 0;
    const pauseMs = this.#wrote + (this.#hurries ? STREAM_MS : PROGRESS_MS) - performance.now();
    this.#timer = setTimeout(() => this.#write(), Math.max(pauseMs, 0));
  }

  #stopTimer() {
    clearTimeout(this.#timer);
    this.#timer = 0;
  }

  #write() {
    this.#timer = 0;
    this.#writing = this.#sent().finally(() => {
      this.#writing = null;
      this.#wrote = performance.now();
      if (this.#chunks.length || this.#progress) this.#plan();
    });
    return this.#writing;
  }

  // Sends what waits; resolves with the error if a later request may succeed.
  async #sent() {
    const [chunks, progress, bytes] = [[...this.#chunks], this.#progress, this.#bytes];
    try {
      await this.#send({ ...progress, chunks, first: this.#first });
    } catch (error) {
      if (error.retry) return error;
      this.#error = error;
      this.#drop();
      return null;
    }
    this.#chunks.splice(0, chunks.length);
    this.#first += chunks.length;
    this.#bytes -= bytes;
    if (this.#progress === progress) this.#progress = null;
    return null;
  }
}
