// Two small live views: the table of the bots and the board. Both are rooms.

import { h, put } from "/console/dom.js";
import { Live } from "/client.js";

const NOTE = 200; // the size of a note on the board, in both directions
const byId = (id) => document.getElementById(id);

export async function watch() {
  const live = new Live(null, { token: "dev:visitor" });
  await Promise.allSettled([watchTable(live), watchBoard(live)]);
}

async function watchTable(live) {
  await fetch("/tictactoe/tables"); // creates the tables
  const room = await live.join("table:bots");
  const cells = Array.from({ length: 9 }, () => h("span"));
  const seats = ["X", "O"].map((marker) => ({ marker, element: h("p") }));
  const line = h("p.faint");
  byId("table").replaceChildren(h("div.grid", cells), h("div.seats", seats.map(({ element }) => element), line));
  const draw = () => {
    const game = room.map("game").get("now") ?? room.map("game").get("last");
    cells.forEach((cell, number) => {
      const shown = game?.state[number] ?? "";
      put(cell, shown);
      cell.dataset.mark = shown;
    });
    for (const { marker, element } of seats) {
      const seat = room.map("seats").get(marker);
      put(element, `${marker}  ${seat?.user ?? "empty"}`);
      element.classList.toggle("turn", Boolean(seat?.turn));
    }
    put(line, `${room.map("table").get("state")?.waiting ?? 0} waiting`);
  };
  for (const name of ["game", "seats", "table"]) room.map(name).subscribe(draw);
  draw();
}

async function watchBoard(live) {
  // The room exists after the first visit, and the board's page issues tickets.
  const answer = await fetch("/board/welcome/ticket", {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ name: "visitor" }),
  });
  const room = await live.join((await answer.json()).room);
  const sight = byId("board");
  const notes = new Map();
  const cursors = new Map();
  const draw = () => {
    const items = room.list("notes").items();
    const places = room.map("places").whole();
    const people = Object.entries(room.presence("people").all()).filter(([, { x }]) => x !== undefined);
    const fit = fitting(Object.values(places), sight);
    each(notes, sight, items, ({ id }) => id, "i", (note, { id, value }) => {
      note.dataset.colour = value.colour;
      put(note, room.map("texts").get(id) ?? "");
      place(note, fit(places[id] ?? { x: 0, y: 0 }), NOTE * fit.scale);
    });
    each(cursors, sight, people, ([user]) => user, "b", (cursor, [, { name, x, y }]) => {
      put(cursor, name);
      place(cursor, fit({ x, y }));
    });
  };
  room.list("notes").subscribe(draw);
  for (const name of ["places", "texts"]) room.map(name).subscribe(draw);
  room.presence("people").subscribe(draw);
  draw();
}

/** Maps positions on the board to a small window that shows all notes. */
function fitting(places, { clientWidth: wide, clientHeight: high }) {
  const xs = places.map(({ x }) => x), ys = places.map(({ y }) => y);
  const [left, top] = [Math.min(-400, ...xs) - 40, Math.min(-260, ...ys) - 30];
  const [right, bottom] = [Math.max(400, ...xs.map((x) => x + NOTE)) + 40, Math.max(300, ...ys.map((y) => y + NOTE)) + 30];
  const scale = Math.min(wide / (right - left), high / (bottom - top));
  const [x0, y0] = [(wide - (right - left) * scale) / 2, (high - (bottom - top) * scale) / 2];
  return Object.assign(({ x, y }) => ({ x: x0 + (x - left) * scale, y: y0 + (y - top) * scale }), { scale });
}

/** An element for each item, kept while the item exists. */
function each(known, parent, items, key, tag, update) {
  const seen = new Set(items.map(key));
  for (const [name, element] of known) {
    if (!seen.has(name)) {
      element.remove();
      known.delete(name);
    }
  }
  for (const item of items) {
    const name = key(item);
    if (!known.has(name)) known.set(name, parent.appendChild(h(tag)));
    update(known.get(name), item);
  }
}

function place(element, { x, y }, size = null) {
  element.style.left = `${x.toFixed(1)}px`;
  element.style.top = `${y.toFixed(1)}px`;
  if (size !== null) element.style.width = element.style.height = `${size.toFixed(1)}px`;
}
