// The slider: the board at any step in the room's history.

import { nameOf, notesAsOf } from "./model.js";
import { toast } from "./view.js";

const PLAY_MS = 50;
const PLAY_STEPS = 200; // maximum number of steps of a playback

const byId = (id) => document.getElementById(id);

export class Past {
  notes = null; // notes of the shown step; null if live
  #room;
  #client;
  #show;
  #wanted = null;
  #shown = null;
  #busy = false;
  #playing = null;
  #seen = new Map(); // loaded snapshots by step

  /** `client()` calls the server, `show()` is called when `notes` have changed. */
  constructor(room, client, show) {
    this.#room = room;
    this.#client = client;
    this.#show = show;
    byId("slider").addEventListener("input", () => {
      this.#pause();
      this.#go(Number(byId("slider").value));
    });
    byId("play").addEventListener("click", () => (this.#playing ? this.#pause() : this.#play()));
    byId("leave").addEventListener("click", () => this.close());
  }

  get open() {
    return !byId("past").hidden;
  }

  async enter() {
    let info;
    try {
      info = await this.#client().rooms.get(this.#room);
    } catch (error) {
      return toast(`Cannot load the history: ${error.message}`, true);
    }
    const slider = byId("slider");
    slider.min = info.floor;
    slider.max = info.seq;
    slider.value = info.seq;
    byId("past").hidden = false;
    byId("bar").hidden = true;
    slider.focus({ preventScroll: true });
    this.#go(info.seq);
  }

  close() {
    if (!this.open) return;
    this.#pause();
    this.#wanted = this.#shown = this.notes = null;
    this.#seen.clear();
    byId("past").hidden = true;
    byId("bar").hidden = false;
    this.#show();
  }

  #play() {
    const slider = byId("slider");
    const [least, most] = [Number(slider.min), Number(slider.max)];
    if (Number(slider.value) >= most) slider.value = least;
    const stride = Math.max(1, Math.ceil((most - least) / PLAY_STEPS));
    this.#playing = setInterval(() => {
      if (this.#busy) return; // one request at a time
      slider.value = Math.min(Number(slider.value) + stride, most);
      this.#go(Number(slider.value));
      if (Number(slider.value) >= most) this.#pause();
    }, PLAY_MS);
    this.#button("stop", "Stop");
  }

  #pause() {
    clearInterval(this.#playing);
    this.#playing = null;
    this.#button("play", "Play");
  }

  #button(icon, title) {
    byId("play").title = title;
    byId("play").querySelector("use").setAttribute("href", `#i-${icon}`);
  }

  // Of the steps requested during a load, only the last is loaded.
  async #go(step) {
    this.#wanted = step;
    if (this.#busy) return;
    this.#busy = true;
    try {
      while (this.#wanted !== null && this.#wanted !== this.#shown) {
        const at = this.#wanted;
        const found = this.#seen.get(at) ?? (await this.#load(at));
        this.#seen.set(at, found);
        if (this.#wanted === null) return;
        this.#shown = at;
        this.notes = found.notes;
        byId("when").textContent = found.when;
        this.#show();
      }
    } catch (error) {
      toast(`Cannot load this step: ${error.message}`, true);
    } finally {
      this.#busy = false;
    }
  }

  async #load(at) {
    const { rooms } = this.#client();
    const first = Number(byId("slider").min);
    const [state, { entries }] = await Promise.all([
      rooms.snapshot(this.#room, { at }),
      at > first ? rooms.history(this.#room, { since: at - 1, limit: 1 }) : { entries: [] },
    ]);
    return { notes: notesAsOf(state), when: this.#told(at, entries[0]) };
  }

  #told(at, step) {
    const of = `Step ${at} of ${byId("slider").max}`;
    if (!step) return at ? of : "At the start";
    const time = new Date(step.atMs).toLocaleTimeString();
    return `${of} · ${time}${step.by ? ` · ${nameOf(step.by)}` : ""}`;
  }
}
