// One's own place at a table, live: from the table's room, without asking again and again.
//
// Whoever waits knows its number. The room tells how many have gone from each lane, and the numbers of
// the last ones: each lower one since is one place less. Only when more have gone than are told, after
// a long time away, or when one's role changes, is the place asked for.

import { call, hooked, same } from "./values.js";

export class Standing {
  #calls;
  #room;
  #hooks = new Set();
  #ends;
  #asking = false;
  #again = false;
  #came = 0; // how many had come to the waitlist when the place was asked for

  constructor(calls, room, place) {
    this.place = place;
    this.#calls = calls;
    this.#room = room;
    this.#ends = ["line", "seats", "table", "waitlist"].map((name) => room.map(name).subscribe(() => this.#changed()));
    this.#changed();
  }

  subscribe(hook) {
    return hooked(this.#hooks, hook);
  }

  close() {
    for (const end of this.#ends.splice(0)) end();
    this.#hooks.clear();
  }

  get waitMs() {
    const { pace_ms: paceMs = 0, paced_ms: pacedMs = 0, paused_ms: nowMs = Date.now() } =
      this.#room.map("table").get("state", {});
    return (this.place.ahead ?? 0) * paceMs + Math.max(paceMs - (nowMs - pacedMs), 0);
  }

  #changed() {
    const place = this.#counted();
    if (!place) this.#ask();
    else if (place !== this.place) this.#tell(place);
  }

  // The place as the room says; null if it has to be asked for.
  #counted() {
    const { place } = this;
    const seats = Object.entries(this.#room.map("seats").whole());
    const marker = seats.find(([, seat]) => seat?.user === place.user)?.[0];
    if (place.role === "seated") return marker === place.marker ? place : null;
    if (marker !== undefined) return null;
    if (place.role !== "waiting") return this.#mayWait() ? null : place;
    const lanes = this.#room.map("line").whole();
    const lane = lanes[place.lane];
    if (!lane) return null;
    const { number: own = 0 } = place; // what is 0 is not sent
    const since = lane.went - (place.went ?? 0);
    if (since < 0 || since > lane.gone.length) return null;
    const went = lane.gone.slice(lane.gone.length - since);
    if (went.includes(own)) return null;
    const position = place.position - went.filter((number) => number < own).length;
    const before = Object.values(lanes)
      .filter(({ priority, tier }) => priority < lane.priority && tier === lane.tier)
      .reduce((sum, { waiting, size }) => sum + waiting * size, 0);
    const alike = (other) => other !== lane && other.priority === lane.priority && other.tier === lane.tier;
    // Parties of other sizes come in between; the server has told how many.
    const mixed = Object.values(lanes).some((other) => alike(other) && other.waiting);
    const ahead = mixed
      ? Math.max((place.ahead ?? 0) - (place.position - position) * lane.size, 0)
      : (position - 1) * lane.size + before;
    const { waiting = place.waiting } = this.#room.map("table").get("state", {});
    const found = { ...place, position, went: lane.went, ahead, waiting };
    return Object.keys(found).every((name) => found[name] === place[name]) ? place : found;
  }

  // Whether one may have joined the waitlist, by another connection, since the place was asked for.
  // Names that are shown say so, unless more people wait.
  #mayWait() {
    const { came = 0, waiting = 0 } = this.#room.map("table").get("state", {});
    if (came === this.#came) return false;
    const names = Object.values(this.#room.map("waitlist").whole()).flatMap(({ users = [] }) => users);
    return names.includes(this.place.user) || names.length < waiting;
  }

  async #ask() {
    this.#again = true;
    if (this.#asking) return;
    this.#asking = true;
    try {
      while (this.#again && this.#ends.length) {
        this.#again = false;
        this.#came = this.#room.map("table").get("state", {}).came ?? 0;
        const before = this.place;
        this.place = await this.#calls.place(before.table, { user: before.user });
        // What the room has told since is counted on top.
        const counted = this.#counted();
        if (counted && !same(counted, before)) this.#tell(counted);
      }
    } catch (error) {
      console.warn(`a place at ${this.place.table} is not known:`, error);
    } finally {
      this.#asking = false;
    }
  }

  #tell(place) {
    this.place = place;
    place.waitMs = place.role === "waiting" ? this.waitMs : 0;
    call(this.#hooks, place);
  }
}
