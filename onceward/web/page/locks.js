// Locks: holders, waiters and fencing tokens.

import { get, part, query as ask, repeat } from "./api.js";
import { h, mark, once, put, table } from "./dom.js";
import { ago, count } from "./format.js";

export function page({ rest, trouble }) {
  const chosen = rest[0];
  const list = table("Locks", [
    { name: "Lock", kind: "name", update: once((cell, lock) => {
      cell.append(h("a", { href: `#/locks/${part(lock.name)}` }, lock.name));
    }) },
    { name: "Held", kind: "number", show: (lock) => (lock.capacity === 1 ? (lock.held ? "held" : "free") : `${lock.held} of ${lock.capacity}`) },
    { name: "Waiting", kind: "number", update: (cell, lock) => mark(put(cell, count(lock.waiting)), "warn", lock.waiting > 10) },
    { name: "Newest token", kind: "number", show: (lock) => lock.token },
    { name: "Used", kind: "number", show: (lock) => ago(lock.used_ms, Date.now()) },
  ], (lock) => lock.name, "No locks in use.");
  const people = (label, what, empty) => table(label, [
    { name: "Owner", kind: "name", show: (one) => one.owner || "(no name)" },
    { name: what, kind: "number", show: (one) => one.place ?? one.number },
    { name: "Since", kind: "number", show: (one) => ago(one.since_ms, Date.now()) },
  ], (one) => one.number, empty);
  const holders = people("Holders", "Token", "The lock is free.");
  const waiters = people("Waiters, in order", "Place", "No waiters.");
  const gone = h("p.none", { hidden: true }, "This lock is not in use.");
  const detail = chosen === undefined ? null : h("section", h("h2", chosen), gone,
    h("div.two", h("div", h("h3", "Holders"), holders.element), h("div", h("h3", "Waiting"), waiters.element)));
  const live = repeat(async () => {
    list.update((await get(ask("v1/locks", { limit: 200 }))).locks);
    if (chosen === undefined) return;
    try {
      const lock = await get(`v1/locks/${part(chosen)}`);
      gone.hidden = true;
      holders.update(lock.holders);
      waiters.update(lock.waiters.map((one, number) => ({ ...one, place: number + 1 })));
    } catch (error) {
      if (error.status !== 404) throw error;
      gone.hidden = false;
      holders.update([]);
      waiters.update([]);
    }
  }, 1000, trouble);
  const element = h("div.page", h("div.head", h("h1", { tabindex: "-1" }, "Locks")),
    h("p.faint", "Each grant of a lock has a larger fencing token. A resource can reject writes with an older one."),
    detail, detail && h("h2", "All locks"), list.element);
  return { title: chosen ?? "Locks", element, stop: () => live.stop() };
}
