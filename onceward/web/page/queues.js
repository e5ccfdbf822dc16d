// Queues: a list with a search for jobs, or one queue.

import { get, part, query as ask, repeat } from "./api.js";
import { h, mark, once, put, table } from "./dom.js";
import { count, span, time } from "./format.js";
import { jobTable } from "./joblist.js";
import * as one from "./queue.js";

export function page(where) {
  return where.rest.length ? one.page(where) : all(where);
}

function all({ query, trouble }) {
  const box = h("input", { id: "search", type: "search", autocomplete: "off", spellcheck: "false",
    placeholder: "order-1042", value: query.get("text") ?? "" });
  const form = h("form.search", { role: "search", onsubmit: (event) => {
    event.preventDefault();
    const text = box.value.trim();
    history.replaceState(null, "", text ? ask("#/queues", { text }) : "#/queues");
    look(text);
  } },
    h("label", { for: "search" }, "Find a job"), box, h("button.main", { type: "submit" }, "Search"));
  const jobs = jobTable("Jobs");
  const said = h("p.faint", { role: "status" });
  const more = h("button", { type: "button", hidden: true }, "Search further");
  const results = h("section", h("h2", "Jobs"), said, jobs.element, more);
  const queues = table("Queues", [
    { name: "Queue", kind: "name", update: once((cell, queue) => {
      const paused = h("span.chip.warn", { hidden: true }, "paused");
      cell.append(h("a", { href: `#/queues/${part(queue.name)}` }, queue.name), paused);
      return (now) => { paused.hidden = !now.settings.paused; };
    }) },
    { name: "Queued", kind: "number", show: (q) => count(q.jobs.queued ?? 0) },
    { name: "Oldest", kind: "number", show: (q) => (q.oldest_queued_ms ? span(Math.max(Date.now() - q.oldest_queued_ms, 0)) : "–") },
    { name: "Scheduled", kind: "number", show: (q) => count((q.jobs.scheduled ?? 0) + (q.jobs.retrying ?? 0)) },
    { name: "Running", kind: "number", show: (q) => count(q.jobs.running ?? 0) },
    { name: "Succeeded", kind: "number", show: (q) => count(q.jobs.succeeded ?? 0) },
    { name: "Failed", kind: "number", update: (cell, q) => mark(put(cell, count(q.jobs.failed ?? 0)), "bad", q.jobs.failed) },
    { name: "In doubt", kind: "number", update: (cell, q) => mark(put(cell, count(q.jobs.in_doubt ?? 0)), "warn", q.jobs.in_doubt) },
  ], (q) => q.name, "No messages yet.");
  const senders = senderTable();

  let turn = 0;
  async function look(text, before, kept = []) {
    const mine = ++turn;
    results.hidden = false;
    more.hidden = true;
    put(said, "Looking…");
    try {
      // An exact key is found with one lookup; a part of it needs a scan.
      let page = text && !before ? await get(ask("v1/jobs", { key: text })) : null;
      const exact = page?.jobs.length > 0;
      if (!exact) page = await get(ask("v1/jobs", { text, after: before, limit: 50 }));
      if (mine !== turn) return;
      const found = kept.concat(page.jobs);
      jobs.update(found);
      put(said, exact ? `Key ${text}` : text
        ? `${count(found.length)} with “${text}” in a key or id${page.next ? " (search not finished)" : ""}`
        : "Newest first");
      more.hidden = !page.next;
      more.onclick = () => look(text, page.next, found);
    } catch (error) {
      put(said, error.message);
    }
  }
  look(query.get("text") ?? "");

  const live = repeat(async () => {
    queues.update((await get("v1/queues")).queues);
    senders.update((await get("v1/senders")).senders);
  }, 1000, trouble);

  const element = h("div.page", h("div.head", h("h1", { tabindex: "-1" }, "Queues")), form,
    queues.element, results, h("h2", "Senders"), h("p.faint", SENDERS_NOTE), senders.element);
  return { title: "Queues", element, stop: live.stop };
}

export const SENDERS_NOTE = "Counted by this node since it started. Ack is the time until a message was durable.";

/** Senders with their messages, duplicates and response times. */
export function senderTable({ queue = true } = {}) {
  return table("Senders", [
    { name: "Sender", kind: "name", show: (s) => s.sender || "(the application)" },
    ...(queue ? [{ name: "Queue", show: (s) => s.queue }] : []),
    { name: "Accepted", kind: "number", show: (s) => count(s.accepted) },
    { name: "Repeats", kind: "number", show: (s) => count(s.repeats) },
    { name: "Key reused", kind: "number", update: (cell, s) => mark(put(cell, count(s.rejected)), "warn", s.rejected) },
    { name: "Ack p50", kind: "number", show: (s) => span(s.ack_ms) },
    { name: "Ack p99", kind: "number", show: (s) => span(s.ack_99_ms) },
    { name: "Ack max", kind: "number", show: (s) => span(s.ack_max_ms) },
    { name: "Last", kind: "number", show: (s) => time(s.last_ms) },
    { name: "Causes of duplicates", kind: "prose", show: (s) => Object.entries(s.causes).map(([cause, n]) => `${cause} ${count(n)}`).join(", ") },
  ], (s) => `${s.queue}\n${s.sender}`, "No messages since this node started.");
}

