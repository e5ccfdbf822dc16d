// The overview: current activity, and alarms that need an operator.

import { get, part, repeat } from "./api.js";
import { h, keyed, mark, once, put, table } from "./dom.js";
import { ago, count, plural, rate, span } from "./format.js";
import { plot } from "./plot.js";

const KEPT = 600; // samples: as many as the server keeps
const WAITING = ["queued", "scheduled", "retrying"];
const SPANS_MS = [60_000, 120_000, 180_000, 300_000];
const AT = { accepted: 1, repeats: 2, succeeded: 3, failed: 4, commit: 5, commit99: 6, late: 7, late99: 8,
  connections: 9, members: 10, age: 11 };

export function page({ trouble }) {
  const of = (name) => (sample) => sample[AT[name]];
  const plots = [
    plot("Messages per second", [
      { name: "accepted", kind: "first", at: of("accepted") },
      { name: "succeeded", kind: "second", at: of("succeeded") },
      { name: "failed", kind: "bad", at: of("failed") },
    ], rate, { least: 5, mean: 5 }),
    plot("Duplicates per second", [{ name: "repeats", kind: "first", at: of("repeats") }], rate, { least: 5, mean: 5 }),
    plot("Oldest queued job", [{ name: "age", kind: "first", at: of("age") }], span, { least: 1000 }),
    plot("Commit time", [
      { name: "median", kind: "first", at: of("commit") },
      { name: "99 %", kind: "second", at: of("commit99") },
    ], span, { least: 2 }),
    plot("Delay of due entries", [
      { name: "median", kind: "first", at: of("late") },
      { name: "99 %", kind: "second", at: of("late99") },
    ], span, { least: 10 }),
    plot("Live connections", [
      { name: "connections", kind: "first", at: of("connections") },
      { name: "in rooms", kind: "second", at: of("members") },
    ], count, { least: 5 }),
  ];
  const health = h("span.chip"), facts = h("p.faint");
  const attention = h("ul.attention"), calm = h("p.calm", "Nothing needs attention.");
  const figures = ["accepted/s", "succeeded/s", "failed/s", "waiting", "running", "succeeded", "timers set", "rooms"]
    .map((name) => ({ name, value: h("dd") }));
  const queues = table("Queues", [
    { name: "Queue", kind: "name", update: once((cell, queue) => {
      const paused = h("span.chip.warn", { hidden: true }, "paused");
      cell.append(h("a", { href: `#/queues/${part(queue.name)}` }, queue.name), paused);
      return (now) => { paused.hidden = !now.paused; };
    }) },
    { name: "In/s", kind: "number", show: (q) => rate(q.rates.accepted) },
    { name: "Succeeded/s", kind: "number", show: (q) => rate(q.rates.succeeded) },
    { name: "Waiting", kind: "number", show: (q) => count(q.waiting) },
    { name: "Oldest", kind: "number", show: (q) => (q.oldest ? span(q.oldest) : "–") },
    { name: "Running", kind: "number", show: (q) => count(q.jobs.running ?? 0) },
    { name: "Repeats", kind: "number", show: (q) => count(q.repeats) },
    { name: "Failed", kind: "number", update: (cell, q) => mark(put(cell, count(q.jobs.failed ?? 0)), "bad", q.jobs.failed) },
    { name: "In doubt", kind: "number", update: (cell, q) => mark(put(cell, count(q.jobs.in_doubt ?? 0)), "warn", q.jobs.in_doubt) },
  ], (q) => q.name, "No messages yet. Send the first one: onceward send orders '{}' --key order-1");

  let samples = [], after = 0, totals = [], last = null, before = null;

  const live = repeat(async () => {
    const found = await get(`v1/activity?after=${after}`);
    if (found.last < after) samples = []; // the server has restarted
    after = found.last;
    samples = samples.concat(found.samples).slice(-KEPT);
    totals = totals.concat({ at: found.now_ms, ...found.totals }).filter((one) => found.now_ms - one.at <= 1500);
    // The events since the last sample make the newest, moving point.
    const since = totals[0], took = (found.now_ms - since.at) / 1000;
    const now = took > 0.3 ? rates(since, found.totals, took) : null;
    last = now ?? last;
    draw(found);
  }, 100, trouble);

  const slow = repeat(async () => {
    const found = await get("v1/overview");
    glance(found);
    before = found;
  }, 1000, trouble);

  const ready = repeat(async () => {
    const begun = performance.now();
    try {
      await get("readyz");
      put(health, `Ready, in ${span(performance.now() - begun)}`);
      health.className = "chip good";
    } catch (error) {
      put(health, error.message);
      health.className = "chip bad";
      if (!error.status) throw error;
    }
  }, 5000, trouble);

  function rates(then, now, seconds) {
    const of = (name) => Math.max(now[name] - then[name], 0) / seconds;
    return { accepted: of("accepted"), succeeded: of("succeeded"), failed: of("failed"), repeats: of("repeats") };
  }

  let shownAt = 0;
  function draw(found) {
    for (const [number, name] of ["accepted", "succeeded", "failed"].entries()) {
      put(figures[number].value, last ? rate(last[name]) : "–");
    }
    const newest = samples.at(-1);
    const open = newest && last
      ? [...samples, [found.now_ms, last.accepted, last.repeats, last.succeeded, last.failed, null, null, null, null,
        found.totals.connections, found.totals.members, newest[AT.age] + found.now_ms - newest[0]]]
      : samples;
    if (newest && newest[AT.age] === 0 && open !== samples) open.at(-1)[AT.age] = 0;
    // Scale the plots to the age of a server that has just started.
    const kept = open.length ? found.now_ms - open[0][0] : 0;
    const span = SPANS_MS.find((one) => one >= kept) ?? SPANS_MS.at(-1);
    const seen = open.filter((sample) => found.now_ms - sample[0] <= span);
    shownAt = requestFrame(shownAt, () => plots.forEach((one) => one.update(seen, found.now_ms, span)));
  }

  function glance(found) {
    const up = found.now_ms - found.started_ms;
    put(facts, `${found.node} · version ${found.version} · up ${span(up)}${
      found.counted_ms ? ` · counted ${ago(found.counted_ms, found.now_ms)}` : ""}`);
    const jobs = (...states) => states.reduce((sum, state) => sum + (found.jobs[state] ?? 0), 0);
    const rest = [jobs(...WAITING), jobs("running"), jobs("succeeded"),
      found.timers.active ?? 0, found.rooms];
    rest.forEach((value, number) => put(figures[number + 3].value, count(value)));
    const then = new Map((before?.queues ?? []).map((queue) => [queue.name, queue]));
    const took = before ? (found.now_ms - before.now_ms) / 1000 : 0;
    queues.update(found.queues.map((queue) => ({
      ...queue,
      waiting: WAITING.reduce((sum, state) => sum + (queue.jobs[state] ?? 0), 0),
      oldest: queue.oldest_queued_ms ? found.now_ms - queue.oldest_queued_ms : 0,
      rates: then.has(queue.name) && took ? rates(then.get(queue.name), queue, took) : { accepted: 0, succeeded: 0 },
    })));
    calm.hidden = found.attention.length > 0;
    keyed(attention, found.attention, (one) => `${one.kind} ${one.caller} ${one.name}`, (one) => {
      const link = where(one), text = link ? h("a", { href: link }) : h("span");
      return {
        element: h(`li.${["clock", "stuck", "in_doubt", "receiver"].includes(one.kind) ? "warn" : "bad"}`, text),
        update: (now) => put(text, words(now, found.now_ms)),
      };
    });
  }

  const element = h("div.page",
    h("div.head", h("h1", { tabindex: "-1" }, "Overview"), health), facts,
    h("section.panel", { "aria-label": "Needs attention" }, calm, attention),
    h("dl.figures", figures.map((one) => h("div", h("dt", one.name), one.value))),
    h("div.plots", plots.map((one) => one.element)),
    h("h2", "Queues"), queues.element);
  return { title: "Overview", element, stop: () => [live, slow, ready].forEach((one) => one.stop()) };
}

function words(one, now) {
  switch (one.kind) {
    case "failed": return `${plural(one.count, "failed job")} in ${one.name}`;
    case "in_doubt": return `${plural(one.count, "job")} of ${one.name} in doubt: settle ${one.count === 1 ? "it" : "them"}`;
    case "stuck": return `No worker claims the jobs of ${one.name}: ${count(one.count)} queued, the oldest for ${span(now - one.since_ms)}`;
    case "endpoint": return `Endpoint ${one.name}${one.caller ? ` of ${one.caller}` : ""} has been failing for ${span(now - one.since_ms)}: ${one.said}`;
    case "receiver": return `Calls to ${one.name} have been paused for ${span(now - one.since_ms)} after ${plural(one.count, "failure")}: ${one.said}. ${
      one.until_ms > now ? `Next call in ${span(one.until_ms - now)}` : "Calling it now"}`;
    case "clock": return `The wall clock has jumped by ${span(Math.abs(one.count))}. Timers do not fire early. Restart the server to use the new time`;
    case "alarm": return `${one.said} [${one.name}], since ${span(now - one.since_ms)}`;
    default: return `${one.kind} ${one.name}`;
  }
}

function where(one) {
  if (one.kind === "failed" || one.kind === "in_doubt" || one.kind === "stuck") {
    return `#/queues/${part(one.name)}${one.kind === "stuck" ? "" : "?tab=failed"}`;
  }
  return one.kind === "endpoint" || one.kind === "receiver" ? "#/endpoints" : null;
}

// Draw at most once per frame.
function requestFrame(asked, work) {
  cancelAnimationFrame(asked);
  return requestAnimationFrame(work);
}
