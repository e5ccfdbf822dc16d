// The live place of a user at a table, computed from the table's room without polling.
//
// A waiter has a number. The room has the count of waiters that left each lane, and the last of their
// numbers: each lower number moves the user up by one. The place is requested only if more have left
// than the room lists, after a long disconnection, and when the role of the user changes.

import { call, hooked, same } from "./values.js";

export class LivePlace {
  #tables;
  #room;
  #hooks = new Set();
  #ends;
  #asking = false;
  #again = false;
  #came = 0; // how many had joined the waitlist when the place was requested

  constructor(tables, room, place) {
    this.place = place;
    this.#tables = tables;
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

  // The place by the room; null if it must be requested.
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
    const { number: own = 0 } = place; // a 0 is not sent
    const since = lane.went - (place.went ?? 0);
    if (since < 0 || since > lane.gone.length) return null;
    const went = lane.gone.slice(lane.gone.length - since);
    if (went.includes(own)) return null;
    const position = place.position - went.filter((number) => number < own).length;
    const before = Object.values(lanes)
      .filter(({ priority, tier }) => priority < lane.priority && tier === lane.tier)
      .reduce((sum, { waiting, size }) => sum + waiting * size, 0);
    const alike = (other) => other !== lane && other.priority === lane.priority && other.tier === lane.tier;
    // Parties of other sizes are in between; the last response has their number.
    const mixed = Object.values(lanes).some((other) => alike(other) && other.waiting);
    const ahead = mixed
      ? Math.max((place.ahead ?? 0) - (place.position - position) * lane.size, 0)
      : (position - 1) * lane.size + before;
    const { waiting = place.waiting } = this.#room.map("table").get("state", {});
    const found = { ...place, position, went: lane.went, ahead, waiting };
    return Object.keys(found).every((name) => found[name] === place[name]) ? place : found;
  }

  // Whether the user may have joined the waitlist by another connection since the last request. The
  // names in the room show it, unless more users wait.
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
        this.place = await this.#tables.place(before.table, { user: before.user });
        // Later changes of the room count in addition.
        const counted = this.#counted();
        if (counted && !same(counted, before)) this.#tell(counted);
      }
    } catch (error) {
      console.warn(`cannot get the place at ${this.place.table}:`, error);
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
