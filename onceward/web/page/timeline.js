// The timeline of a job: bars on a time axis for its waits, attempts and steps.

import { h, keyed, put } from "./dom.js";
import { exactly, plural, span } from "./format.js";

const SHOWN = 200;
const WAITS = ["scheduled", "queued", "sleep", "event", "children", "backoff", "failed", "unknown"];

/** The section, with `update(story)` for the history of a job. */
export function timeline() {
  const rows = h("ol.bars", { "aria-label": "Timeline" }), sums = h("p.faint"), ticks = h("div.ticks", { "aria-hidden": "true" });
  const shorten = h("input", { type: "checkbox", id: "shorten", onchange: () => draw() });
  const choice = h("p", { hidden: true }, shorten, " ", h("label", { for: "shorten" }, "Shorten long waits"));
  const more = h("p.faint");
  const element = h("section.timeline", { hidden: true }, h("h2", "Timeline"), sums, choice, rows, ticks, more);
  let story = null;

  function update(next) {
    story = next;
    draw();
  }

  function draw() {
    const spans = (story.timeline ?? []).slice(0, SHOWN);
    element.hidden = spans.length === 0;
    if (element.hidden) return;
    const start = story.job.created_ms;
    const last = Math.max(start, ...spans.map((one) => one.end_ms || one.start_ms));
    const now = story.job.ended_ms ? last : Math.max(Date.now(), last);
    const closed = spans.map((one) => ({ ...one, open: !one.end_ms, end_ms: one.end_ms || now }));
    const total = (kinds) => closed.filter((one) => kinds.includes(one.kind)).reduce((sum, one) => sum + one.end_ms - one.start_ms, 0);
    const ran = total(["attempt"]), waited = total(WAITS);
    const queued = total(["queued"]);
    const shares = [[ran, "running"], [queued, "in the queue"], [waited - queued, "in other waits"]].filter(([ms]) => ms > 0);
    put(sums, `${span(now - start)} in all${shares.length ? ": " : ""}${shares.map(([ms, text]) => `${span(ms)} ${text}`).join(", ")}.`);
    choice.hidden = waited < 4 * (now - start - waited);
    const axis = scale(closed, start, now, !choice.hidden && shorten.checked);
    keyed(rows, closed, (one) => `${one.kind} ${one.name} ${one.start_ms}`, row);
    closed.forEach((one) => one.draw?.(axis));
    ticks.replaceChildren(...axis.ticks.map(([at, text]) => {
      const tick = h("span", text);
      tick.style.left = `${100 * at}%`;
      return tick;
    }));
    const left = story.timeline.length - spans.length;
    put(more, left > 0 ? `${plural(left, "later span")} not shown.` : "");

    function row(first) {
      const bar = h("i"), name = h("span.what"), length = h("span.long"), times = h("p.faint");
      const one = h("li", h("details", h("summary", name, h("span.track", bar), length), times));
      return { element: one, update: (item) => {
        one.className = kindOf(item);
        one.classList.toggle("open", item.open);
        put(name, textOf(item));
        put(length, span(item.end_ms - item.start_ms));
        put(times, [`From ${exactly(item.start_ms)} (+${span(item.start_ms - story.job.created_ms)})`,
          item.open ? item.until_ms ? `at the latest until ${exactly(item.until_ms)}` : "has not ended" : `to ${exactly(item.end_ms)}`].join(", "));
        item.draw = (axis) => {
          const from = axis.at(item.start_ms);
          bar.style.left = `${100 * from}%`;
          bar.style.width = `${100 * (axis.at(item.end_ms) - from)}%`;
        };
        return first;
      } };
    }
  }

  return { element, update };
}

/** The place of a time on the axis, from 0 to 1, and the axis' labels. */
function scale(spans, start, end, shortened) {
  const whole = Math.max(end - start, 1);
  if (!shortened) {
    const at = (ms) => Math.min(Math.max((ms - start) / whole, 0), 1);
    return { at, ticks: [0, 0.25, 0.5, 0.75].map((part) => [part, `+${span(part * whole)}`]).concat([[1, span(whole)]]) };
  }
  // Each wait is as long as all attempts together, at most.
  const busy = Math.max(spans.filter((one) => one.kind === "attempt").reduce((sum, one) => sum + one.end_ms - one.start_ms, 0), 1);
  const waits = spans.filter((one) => WAITS.includes(one.kind)).map((one) => [one.start_ms, one.end_ms, Math.max(one.end_ms - one.start_ms - busy, 0)]);
  const cut = (ms) => waits.reduce((sum, [from, to, over]) => sum + (ms <= from ? 0 : ms >= to ? over : over * (ms - from) / (to - from)), 0);
  const length = Math.max(whole - cut(end), 1);
  return { at: (ms) => Math.min(Math.max((ms - start - cut(ms)) / length, 0), 1), ticks: [[0, "+0 ms"], [1, span(whole)]] };
}

function kindOf(one) {
  if (one.kind === "attempt") return one.state === "failed" ? "bad" : one.state === "cancelled" ? "wait" : "run";
  if (one.kind === "step") return one.state === "done" ? "step" : "warn";
  return one.kind === "failed" ? "bad wait" : "wait";
}

function textOf(one) {
  switch (one.kind) {
    case "attempt": return `Attempt ${one.attempt}, ${one.state === "released" ? "then waited" : one.state}`;
    case "step": return `Step “${one.name}”${one.state === "done" ? "" : ", outcome unknown"}`;
    case "event": return `Event “${one.name}”`;
    case "children": return `Children of call ${one.name}`;
    default: return { scheduled: "Delay", queued: "In the queue", sleep: "Sleep", backoff: "Pause before the retry", failed: "Failed, until a retry", unknown: "Not in the history" }[one.kind] ?? one.kind;
  }
}
