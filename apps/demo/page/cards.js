// The interactive cards: timers and the storm.

import { h, keyed, mark, put } from "/console/dom.js";
import { count, plural } from "/console/format.js";

const byId = (id) => document.getElementById(id);
const begun = new Map();
let ahead = 0;
let yours = [];

// Timers.

export function showTimers({ yours: set, now_ms: now }) {
  ahead = now - Date.now();
  yours = [...set].reverse();
  draw();
}

function draw() {
  byId("no-timer").hidden = yours.length > 0;
  keyed(byId("yours"), yours, (timer) => timer.id, (timer) => {
    const left = timer.due_ms - Date.now() - ahead;
    begun.set(timer.id, Math.max(left, 100));
    const bar = h("progress", { max: begun.get(timer.id), value: 0, "aria-label": "Elapsed time" });
    const words = h("span");
    const due = h("time");
    return {
      element: h("li", words, due, bar),
      update: (now) => tick(now, words, due, bar),
    };
  });
}

function tick(timer, words, due, bar) {
  const left = timer.due_ms - Date.now() - ahead;
  const late = timer.late_ms;
  bar.value = late === null ? Math.min(begun.get(timer.id) - left, bar.max) : bar.max;
  put(words, late === null ? (left > 0 ? "fires in" : "is being delivered") : "arrived");
  put(due, late === null ? (left > 0 ? `${(left / 1000).toFixed(1)} s` : "") : `${late.toFixed(1)} ms late`);
  mark(due, "came", late !== null);
}

setInterval(() => yours.some((timer) => timer.late_ms === null) && draw(), 100);

// The storm.

const BARS = {
  acknowledged: ["messages acknowledged", "notifications"],
  pulls: ["pulls at the bureau", "applications"],
  decided: ["applications decided", "applications"],
};
const FIGURES = {
  stopped: "duplicates stopped",
  kills: "workers killed",
  known: "repeated requests to the bureau",
  most: "most pulls per application",
};
const bars = Object.entries(BARS).map(([name, [label, total]]) => {
  const value = h("span", { id: `storm-${name}` });
  const bar = h("progress", { max: 1, value: 0 });
  byId("bars").append(h("label", h("span", label), value, bar));
  return { name, total, value, bar };
});
const figures = Object.entries(FIGURES).map(([name, label]) => {
  const value = h("dd", { id: `storm-${name}` }, "0");
  byId("storm-figures").append(h("div", h("dt", label), value));
  return { name, value };
});

export function showStorm(storm) {
  const { state } = storm;
  byId("blow").disabled = state === "blowing";
  put(byId("blow"), state === "over" ? "Run again" : "Start the storm");
  for (const { name, total, value, bar } of bars) {
    put(value, `${count(storm[name])} of ${count(storm[total])}`);
    bar.max = Math.max(storm[total], 1);
    bar.value = storm[name];
  }
  for (const { name, value } of figures) put(value, count(storm[name]));
  const said = byId("storm-said");
  mark(said, "good", state === "over" && storm.wrong.length === 0);
  mark(said, "bad", storm.wrong.length > 0);
  put(said, words(storm));
}

function words({ state, wrong, took_s: took, pulls, applications }) {
  if (state === "calm") return "";
  if (state === "blowing") return `Running for ${took.toFixed(0)} s`;
  if (wrong.length) return `Wrong: ${wrong.join("; ")}`;
  return `${plural(pulls, "pull")} for ${plural(applications, "application")}, in ${took.toFixed(0)} s`;
}
