// One queue: its jobs, dead letters, senders and settings.

import { get, part, post, query as ask, repeat } from "./api.js";
import { ask as confirm, doing, h, keyed, mark, put, tell } from "./dom.js";
import { count, plural, span, time } from "./format.js";
import { chip, jobTable, nameOf } from "./joblist.js";
import { SENDERS_NOTE, senderTable } from "./queues.js";

const TABS = { jobs: "Jobs", failed: "Failed and in doubt", senders: "Senders", settings: "Settings" };

export function page({ rest: [name], query, trouble }) {
  const path = `v1/queues/${part(name)}`;
  const figures = ["queued", "running", "scheduled", "retrying", "succeeded", "failed", "in_doubt"];
  const shownAs = { queued: "Queued", running: "Running", scheduled: "Scheduled", retrying: "Retrying",
    succeeded: "Succeeded", failed: "Failed", in_doubt: "In doubt" };
  const values = figures.map(() => h("dd"));
  const oldest = h("dd");
  const paused = h("span.chip.warn", { hidden: true }, "paused");
  const pause = doing("Pause queue", async () => {
    take(await post(`${path}/${state?.settings.paused ? "resume" : "pause"}`));
    tell(state.settings.paused ? `${name} is paused. Workers get no jobs from it.` : `${name} is resumed.`);
  });
  const chosen = query.get("tab") in TABS ? query.get("tab") : "jobs";
  const tabs = h("nav.tabs", { "aria-label": "Parts" }, Object.entries(TABS).map(([tab, label]) =>
    h("a", { href: ask(`#/queues/${part(name)}`, { tab: tab === "jobs" ? "" : tab }),
      "aria-current": tab === chosen ? "page" : null }, label)));
  const inner = { jobs: jobsOf, failed: failedOf, senders: sendersOf, settings: settingsOf }[chosen](name, path);
  let state = null;

  function take(found) {
    state = found;
    figures.forEach((figure, number) => {
      put(values[number], count(found.jobs[figure] ?? 0));
      if (figure === "failed") mark(values[number], "bad", found.jobs.failed);
      if (figure === "in_doubt") mark(values[number], "warn", found.jobs.in_doubt);
    });
    put(oldest, found.oldest_queued_ms ? span(Math.max(Date.now() - found.oldest_queued_ms, 0)) : "–");
    paused.hidden = !found.settings.paused;
    put(pause, found.settings.paused ? "Resume queue" : "Pause queue");
    inner.take?.(found);
  }

  const live = repeat(async () => {
    take(await get(path));
    await inner.refresh?.();
  }, 1000, trouble);
  const element = h("div.page",
    h("p.trail", h("a", { href: "#/queues" }, "Queues")),
    h("div.head", h("h1", { tabindex: "-1" }, name), paused, h("div.row", pause)),
    h("dl.figures", figures.map((figure, number) => h("div", h("dt", shownAs[figure]), values[number])),
      h("div", h("dt", "Oldest queued"), oldest)),
    tabs, inner.element);
  return { title: name, element, stop: () => { live.stop(); inner.stop?.(); } };
}

function jobsOf(name) {
  const jobs = jobTable(`Jobs of ${name}`, { queue: false });
  const states = h("select", { id: "state", onchange: () => { before = null; refresh(); } },
    h("option", { value: "" }, "any state"),
    ["queued", "running", "scheduled", "retrying", "succeeded", "failed", "in_doubt", "cancelled"].map((state) =>
      h("option", { value: state }, chip(state).textContent)));
  const said = h("p.faint", { role: "status" });
  const more = doing("Load older jobs", async () => {
    const page = await look(before);
    older = older.concat(page.jobs);
    before = page.next;
    draw();
  });
  let newest = [], older = [], before = null, next = null;
  const look = (from) => get(ask("v1/jobs", { queue: name, state: states.value, after: from, limit: 50 }));
  async function refresh() {
    if (older.length && before !== null) return; // do not reset a list that the user has extended
    const page = await look();
    newest = page.jobs;
    older = [];
    before = next = page.next;
    draw();
  }
  function draw() {
    jobs.update(newest.concat(older));
    more.hidden = !before;
    put(said, `${count(newest.length + older.length)} shown, newest first${next && before ? "" : "; no more"}`);
  }
  return { element: h("section", h("div.row", h("label", { for: "state" }, "Show"), states, said),
    jobs.element, more), refresh };
}

function failedOf(name, path) {
  const list = h("ul.cards"), none = h("p.none", { hidden: true }, "No failed jobs, and no jobs in doubt.");
  const bar = h("progress", { hidden: true, max: 1, value: 0, "aria-label": "Redrive progress" });
  const said = h("span.faint", { role: "status" });
  const more = h("p.faint", { hidden: true }, "More jobs follow.");
  const why = h("input", { id: "reason", placeholder: "all reasons", autocomplete: "off" });
  let total = 0;
  const all = doing("Redrive all jobs", async () => {
    const reason = why.value.trim();
    if (!await confirm(`Retry the failed jobs of ${name}?`,
      reason ? `All jobs whose last error contains “${reason}” are retried from their first attempt.`
        : `All ${count(total)} jobs are retried from their first attempt. Completed steps are skipped.`,
      "Redrive jobs", { danger: false })) return;
    let after = "", done = 0;
    const most = Math.max(total, 1);
    bar.hidden = false;
    bar.max = most;
    do { // each request handles a part and returns a cursor
      const answer = await post(`${path}/redrive`, { after, ...(reason ? { reason } : {}) });
      done += answer.jobs;
      after = answer.next;
      bar.value = Math.min(done, most);
      put(said, `${plural(done, "job")} retried`);
    } while (after);
    bar.value = most;
    tell(`Retrying ${plural(done, "job")} of ${name}.`);
    await refresh();
  }, "main");

  async function refresh() {
    const page = await get(`${path}/failed?limit=50`);
    none.hidden = page.jobs.length > 0;
    more.hidden = page.next === null;
    keyed(list, page.jobs, (job) => job.id, (job) => card(job, refresh));
  }
  const tools = h("div.row", h("label", { for: "reason" }, "Reason contains"), why, all, bar, said);
  return { element: h("section", tools, none, list, more), refresh, take: (found) => {
    total = (found.jobs.failed ?? 0) + (found.jobs.in_doubt ?? 0);
    tools.hidden = total === 0 && none.hidden === false && bar.hidden;
  } };
}

function card(job, refresh) {
  const doubt = job.state === "in_doubt";
  const again = doing("Retry job", async () => {
    await post(`v1/jobs/${part(job.id)}/retry`);
    tell(`Retrying ${nameOf(job)}.`);
    await refresh();
  });
  const element = h(`li.card${doubt ? ".warn" : ".bad"}`,
    h("div.row", h("a.strong", { href: `#/jobs/${part(job.id)}` }, nameOf(job)), chip(job.state),
      h("span.faint", `${plural(job.attempt, "attempt")}, ended ${time(job.ended_ms)}`),
      h("span.push", doubt ? h("a.button", { href: `#/jobs/${part(job.id)}` }, "Settle job") : again)),
    h("p.reason", job.reason ?? ""));
  return { element };
}

function sendersOf(name) {
  const senders = senderTable({ queue: false });
  return { element: h("section", h("p.faint", SENDERS_NOTE), senders.element),
    refresh: async () => senders.update((await get(ask("v1/senders", { queue: name }))).senders) };
}

function settingsOf(name) {
  const list = h("dl.facts");
  return {
    element: h("section", list,
      h("p.faint", "Change them with ", h("code", `onceward queues configure ${name} --limit 10`),
        " or PUT /v1/queues/{queue}.")),
    take: (found) => keyed(list, Object.entries(found.settings), ([key]) => key, ([key]) => {
      const value = h("dd");
      return { element: h("div", h("dt", key), value),
        update: ([, now]) => put(value, now === null ? "–" : typeof now === "object" ? JSON.stringify(now) : String(now)) };
    }),
  };
}
