// The landing page. Its figures are counted outside the server by the stage, which also runs its
// commands. During a downtime the page shows it and waits.

import { mark, put } from "/console/dom.js";
import { plural, span } from "/console/format.js";
import { showStorm, showTimers } from "./cards.js";
import { watch } from "./crowd.js";
import { showProof } from "./proof.js";

const EVERY_MS = 400;
const AWAY_MS = 250;
const SOON_MS = 100;
const byId = (id) => document.getElementById(id);
const buttons = ["worker", "tenfold", "plug", "blow", "traffic"].map(byId);
const set = document.querySelector("#timer button");

let token = "";
let storm = { state: "calm", wrong: [] };
let goneAt = null;
let starts = 0;
let timer = 0;
let busy = false;
let plugged = false; // whether the server is about to be killed

/** Call the server. Rejects with its error, or if it does not respond. */
async function call(method, path, body) {
  const headers = { "content-type": "application/json", "onceward-demo": token };
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body), cache: "no-store" })
    .catch(() => null);
  const said = await answer?.json().catch(() => null);
  if (answer?.ok && said) return said;
  throw Object.assign(new Error(said?.detail ?? "Cannot reach the server."), { away: !said });
}

function show(state) {
  token = state.token;
  const { machines } = state;
  storm = state.storm;
  showProof(state);
  showTimers(state);
  showStorm(storm);
  byId("traffic").checked = state.traffic;
  byId("tenfold").setAttribute("aria-pressed", String(state.tenfold));
  put(byId("worker-said"), machines.worker_kills === 0 ? "In the middle of its jobs, with SIGKILL."
    : `${machines.workers_up} of ${machines.workers} running; ${machines.worker_kills} killed.`);
  const stopped = state.orders.stopped + state.timers.stopped;
  put(byId("tenfold-said"), stopped === 0 ? "At the same time, with the same keys."
    : `${plural(stopped, "duplicate")} detected by ${stopped === 1 ? "its key" : "their keys"}.`);
  put(byId("plug-said"), machines.server_kills === 0 ? "With SIGKILL. This page waits for it."
    : `Killed ${plural(machines.server_kills, "time")}; the last downtime was ${span(machines.away_ms)}.`);
  put(byId("running"), `Running: the server, ${plural(machines.workers, "worker")}, and the program that starts them`
    + " and counts. Press Ctrl-C in its terminal to stop everything.");
}

/** Show whether the server responds, and its downtime. */
function lit(there, awayMs = null) {
  const light = byId("light");
  for (const button of [...buttons, set]) button.disabled = !there;
  if (there) {
    showStorm(storm);
    put(light, awayMs === null ? "The server is running" : `The server is back; it was down for ${span(awayMs)}`);
    goneAt = null;
  } else {
    goneAt ??= performance.now();
    put(light, `The server has been down for ${span(performance.now() - goneAt)}`);
  }
  mark(light, "good", there);
  mark(light, "bad", !there);
}

async function look() {
  if (busy) return;
  busy = true;
  clearTimeout(timer);
  let pause = EVERY_MS;
  try {
    if (!document.hidden) {
      const state = await call("GET", "/demo/state");
      show(state);
      const awayMs = away(state.machines);
      if (awayMs !== null || !byId("light").classList.contains("good")) lit(true, awayMs);
    }
    if (plugged) pause = SOON_MS;
  } catch {
    lit(false);
    plugged = false;
    pause = AWAY_MS;
  }
  busy = false;
  timer = setTimeout(look, pause);
}

/** The downtime of the server: as reported by the stage, or as seen from here. */
function away({ server_starts: now, away_ms: ms }) {
  const again = starts > 0 && now > starts;
  starts = now;
  if (again) return ms;
  return goneAt === null ? null : performance.now() - goneAt;
}

/** Send a command; show an error next to its button. */
async function want(order, wrong = byId("wrong")) {
  put(wrong, "");
  try {
    await call("POST", "/demo/do", order);
    plugged = order.what === "plug";
    await look();
  } catch (error) {
    put(wrong, error.message);
  }
}

byId("worker").addEventListener("click", () => want({ what: "worker" }));
byId("plug").addEventListener("click", () => want({ what: "plug" }));
byId("blow").addEventListener("click", () => want({ what: "storm" }));
byId("tenfold").addEventListener("click", ({ currentTarget }) =>
  want({ what: "tenfold", on: currentTarget.getAttribute("aria-pressed") !== "true" }));
byId("traffic").addEventListener("change", ({ currentTarget }) => want({ what: "traffic", on: currentTarget.checked }));
byId("timer").addEventListener("submit", (event) => {
  event.preventDefault();
  want({ what: "timer", delay_s: byId("delay").valueAsNumber }, byId("timer-wrong"));
});
byId("console").addEventListener("click", async () => {
  try {
    location.assign((await call("POST", "/demo/console", {})).address);
  } catch (error) {
    put(byId("wrong"), error.message);
  }
});
document.addEventListener("visibilitychange", look);
const server = location.port === "8080" ? "" : ` --server ${location.origin}`;
put(byId("commands"), [
  `onceward send orders '{"item": "lamp"}' --key order-1 --wait-s 5${server}`,
  `curl '${location.origin}/v1/inbox/orders?wait_ms=5000' -H 'Idempotency-Key: order-1' \\`,
  `    -H 'Content-Type: application/json' -d '{"body": {"item": "lamp"}}'`,
  `onceward timers create --delay-s 3 --queue orders --body '{"item": "rug"}'${server}`,
  `onceward queues list${server}`,
].join("\n"));
look();
watch();
