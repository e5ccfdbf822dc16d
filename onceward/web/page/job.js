// One job: its message, attempts, steps and effects.

import { get, part, post, query, remove, repeat } from "./api.js";
import { children as childrenOf } from "./children.js";
import { ask, doing, h, put, tell } from "./dom.js";
import { count, exactly, plural, pretty, span } from "./format.js";
import { OPTIONS, STATES, chip, progressOf } from "./joblist.js";
import { timeline } from "./timeline.js";

// Later times mean "no limit".
const FOREVER = 8.6e15;
const ENDED = ["succeeded", "failed", "in_doubt", "cancelled"];

export function page({ rest: [id], trouble }) {
  const path = `v1/jobs/${part(id)}`;
  const title = h("h1", { tabindex: "-1" }, `…${id.slice(-10)}`), state = h("span"), tools = h("div.row");
  const facts = h("dl.facts"), line = h("ol.story"), settle = h("div"), values = h("div.values");
  const event = h("div"), children = childrenOf(path, () => live.now()), bars = timeline(), waits = h("dd");
  const stream = h("pre", { tabindex: "0", "aria-label": "Stream" }), output = h("section", { hidden: true }, h("h2", "Stream"), stream);
  let position = 0, complete = false, known = null;
  const wrong = h("p.wrong", { role: "alert" });
  let before = "";

  const live = repeat(async () => {
    let story;
    try {
      story = await get(`${path}/history`);
    } catch (error) {
      if (error.status !== 404) throw error;
      put(wrong, `${error.message}. It does not exist, or was removed at the end of its retention.`);
      live?.stop();
      return;
    }
    await children.refresh(story.job);
    known = story.job;
    put(waits, awaited(story.job, children.left()));
    bars.update(story);
    const text = JSON.stringify(story);
    if (text === before) return; // keep the elements and their focus
    before = text;
    draw(story);
  }, 1000, trouble);

  const reading = repeat(() => known && drawStream(known), 1000, trouble);

  /** The stream of a job, as far as it was not read before. */
  async function drawStream(job) {
    const ended = ENDED.includes(job.state);
    for (let more = !(ended && complete); more;) {
      const found = await get(query(`${path}/output`, { after: position || "" }));
      if (found.restarted) stream.replaceChildren();
      stream.append(...found.chunks.map(({ value }) => (typeof value === "string" ? value : `${pretty(value)}\n`)));
      position = found.seq;
      more = found.more;
    }
    complete = ended;
    output.hidden = !stream.hasChildNodes();
  }

  function draw(story) {
    const job = story.job;
    put(title, job.key ?? `…${id.slice(-10)}`);
    state.replaceChildren(chip(job.state));
    facts.replaceChildren(...[
      ["Queue", h("a", { href: `#/queues/${part(job.queue)}` }, job.queue)],
      ["Id", h("code", id)],
      ["Sender", story.caller || "the application"],
      ["Parent", job.parent ? [h("a", { href: `#/jobs/${part(job.parent)}` }, `…${job.parent.slice(-10)}`),
        story.parent?.state ? [" ", chip(story.parent.state)] : null] : null],
      ["Waits for", awaited(job) ? waits : null],
      ["Key", job.key], ...OPTIONS.map(([name, text]) => [name, text(job)]),
      ["Attempts", job.attempts_max ? `${job.attempt} of at most ${job.attempts_max}` : String(job.attempt)],
      ["Progress", typeof job.progress === "number" ? h("span", h("progress", { max: "1", value: job.progress, "aria-label": "Progress" }), ` ${progressOf(job)}`) : null],
      ["Duplicates with another body", story.differences ? plural(story.differences, "time") : null],
    ].filter(([, value]) => value).map(([name, value]) => h("div", h("dt", name), value instanceof HTMLElement && value.tagName === "DD" ? value : h("dd", value))));
    tools.replaceChildren(...actions(job));
    line.replaceChildren(...events(story).map(([kind, what, when, ...more]) => h(`li.${kind}`,
      h("div.row", h("span.strong", what), when ? h("time.faint", exactly(when)) : null), more)));
    const wanted = job.state === "waiting" && job.waits?.startsWith("event ") ? job.waits.slice(6) : "";
    if (event.wanted !== wanted) {
      event.wanted = wanted; // a value that is being entered stays otherwise
      event.replaceChildren(...(wanted ? [sender(wanted)] : []));
    }
    settle.replaceChildren(...(job.state === "in_doubt" ? story.steps.filter((one) => one.state === "intended").map(doubt) : []));
    values.replaceChildren(
      h("section", h("h2", "Body"), h("pre", { tabindex: "0", "aria-label": "Body" }, pretty(job.body))),
      "result" in job ? h("section", h("h2", "Result"), h("pre", { tabindex: "0", "aria-label": "Result" }, pretty(job.result))) : "");
  }

  function actions(job) {
    const retry = doing("Retry job", async () => {
      await post(`${path}/retry`);
      tell("Retrying.");
      await live.now();
    }, "main");
    const cancel = doing("Cancel job", async () => {
      if (!await ask("Cancel this job?", "A running attempt can no longer commit. Messages with the same key stay duplicates.", "Cancel job")) return;
      await remove(path);
      await live.now();
    });
    return [job.state === "failed" && retry, !["succeeded", "cancelled"].includes(job.state) && cancel].filter(Boolean);
  }

  function sender(name) {
    const field = h("textarea", { id: "value", rows: "3", spellcheck: "false", placeholder: "null" });
    const key = [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    return h("section.panel", h("h2", `Waits for the event “${name}”`),
      h("label", { for: "value" }, "Its value as JSON"), field,
      h("div.row", doing("Send event", async () => {
        await post(`${path}/events`, { event: name, value: parsed(field.value, "value"), key });
        tell("Sent. The job continues with that value.");
        await live.now();
      }, "main")));
  }

  function doubt(step) {
    const field = h("textarea", { id: "result", rows: "3", spellcheck: "false", placeholder: "null" });
    const send = (done, result) => async () => {
      await post(`${path}/settle`, { step: step.name, done, ...(done ? { result } : {}) });
      tell(done ? "Settled. The job continues with that result." : "Settled. The step will be retried.");
      await live.now();
    };
    return h("section.panel.warn", h("h2", `Was “${step.name}” done?`),
      h("p", `Attempt ${step.attempt} started this external call, and its outcome is unknown. Check the external system, then record the outcome.`),
      h("label", { for: "result" }, "If it was done: its result as JSON"), field,
      h("div.row",
        doing("Mark as done", () => send(true, parsed(field.value, "result"))(), "main"),
        doing("Mark as not done", send(false))));
  }

  const element = h("div.page", h("p.trail", h("a", { href: "#/queues" }, "Queues")),
    h("div.head", title, state, tools), wrong,
    h("div.two", h("div", facts, event, settle, output, bars.element, children.element, h("h2", "History"), line), values));
  return { title: "Job", element, stop: () => [live, reading].forEach((one) => one.stop()) };
}

/** The JSON value of a field; null if it is empty. */
function parsed(text, what) {
  if (!text.trim()) return null;
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`The ${what} is not JSON. Put text in quotes.`);
  }
}

/** What a job waits for without a worker; empty if it does not. `left` has the number of children
 * that have not ended, and of all. */
function awaited(job, left = null) {
  const limit = job.due_ms < FOREVER ? job.due_ms : 0;
  if (job.state === "scheduled") return `its time, ${exactly(job.due_ms)}`;
  if (job.state === "retrying") return `its next attempt, ${exactly(job.due_ms)}`;
  if (job.state !== "waiting") return "";
  const [kind, ...rest] = (job.waits ?? "").split(" ");
  if (kind === "event") return `the event “${rest.join(" ")}”${limit ? `, at the latest until ${exactly(limit)}` : ""}`;
  return `its children (call ${rest[0]})${left ? `: ${count(left[0])} of ${count(left[1])} have not ended` : ""}`;
}

/** The events of a job in order: [kind, what, when, ...more]. */
function events(story) {
  const job = story.job, found = [];
  if (story.cause) found.push(["cause", "Caused by", 0, link(story.cause)]);
  found.push(["first", job.key ? "Accepted and stored" : "Sent and stored", job.created_ms,
    h("p.faint", story.caller ? `from ${story.caller}` : "from the application")]);
  const past = job.history ?? [];
  if (past.length && past[0].attempt > 1) {
    found.push(["bad", `${plural(past[0].attempt - 1, "attempt")} before`, 0, h("p.faint", "not in the history")]);
  }
  const changes = (job.changes ?? []).filter((one) => one.kind !== "cancelled").map((one) => ["step",
    one.step ? `Step “${one.step}” settled as ${one.outcome}` : "Retried", one.at_ms,
    one.step && one.reason ? h("p.reason", one.reason) : null, h("p.faint", `by ${one.by || "the application"}`)]);
  const failures = past.map((one) => ["bad", `Attempt ${one.attempt} failed`, one.ended_ms, h("p.reason", one.reason),
    one.traceback ? h("details", h("summary", "Traceback"), h("pre", { tabindex: "0", "aria-label": `Traceback of attempt ${one.attempt}` }, one.traceback)) : null,
    h("p.faint", `by ${one.worker}`)]);
  found.push(...[...failures, ...changes].sort((one, other) => one[2] - other[2]));
  for (const step of story.steps) {
    found.push([step.state === "intended" ? "warn" : "step",
      step.state === "asleep" ? pause(step) : step.state === "done" ? `Step “${step.name}” is done` : `Step “${step.name}” is in doubt`,
      step.until_ms, step.state === "done" ? h("pre", { tabindex: "0", "aria-label": `Result of ${step.name}` }, pretty(step.result)) : null]);
  }
  for (const step of story.effects.filter((one) => one.kind === "step")) {
    found.push(["step", `Step “${step.name}” is done`, 0]);
  }
  if (job.state === "running") {
    found.push(["live", `Attempt ${job.attempt} is running`, 0, h("p.faint", `by ${job.worker}, leased until ${exactly(story.lease_until_ms)}`)]);
  } else if (job.state === "succeeded") {
    const effects = story.effects.filter((one) => one.kind !== "step");
    found.push(["good", `Succeeded in attempt ${job.attempt}`, job.ended_ms,
      h("p.faint", `by ${job.worker}, ${span(job.ended_ms - job.created_ms)} after it was sent`),
      effects.length ? h("p.faint", "In the same commit:") : null,
      effects.length ? h("ul.effects", effects.map((one) => h("li", link(one)))) : null]);
  } else if (ENDED.includes(job.state)) {
    found.push([job.state === "in_doubt" ? "warn" : "bad", job.state === "failed" ? "Failed permanently" : `The job is ${STATES[job.state]}`, job.ended_ms,
      job.state === "cancelled" ? h("p.reason", job.reason) : null,
      job.state === "cancelled" ? (job.changes ?? []).filter((one) => one.kind === "cancelled").slice(-1).map((one) => h("p.faint", `by ${one.by || "the application"}`)) : null]);
  } else {
    const timed = job.state === "scheduled" || job.state === "retrying";
    found.push(["live", `The job is ${STATES[job.state]}${timed ? " for" : ""}`, timed ? job.due_ms : 0,
      job.state === "waiting" ? h("p.faint", `for ${awaited(job)}`) : null]);
  }
  return found;
}

/** The name of a step that sleeps, or waits for an event. */
function pause(step) {
  const [, event] = /^wait \d+ for (.+)$/.exec(step.name) ?? [];
  return event ? `Waits for the event “${event}”${step.until_ms ? " until" : ""}` : "Sleeps";
}

function link(one) {
  switch (one.kind) {
    case "job": return h("span", "job ", h("a", { href: `#/jobs/${part(one.name)}` }, one.queue ? `of ${one.queue}` : `…${one.name.slice(-10)}`),
      " ", one.state ? chip(one.state) : null);
    case "timer": return h("span", "timer ", h("a", { href: `#/timers/${part(one.name)}?caller=${part(one.caller)}` }, one.name));
    case "room": return h("span", "room ", h("a", { href: `#/rooms/${part(one.name)}` }, one.name));
    default: return h("span", "record ", h("code", one.name));
  }
}
