// Rooms: members, contents and history.

import { get, part, query as ask, remove, repeat } from "./api.js";
import { ask as confirm, doing, h, keyed, once, put, table, tell } from "./dom.js";
import { brief, count, exactly, plural, pretty, time } from "./format.js";

const MOST = 200; // maximum number of shown values of a map or list

export function page(where) {
  return where.rest.length ? one(where) : all(where);
}

function all({ query }) {
  const box = h("input", { id: "prefix", type: "search", autocomplete: "off", spellcheck: "false",
    placeholder: "start of an id", value: query.get("prefix") ?? "" });
  const list = table("Rooms", [
    { name: "Room", kind: "name", update: once((cell, room) => {
      cell.append(h("a", { href: `#/rooms/${part(room.id)}` }, room.id));
    }) },
    { name: "Members", kind: "number", show: (room) => room.members || "–" },
    { name: "Created", kind: "number", show: (room) => time(room.created_ms) },
    { name: "By", show: (room) => room.by || "the application" },
    { name: "Metadata", kind: "wide", show: (room) => (Object.keys(room.meta).length ? brief(room.meta) : "") },
  ], (room) => room.id, "No rooms.");
  const more = doing("Load more rooms", () => look(next));
  let found = [], next = null;
  async function look(after) {
    const page = await get(ask("v1/rooms", { prefix: box.value.trim(), after, limit: 100 }));
    found = after ? found.concat(page.rooms) : page.rooms;
    next = page.next;
    list.update(found);
    more.hidden = !next;
  }
  const form = h("form.search", { role: "search", onsubmit: (event) => {
    event.preventDefault();
    history.replaceState(null, "", ask("#/rooms", { prefix: box.value.trim() }));
    look().catch((error) => tell(error.message, true));
  } }, h("label", { for: "prefix" }, "Find"), box, h("button", { type: "submit" }, "Search"));
  look().catch((error) => tell(error.message, true));
  const element = h("div.page", h("div.head", h("h1", { tabindex: "-1" }, "Rooms")), form, list.element, more);
  return { title: "Rooms", element, stop() {} };
}

function one({ rest: [id], trouble }) {
  const path = `v1/rooms/${part(id)}`;
  const facts = h("dl.facts"), people = h("ul.people"), nobody = h("p.faint", "No members.");
  const values = h("div"), steps = h("ol.story"), wrong = h("p.wrong", { role: "alert" });
  const slider = h("input.slider", { id: "at", type: "range", min: 0, max: 0, value: 0, step: 1 });
  const at = h("output", { for: "at" }), now = doing("Show live", async () => {
    past = null;
    slider.value = slider.max;
    await refresh(true);
  });
  let past = null, seq = -1, floor = 0, last = null;
  let asked = 0;
  slider.addEventListener("input", () => {
    past = Number(slider.value) === seq ? null : Number(slider.value);
    look().catch((error) => tell(error.message, true));
  });

  async function refresh(always = false) {
    let room;
    try {
      room = await get(path);
    } catch (error) {
      if (error.status !== 404) throw error;
      put(wrong, error.message);
      live.stop();
      return;
    }
    const members = await get(`${path}/members`);
    nobody.hidden = members.members.length > 0;
    keyed(people, members.members, (one) => one.id, (one) => ({ element: h(one.id ? "li.chip.live" : "li.chip", one.user) }));
    if (always || room.seq !== seq || room.epoch !== last?.epoch) {
      seq = room.seq;
      floor = room.floor;
      last = room;
      slider.min = floor;
      slider.max = seq;
      if (past === null) slider.value = seq;
      facts.replaceChildren(...[["Steps", count(seq)], ["Created", exactly(room.created_ms)], ["By", room.by || "the application"],
        ["Capacity", `${count(room.capacity)} users, ${count(room.per_user)} connections each`], ["Metadata", Object.keys(room.meta).length ? brief(room.meta) : null]]
        .filter(([, value]) => value).map(([name, value]) => h("div", h("dt", name), h("dd", value))));
      if (past === null) await look();
    }
  }

  async function look() {
    const mine = ++asked;
    const point = past ?? seq;
    now.hidden = past === null;
    put(at, past === null ? `step ${count(seq)}, live` : `as it was at step ${count(past)} of ${count(seq)}`);
    const [whole, history] = await Promise.all([
      get(ask(`${path}/snapshot`, { at: past })),
      get(ask(`${path}/history`, { since: Math.max(point - 12, floor), limit: 12 })),
    ]);
    if (mine !== asked) return;
    values.replaceChildren(...Object.entries(whole.maps).map(([name, map]) => inside("Map", name,
      Object.entries(map).map(([key, value]) => [key, value]))),
    ...Object.entries(whole.lists).map(([name, list]) => inside("List", name,
      list.map(([, , value], number) => [String(number + 1), value]))));
    if (!values.children.length) values.append(h("p.none", "The room is empty."));
    steps.replaceChildren(...history.entries.reverse().map((entry) => h("li.step",
      h("div.row", h("span.strong", `Step ${entry.seq}`), h("span.faint", entry.by ? `by ${entry.by}` : "by the application"),
        h("time.faint", exactly(entry.at_ms))),
      entry.ops.slice(0, 5).map((op) => h("p.reason", words(op))),
      entry.ops.length > 5 ? h("p.faint", `and ${plural(entry.ops.length - 5, "more")}`) : null)));
  }

  const erase = doing("Delete room", async () => {
    if (!await confirm(`Delete ${id}?`, "This deletes the room with its contents and history, and disconnects its members. It cannot be undone.", "Delete room")) return;
    await remove(path);
    tell(`Deleted ${id}.`);
    location.hash = "#/rooms";
  }, "danger");
  const live = repeat(refresh, 1000, trouble);
  const element = h("div.page", h("p.trail", h("a", { href: "#/rooms" }, "Rooms")),
    h("div.head", h("h1", { tabindex: "-1" }, id), h("div.row", erase)), wrong, facts,
    h("h2", "Members"), people, nobody,
    h("h2", "Contents"),
    h("div.row", h("label", { for: "at" }, "History"), h("span.grow", slider), at, now),
    h("div.two", values, h("div.values", h("h2", "Steps"), steps)));
  return { title: id, element, stop: () => live.stop() };
}

/** An operation in one line. */
function words({ op, map, list, key, value, by, ...rest }) {
  switch (op) {
    case "map.set": return `${map}.${key} = ${brief(value)}`;
    case "map.add": return `${map}.${key} ${by < 0 ? "−" : "+"} ${Math.abs(by)}`;
    case "map.delete": return `${map}.${key} deleted`;
    case "list.insert": return `${list} gets ${brief(value)}`;
    default: return `${op} ${map ?? list ?? ""} ${brief({ key, value, ...rest })}`;
  }
}

function inside(kind, name, pairs) {
  const shown = pairs.length > MOST ? `, the first ${MOST}` : "";
  return h("section.inside", h("h3", `${kind} ${name}`, " ", h("span.faint", plural(pairs.length, "value") + shown)),
    h("div.scroll", { tabindex: "0", role: "region", "aria-label": `${kind} ${name}` },
      h("table", h("tbody", pairs.slice(0, MOST).map(([key, value]) =>
        h("tr", h("th", { scope: "row" }, key), h("td.plainly", pretty(value))))))));
}
