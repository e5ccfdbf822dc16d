// The children of a job: their number by state, and pages of them, failed ones first.

import { get, part, query } from "./api.js";
import { h, once, put, table } from "./dom.js";
import { count, span } from "./format.js";
import { STATES, chip } from "./joblist.js";

const PAGE = 20;
// Reading takes at most this part of the time.
const SHARE = 0.05;
const GROUPS = [["", "All"], ["failed", "Failed"], ["open", "Not ended"], ["cancelled", "Cancelled"], ["succeeded", "Succeeded"]];
const ENDED = ["failed", "cancelled", "succeeded"];

/** The section, with `refresh(job)`. `again` refreshes the page after a choice. */
export function children(path, again) {
  const found = childTable(), filters = h("div.row.filters", { role: "group", "aria-label": "Children by state" });
  const back = h("button", { type: "button", hidden: true, onclick: () => turn(() => pages.pop()) }, "Previous children");
  const further = h("button", { type: "button", hidden: true, onclick: () => turn(() => pages.push(next)) }, "Next children");
  const element = h("section", { hidden: true }, h("h2", "Children"), filters, found.element, h("div.row", back, further));
  const buttons = GROUPS.map(([state, text]) => h("button.chip", { type: "button", onclick: () => turn(() => {
    wanted = state;
    pages = [""];
  }) }, text));
  filters.append(...buttons);
  let wanted = "", pages = [""], next = null, counts = null, due = 0, last = "";

  function turn(change) {
    change();
    last = "";
    return again();
  }

  async function page() {
    const list = (state, after) => get(query(`${path}/children`, { limit: PAGE, state, after }));
    const found = await list(wanted, pages.at(-1));
    if (wanted || pages.length > 1 || !counts.states.failed) return found;
    const failed = (await list("failed", "")).children;
    const known = new Set(failed.map((one) => one.id));
    return { next: found.next, children: [...failed, ...found.children.filter((one) => !known.has(one.id))] };
  }

  /** Show the children of a job: rarely where that takes long, and once if all have ended. */
  async function refresh(job) {
    const begun = performance.now();
    if (last && (begun < due || last === job.state)) return;
    counts = await get(`${path}/children/count`).catch((error) => {
      if (error.status !== 404) throw error;
      return { total: 0, states: {} }; // only workers and operators see children
    });
    const { total, states } = counts;
    element.hidden = !total && pages.length === 1;
    const open = total - ENDED.reduce((sum, one) => sum + (states[one] ?? 0), 0);
    last = open || !["succeeded", "cancelled"].includes(job.state) ? "changes" : job.state;
    if (element.hidden) return;
    const of = (state) => (state === "" ? total : state === "open" ? open : states[state] ?? 0);
    buttons.forEach((button, number) => {
      const [state, text] = GROUPS[number];
      const inner = state === "open" ? Object.entries(states).filter(([one]) => !ENDED.includes(one) && one !== "open").map(([one, n]) => `${count(n)} ${STATES[one] ?? one}`).join(", ") : "";
      put(button, `${text} ${count(of(state))}${inner ? ` (${inner})` : ""}`);
      button.hidden = state !== "" && state !== wanted && of(state) === 0;
      button.className = `chip ${state === "failed" ? "bad" : state === wanted ? "good" : ""}`;
      button.setAttribute("aria-pressed", String(state === wanted));
    });
    const some = await page();
    found.update(some.children);
    next = some.next;
    back.hidden = pages.length === 1;
    further.hidden = !next;
    due = performance.now() + (performance.now() - begun) / SHARE;
  }

  return { element, refresh, left: () => (counts ? [counts.total - ENDED.reduce((sum, one) => sum + (counts.states[one] ?? 0), 0), counts.total] : null) };
}

function childTable() {
  return table("Children", [
    { name: "Job", kind: "name", update: once((cell, child) => {
      cell.append(h("a", { href: `#/jobs/${part(child.id)}` }, `…${child.id.slice(-10)}`));
    }) },
    { name: "State", update: once((cell, child) => {
      const label = chip(child.state);
      cell.append(label);
      return (now) => label.change(now.state);
    }) },
    { name: "Duration", kind: "number", show: (child) => (child.started_ms ? span(Math.max((child.ended_ms || Date.now()) - child.started_ms, 0)) : "") },
    { name: "Error", kind: "wide", show: (child) => child.reason ?? "" },
    { name: "Queue", show: (child) => child.queue },
    { name: "Position", kind: "number", show: (child) => `${child.call > 1 ? `call ${child.call}, ` : ""}${child.index}` },
  ], (child) => child.id, "No children.");
}
