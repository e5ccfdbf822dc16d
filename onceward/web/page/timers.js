// Timers: due times, endpoints and a form for new timers. timer.js shows one timer.

import { get, part, post, query as ask, repeat, session } from "./api.js";
import { doing, h, mark, once, put, table, tell } from "./dom.js";
import { ago, left, plural, span, time } from "./format.js";
import * as one from "./timer.js";
import { targetOf, timerChip } from "./timer.js";

const REACH_MS = [60_000, 600_000, 3_600_000, 86_400_000, 7 * 86_400_000];
const BARS = 96;
const TABS = { "": "Due next", all: "All timers", endpoints: "Endpoints", new: "New timer" };

export function page(where) {
  const { rest, query, trouble } = where;
  if (rest.length) return one.page(where);
  const inEndpoints = location.hash.startsWith("#/endpoints");
  const chosen = inEndpoints ? "endpoints" : query.get("tab") in TABS ? query.get("tab") : "";
  const tabs = h("nav.tabs", { "aria-label": "Parts" }, Object.entries(TABS).map(([tab, label]) =>
    h("a", { href: ask("#/timers", { tab }), "aria-current": tab === chosen ? "page" : null }, label)));
  const inner = { "": due, all, endpoints, new: fresh }[chosen]();
  const live = inner.refresh ? repeat(inner.refresh, inner.every ?? 1000, trouble) : { stop() {} };
  const element = h("div.page", h("div.head", h("h1", { tabindex: "-1" }, "Timers")), tabs, inner.element);
  return { title: "Timers", element, stop: () => { live.stop(); inner.stop?.(); } };
}

const columns = (first, more) => [
  ...first,
  { name: "Timer", kind: "name", update: once((cell, timer) => {
    cell.append(h("a", { href: linkTo(timer) }, timer.id));
  }) },
  ...more,
  { name: "Action", kind: "wide", show: targetOf },
  { name: "Repeats", show: (t) => t.cron ? `${t.cron} (${t.zone})` : t.every_ms ? `every ${span(t.every_ms)}` : "once" },
  { name: "Fired", kind: "number", show: (t) => t.fired },
  { name: "Owner", show: (t) => t.caller || "app" },
];
const linkTo = (timer) => `#/timers/${part(timer.id)}?caller=${part(timer.caller ?? "")}`;
const name = (timer) => `${timer.caller}\n${timer.id}`;

/** The next timers: a timeline, and a list that counts down. */
function due() {
  const bars = Array.from({ length: BARS }, () => h("span"));
  const ticks = h("div.span", { role: "img", "aria-label": "When timers are due" }, bars);
  const ends = h("div.axis"), from = h("span", "now"), to = h("span");
  ends.append(from, to);
  const list = table("Next timers", columns([
    { name: "In", kind: "number", update: (cell, timer) => { cell.due = timer.due_ms; tick(cell); } },
  ], [
    { name: "At", kind: "number", show: (t) => time(t.due_ms) },
  ]), name, "No active timers. Create one here, with onceward timers create, or with POST /v1/timers.");
  let ahead = 0; // difference to the browser's clock; the server's clock decides
  const cells = () => list.element.querySelectorAll("td[data-name=In]");
  const tick = (cell) => put(cell, left(cell.due - Date.now() - ahead));
  const counting = setInterval(() => cells().forEach(tick), 250);
  async function refresh() {
    const found = await get("v1/agenda?limit=100");
    ahead = found.now_ms - Date.now();
    list.update(found.timers);
    const last = found.timers.at(-1)?.due_ms - found.now_ms || 0;
    const reach = REACH_MS.find((one) => one >= last) ?? Math.max(last, 1);
    put(to, `in ${span(reach)}`);
    const counts = bars.map(() => 0);
    for (const timer of found.timers) {
      const at = Math.max(timer.due_ms - found.now_ms, 0) / reach;
      if (at <= 1) counts[Math.min(Math.floor(at * BARS), BARS - 1)] += 1;
    }
    // A logarithmic scale, so that one timer is visible next to fifty.
    const most = Math.log2(1 + Math.max(...counts, 1));
    bars.forEach((bar, number) => { bar.style.height = `${100 * Math.log2(1 + counts[number]) / most}%`; });
    ticks.setAttribute("aria-label", `${plural(found.timers.length, "timer")} due in the next ${span(reach)}`);
    ticks.hidden = ends.hidden = !found.timers.length;
  }
  return { element: h("section", ticks, ends, list.element), refresh, stop: () => clearInterval(counting) };
}

function all() {
  const states = h("select", { id: "state", onchange: () => look() }, h("option", { value: "" }, "any state"),
    ["active", "paused", "suspended", "firing", "success", "failed", "skipped", "cancelled", "ended"].map((state) => h("option", { value: state }, state)));
  const text = h("input", { id: "text", type: "search", autocomplete: "off", placeholder: "part of an id" });
  const list = table("Timers", columns([], [
    { name: "State", update: once((cell, timer) => {
      const label = timerChip(timer.state);
      cell.append(label);
      return (now) => label.change(now.state);
    }) },
    { name: "Due", kind: "number", show: (t) => time(t.due_ms) },
  ]), name, "No timers found.");
  const more = doing("Load more timers", () => look(next));
  let next = null, found = [];
  async function look(after) {
    const page = await get(ask("v1/agenda/timers", { state: states.value, text: text.value.trim(), after }));
    found = after ? found.concat(page.timers) : page.timers;
    next = page.next;
    list.update(found);
    more.hidden = !next;
  }
  const form = h("form.search", { role: "search", onsubmit: (event) => {
    event.preventDefault();
    look().catch((error) => tell(error.message, true));
  } }, h("label", { for: "text" }, "Find"), text, h("label", { for: "state" }, "in"), states, h("button", { type: "submit" }, "Search"));
  look().catch((error) => tell(error.message, true));
  return { element: h("section", form, list.element, more) };
}

/** Endpoints and the health of their calls. */
function endpoints() {
  const list = table("Endpoints", [
    { name: "Endpoint", kind: "name", show: (e) => e.id },
    { name: "Health", kind: "prose", update: once((cell) => {
      const label = h("span.chip"), said = h("span.faint");
      cell.append(label, " ", said);
      return (e) => {
        const failing = e.suspended || e.health.failing;
        put(label, e.disabled ? "disabled" : e.suspended ? "suspended" : failing ? "failing" : "well");
        label.className = `chip ${e.disabled ? "" : failing ? "bad" : "good"}`;
        put(said, e.health.failing ? `${ago(e.health.since_ms, Date.now())}: ${e.health.said ?? ""}` : "");
      };
    }) },
    { name: "Calls", kind: "number", show: (e) => e.rate?.calls ?? 0 },
    { name: "Success", kind: "number", update: (cell, e) => {
      const part = e.rate ? e.rate.delivered / e.rate.calls : null;
      mark(put(cell, part === null ? "–" : `${(part * 100).toFixed(part === 1 ? 0 : 1)} %`), "bad", part !== null && part < 0.9);
    } },
    { name: "URL", kind: "wide", show: (e) => e.url || "signs calls to plain URLs" },
    { name: "Owner", show: (e) => e.caller || "app" },
    { name: "", update: once((cell, e) => {
      if (e.url && e.caller === session.user.caller) cell.append(doing("Test endpoint", async () => {
        const timer = await post(`v1/endpoints/${part(e.id)}/test`);
        tell(`Sending a signed test call to ${e.id}.`);
        location.hash = linkTo({ ...timer, caller: e.caller });
      }));
    }) },
  ], (e) => `${e.caller}\n${e.id}`, "No endpoints. Timers can also call URLs directly.");
  return { element: h("section", h("p.faint", "Calls and success rate are counted by this node since it started."), list.element), refresh: async () => {
    // Callers without the scope `operate` see their own endpoints.
    const [all, own] = await Promise.all(["?everyone=true&limit=200", "?limit=200"].map((what) => get(`v1/endpoints${what}`)));
    list.update(all.endpoints.length ? all.endpoints : own.endpoints.map((one) => ({ ...one, caller: session.user.caller })));
  }, every: 2000 };
}

/** The form for a new timer. */
function fresh() {
  const field = (id, label, props = {}, kind = "input") => {
    const control = h(kind, { id, autocomplete: "off", ...props });
    return { control, element: h("div", h("label", { for: id }, label), control) };
  };
  const id = field("id", "Id (optional)");
  const target = field("target", "Action", {}, "select");
  target.control.append(h("option", { value: "queue" }, "send a job to a queue"), h("option", { value: "url" }, "call a URL"),
    h("option", { value: "endpoint" }, "call an endpoint"));
  const to = field("to", "Queue, URL or endpoint", { required: true, spellcheck: "false" });
  const when = field("when", "When", {}, "select");
  when.control.append(h("option", { value: "delay" }, "once, after seconds"), h("option", { value: "every" }, "every N seconds"),
    h("option", { value: "cron" }, "by a cron expression"));
  const what = field("what", "Seconds, or cron expression", { required: true, value: "60", spellcheck: "false" });
  const zone = field("zone", "Time zone of a cron expression", { placeholder: "UTC" });
  const body = field("body", "Body, as JSON", { rows: "4", spellcheck: "false", placeholder: "{}" }, "textarea");
  body.element.className = "all";
  const wrong = h("p.wrong", { role: "alert" });
  const form = h("form", { onsubmit: async (event) => {
    event.preventDefault();
    put(wrong, "");
    try {
      const made = await post("v1/timers", read());
      tell(`Created ${made.id}, due at ${time(made.due_ms)}.`);
      location.hash = `#/timers/${part(made.id)}`;
    } catch (error) {
      put(wrong, error.message);
    }
  } }, h("div.fields", [target, to, when, what, zone, id, body].map((one) => one.element)), wrong,
    h("button.main", { type: "submit" }, "Create timer"));
  function read() {
    const asked = { [target.control.value]: to.control.value.trim() };
    if (id.control.value.trim()) asked.id = id.control.value.trim();
    if (body.control.value.trim()) {
      try {
        asked.body = JSON.parse(body.control.value);
      } catch {
        throw new Error("The body is not JSON. Put text in quotes.");
      }
    }
    const how = when.control.value, value = what.control.value.trim();
    if (how === "cron") return { ...asked, cron: value, ...(zone.control.value.trim() ? { zone: zone.control.value.trim() } : {}) };
    const ms = Math.round(Number(value) * 1000);
    if (!(ms >= 0)) throw new Error("Enter a number of seconds.");
    return { ...asked, [how === "delay" ? "delay_ms" : "every_ms"]: ms };
  }
  return { element: h("section", form) };
}
