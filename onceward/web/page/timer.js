// One timer: its due time, target and last firing.

import { get, part, post, query as ask, remove, repeat, session } from "./api.js";
import { ask as confirm, doing, h, put, tell } from "./dom.js";
import { exactly, left, pretty, span } from "./format.js";

const KINDS = { active: "live", firing: "live", success: "good", failed: "bad" };

export function timerChip(state) {
  const element = h("span.chip");
  element.change = (now) => {
    put(element, now);
    element.className = `chip ${KINDS[now] ?? ""}`;
  };
  element.change(state);
  return element;
}

/** The target of a timer in a few words. */
export function targetOf(timer) {
  if (timer.queue) return `sends to ${timer.queue}`;
  return timer.endpoint ? `calls ${timer.endpoint}` : `POST ${timer.url}`;
}

export function page({ rest: [id], query, trouble }) {
  const whose = query.has("caller") ? query.get("caller") : session.user.caller;
  // An empty name is valid: the application itself.
  const path = (more = "") => `v1/timers/${part(id)}${more}?caller=${part(whose)}`;
  const state = timerChip(""), countdown = h("dd"), facts = h("dl.facts"), line = h("ol.story");
  const tools = h("div.row"), body = h("pre", { tabindex: "0", "aria-label": "Body" }), wrong = h("p.wrong", { role: "alert" });
  let timer = null, ahead = 0, before = "";

  const live = repeat(async () => {
    try {
      const found = await get(path());
      ahead = found.due_ms - found.left_ms - Date.now();
      timer = found;
    } catch (error) {
      if (error.status !== 404) throw error;
      put(wrong, error.message);
      live?.stop();
      return;
    }
    const text = JSON.stringify({ ...timer, left_ms: 0 });
    if (text !== before) draw();
    before = text;
    tick();
  }, 1000, trouble);
  const tick = () => {
    if (timer) put(countdown, timer.state === "active" ? left(timer.due_ms - Date.now() - (timer.left_ms ? ahead : 0)) : "–");
  };
  const counting = setInterval(tick, 250);

  function draw() {
    state.change(timer.state);
    facts.replaceChildren(...[
      ["Due in", countdown], ["Due", exactly(timer.due_ms)], ["Action", targetOf(timer)],
      ["Repeats", timer.cron ? `${timer.cron} (${timer.zone})` : timer.every_ms ? `every ${span(timer.every_ms)}` : null],
      ["Catch-up", timer.catch_up === "all" || !timer.catch_up ? null : timer.catch_up],
      ["Ends", [timer.until && `at ${exactly(Date.parse(timer.until))}`, timer.times && `after ${timer.times} firings`].filter(Boolean).join(", ")],
      ["Overlap", timer.overlap === "allow" || !timer.overlap ? null : timer.skipped ? `${timer.overlap}, ${timer.skipped} skipped` : timer.overlap],
      ["Fired", String(timer.fired)], ["Owner", whose || "the application"], ["Created", exactly(timer.created_ms)],
      ["Next", timer.next?.length ? timer.next.map((one) => exactly(Date.parse(one))).join(", ") : null],
    ].filter(([, value]) => value).map(([name, value]) => h("div", h("dt", name), value instanceof Node ? value : h("dd", value))));
    put(body, timer.body === undefined ? "none" : pretty(timer.body));
    line.replaceChildren(...events(timer));
    tools.replaceChildren(...actions());
  }

  function actions() {
    const act = (label, work, kind) => doing(label, async () => {
      if (await work() === false) return;
      await live.now();
    }, kind);
    if (timer.state === "active") {
      return [
        act("Fire now", () => post(path("/move"), { delay_ms: 0 })),
        act("Pause timer", () => post(path("/pause"))),
        act("Cancel timer", async () => {
          if (!await confirm(`Cancel ${id}?`, "The timer will not fire again.", "Cancel timer")) return false;
          await remove(path());
          tell(`Cancelled ${id}.`);
        }, "danger"),
      ];
    }
    if (timer.state === "paused") return [act("Resume timer", () => post(path("/resume")), "main")];
    return timer.last && ["failed", "in_doubt"].includes(timer.last.state)
      ? [act("Resend call", async () => {
        await post(path("/resend"));
        tell("Resent with the same id.");
      }, "main")] : [];
  }

  const element = h("div.page", h("p.trail", h("a", { href: ask("#/timers", {}) }, "Timers")),
    h("div.head", h("h1", { tabindex: "-1" }, id), state, tools), wrong,
    h("div.two", h("div", facts, h("h2", "Last firing"), line), h("div.values", h("section", h("h2", "Body"), body))));
  return { title: id, element, stop: () => { live.stop(); clearInterval(counting); } };
}

function events(timer) {
  const last = timer.last;
  if (!last) return [h("li", h("p.faint", "It has not fired yet."))];
  const found = [h("li.first", h("div.row", h("span.strong", `Firing ${last.number}`), h("time.faint", exactly(last.fired_ms))),
    h("p.faint", last.due_ms ? `${span(last.fired_ms - last.due_ms)} after its due time; ` : "", "id ",
      h("a", { href: `#/jobs/${part(last.id)}` }, h("code", last.id))))];
  for (const one of last.attempts ?? []) {
    found.push(h(one.outcome === "succeeded" ? "li.good" : "li.bad",
      h("div.row", h("span.strong", `Attempt ${one.attempt}: ${one.outcome}`), h("time.faint", exactly(one.at_ms))), h("p.reason", one.said)));
  }
  if (last.next_attempt_ms) {
    found.push(h("li.live", h("div.row", h("span.strong", "Next attempt"), h("time.faint", exactly(last.next_attempt_ms)))));
  }
  return found;
}
