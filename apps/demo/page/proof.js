// Acknowledged messages and their effects: figures, the last minute, and events.

import { h, keyed, mark, put, s } from "/console/dom.js";
import { count, time } from "/console/format.js";

const BEATS = 60;
const WIDE = 600;
const HIGH = 96;
const LEAST = 6; // so that a few messages do not look like many
const byId = (id) => document.getElementById(id);

const KINDS = {
  orders: ["Orders", "sent with duplicates, turned into parcels, delivered to a carrier by workers"],
  timers: ["Timers", "created by a program, and received by it"],
};
const FIGURES = {
  acknowledged: "acknowledged",
  in_effect: "took effect",
  under_way: "in progress",
  lost: "lost",
  doubled: "doubled",
  stopped: "duplicates stopped",
};
const PROOF = ["lost", "doubled"];

const cells = {};
for (const [kind, [name, how]] of Object.entries(KINDS)) {
  cells[kind] = {};
  const list = h("dl.figures", Object.entries(FIGURES).map(([figure, label]) => {
    const value = h("dd", { id: `${kind}-${figure}` }, "0");
    cells[kind][figure] = h("div", h("dt", label), value);
    return cells[kind][figure];
  }));
  byId("kinds").append(h("div.kind", h("h3", `${name} `, h("span", how)), list));
}

const bars = Array.from({ length: BEATS }, (_, number) => {
  const x = (number * WIDE) / BEATS;
  const width = WIDE / BEATS - 2;
  const bar = {
    soft: s("rect.cut.soft", { x, width: width + 2, y: 0, height: HIGH, visibility: "hidden" }),
    up: s("rect.up", { x: x + 1, width, y: HIGH / 2, height: 0 }),
    down: s("rect.down", { x: x + 1, width, y: HIGH / 2, height: 0 }),
    cut: s("rect.cut", { x: x + 1, width, y: HIGH / 2 - 4, height: 8, visibility: "hidden" }),
  };
  byId("beats").append(...Object.values(bar));
  return bar;
});
byId("beats").append(s("rect.middle", { x: 0, width: WIDE, y: HIGH / 2 - 0.5, height: 1 }));

export function showProof({ orders, timers, beats, events, traffic, late_ms: late }) {
  for (const [kind, counts] of Object.entries({ orders, timers })) {
    for (const [figure, cell] of Object.entries(cells[kind])) {
      put(cell.lastChild, count(counts[figure]));
      if (PROOF.includes(figure)) {
        mark(cell, "fine", counts[figure] === 0);
        mark(cell, "amiss", counts[figure] > 0);
      }
    }
  }
  put(byId("verdict"), verdict(orders, timers, traffic));
  document.querySelector("#kinds .kind:last-child h3 span").textContent = late === null ? KINDS.timers[1]
    : `${KINDS.timers[1]}; median ${late.toFixed(1)} ms late`;
  draw(beats);
  keyed(byId("events"), [...events].reverse(), (event) => event.number, ({ at_ms: at, text, mood }) => ({
    element: h("li", h("time", time(at)), h(`span.${mood}`, text)),
  }));
}

function verdict(...books) {
  const traffic = books.pop();
  const sum = (figure) => books.reduce((total, book) => total + book[figure], 0);
  const wrong = [[sum("lost"), "lost"], [sum("doubled"), "doubled"]].filter(([number]) => number > 0);
  if (wrong.length) return `${wrong.map(([number, what]) => `${count(number)} ${what}`).join(", ")}: a guarantee is violated`;
  if (sum("acknowledged") === 0) return traffic ? "Counting" : "No messages sent yet";
  return "Nothing lost, nothing doubled";
}

/** Upwards the acknowledged messages of each second, downwards their effects. */
function draw(beats) {
  const most = Math.max(LEAST, ...beats.map(([up, down]) => Math.max(up, down)));
  const high = (value) => (value / most) * (HIGH / 2 - 4);
  bars.forEach((bar, number) => {
    const [up, down, killed] = beats[number - BEATS + beats.length] ?? [0, 0, ""];
    set(bar.up, "y", HIGH / 2 - high(up));
    set(bar.up, "height", high(up));
    set(bar.down, "height", high(down));
    set(bar.cut, "visibility", killed ? "visible" : "hidden");
    set(bar.soft, "visibility", killed === "server" ? "visible" : "hidden");
  });
  const total = beats.reduce((sum, [up]) => sum + up, 0);
  const kills = beats.filter(([, , killed]) => killed).length;
  set(byId("beats"), "aria-label", `The last minute: ${count(total)} acknowledged, ${kills} seconds with a kill`);
}

function set(element, name, value) {
  const text = String(typeof value === "number" ? Math.round(value * 10) / 10 : value);
  if (element.getAttribute(name) !== text) element.setAttribute(name, text);
}
