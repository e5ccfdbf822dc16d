// Lists of jobs, and the names of their states.

import { part } from "./api.js";
import { h, once, put, table } from "./dom.js";
import { time } from "./format.js";

export const STATES = {
  scheduled: "scheduled", queued: "queued", running: "running", waiting: "waiting", retrying: "retrying",
  succeeded: "succeeded", failed: "failed", in_doubt: "in doubt", cancelled: "cancelled", gone: "forgotten",
};
const KINDS = { failed: "bad", in_doubt: "warn", succeeded: "good", running: "live", retrying: "warn" };

/** A state as a small label. */
export function chip(state) {
  const element = h("span.chip");
  element.change = (now) => {
    put(element, STATES[now] ?? now);
    element.className = `chip ${KINDS[now] ?? ""}`;
  };
  element.change(state);
  return element;
}

/** The progress of a job as text: "40% page 4". */
export const progressOf = (job) =>
  typeof job.progress === "number" ? `${Math.floor(job.progress * 100)}% ${job.progress_text ?? ""}`.trim() : "";

/** The name of a job: its key, or the end of its id. */
export const nameOf = (job) => job.key ?? `…${job.id.slice(-10)}`;

/** The options of a job: a label, and the text of a job's value; empty if it has the default. */
export const OPTIONS = [
  ["Order key", (job) => job.order_key],
  ["Limit key", (job) => job.limit_key],
  ["Priority", (job) => (job.priority === 5 ? "" : String(job.priority))],
  ["Tags", (job) => (job.tags ?? []).join(", ")],
];

export function jobTable(label, { queue = true } = {}) {
  return table(label, [
    { name: "Job", kind: "name", update: once((cell, job) => {
      cell.append(h("a", { href: `#/jobs/${part(job.id)}` }, nameOf(job)));
      for (const tag of job.tags ?? []) cell.append(" ", h("span.chip", tag));
    }) },
    ...(queue ? [{ name: "Queue", show: (job) => job.queue }] : []),
    { name: "State", update: once((cell, job) => {
      const label = chip(job.state), progress = h("span.faint");
      cell.append(label, " ", progress);
      return (now) => {
        label.change(now.state);
        put(progress, now.state === "succeeded" ? "" : progressOf(now));
      };
    }) },
    { name: "Sent", kind: "number", show: (job) => time(job.created_ms) },
    { name: "Attempt", kind: "number", show: (job) => (job.attempts_max ? `${job.attempt} of ${job.attempts_max}` : job.attempt) },
    { name: "Last error", kind: "wide", show: (job) => job.reason ?? "" },
  ], (job) => job.id, "No jobs.");
}
