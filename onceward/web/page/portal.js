// The page of an endpoint for its owner: recent calls, the signing secret, tests and resends.

import { bear, get, part, post, query, repeat } from "./api.js";
import { ask, doing, h, once, put, table, tell } from "./dom.js";
import { brief, exactly, plural, pretty, span, time } from "./format.js";

const STORE = "onceward-portal";
const main = h("main.portal");
const OVERLAP_MS = 86400000;

/** The token of the link. It does not stay in the address, which the browser remembers. */
function taken() {
  const given = /^#token=([\w.=-]+)$/.exec(location.hash);
  if (given) {
    history.replaceState(null, "", location.pathname);
    sessionStorage.setItem(STORE, given[1]);
  }
  return sessionStorage.getItem(STORE) ?? "";
}

/** The id of the endpoint that a token is for. */
function endpointOf(token) {
  try {
    const text = token.replace(/^owp_/, "").split(".")[0].replaceAll("-", "+").replaceAll("_", "/");
    const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
    return JSON.parse(new TextDecoder().decode(bytes)).endpoint;
  } catch {
    return "";
  }
}

function refuse(message) {
  document.title = "Webhook endpoint";
  main.replaceChildren(brand(), h("h1", { tabindex: "-1" }, "Link not valid"), h("p.wrong", { role: "alert" }, message),
    h("p", "Ask the sender of the webhooks for a new link to this page."));
}

const brand = () => h("div.brand", h("span.mark", { "aria-hidden": "true" }), "Webhooks");

function page(id) {
  const path = (rest = "") => `v1/endpoints/${part(id)}${rest}`;
  const title = h("h1", { tabindex: "-1" }, id), facts = h("dl.facts"), wrong = h("p.wrong", { role: "alert" });
  const secrets = h("ul.secrets", { hidden: true });
  const state = h("select", { id: "state", onchange: () => { shown = []; live.now(); } },
    [["", "All"], ["failed", "Failed"], ["succeeded", "Succeeded"], ["pending", "Pending"]]
      .map(([value, name]) => h("option", { value }, name)));
  const older = doing("Show older calls", async () => {
    const found = await get(query(path("/deliveries"), { state: state.value, after: next }));
    shown = [...shown, ...found.deliveries];
    next = found.next;
    draw();
  });
  let shown = [], next = null;

  const rows = table("Calls", [
    { name: "Time", show: (one) => time(one.due_ms) },
    { name: "Event", show: (one) => (one.resent ? `${one.timer} (resent)` : one.timer) },
    { name: "State", show: (one) => one.state },
    { name: "Attempts", kind: "number.wide", show: (one) => String(one.attempts.length) },
    { name: "Response", kind: "wide", show: (one) => brief((one.attempts.at(-1)?.said ?? "–").split(": ")[0], 60) },
    { name: "Latency", kind: "number.wide", show: (one) => span(one.latency_ms) },
    { name: "Actions", update: once((cell, first) => {
      const resend = doing("Resend", async () => {
        await post(path(`/deliveries/${part(first.id)}/resend`));
        tell("Resent with the same webhook-id.");
        await live.now();
      });
      cell.append(doing("Details", () => detail(first.id)), resend);
      return (one) => { resend.hidden = !["succeeded", "failed", "cancelled"].includes(one.state); };
    }) },
  ], (one) => one.id, "No calls in the last week.");

  function draw() {
    rows.update(shown);
    older.hidden = !next;
  }

  async function detail(call) {
    const one = await get(path(`/deliveries/${part(call)}`));
    const log = one.attempts.map((past) => h("li", h("span.strong", `Attempt ${past.attempt}: ${past.outcome}`),
      ` ${exactly(past.at_ms)}`, h("p.reason", past.said)));
    const close = h("button.main", { value: "close" }, "Close");
    const dialog = h("dialog", { "aria-labelledby": "detail" }, h("form", { method: "dialog" },
      h("h2", { id: "detail" }, `Call ${one.resent ?? one.id}`), h("ul", log.length ? log : h("li", "No attempt has ended yet.")),
      h("h3", "Body"), h("pre", { tabindex: "0", "aria-label": "Body" }, one.body === undefined || one.body === null ? "default" : pretty(one.body)),
      h("div.row.end", close)));
    dialog.addEventListener("close", () => dialog.remove());
    main.append(dialog);
    dialog.showModal();
  }

  function secretsOf(found) {
    secrets.replaceChildren(...(found.secrets ?? []).map((one) => h("li", h("code", one.secret),
      one.until_ms ? ` valid until ${exactly(one.until_ms)}` : "")));
    secrets.hidden = false;
  }

  const live = repeat(async () => {
    try {
      await load();
      put(wrong, "");
    } catch (error) {
      if (![401, 403, 404].includes(error.status)) throw error;
      live.stop();
      refuse(error.message);
    }
  }, 3000, (error) => put(wrong, error?.message));

  async function load() {
    const endpoint = await get(path());
    put(title, endpoint.description || endpoint.id);
    document.title = `${endpoint.description || endpoint.id} · Webhooks`;
    const health = endpoint.health;
    const health_ = endpoint.disabled ? "disabled" : health.failing ? `failing since ${exactly(health.since_ms)}` : "ok";
    const wanted = [["URL", endpoint.url], ["Endpoint", endpoint.id], ["State", health_]];
    if (facts.textContent !== wanted.flat().join("")) {
      facts.replaceChildren(...wanted.map(([name, value]) => h("div", h("dt", name), h("dd", value))));
    }
    const found = await get(query(path("/deliveries"), { state: state.value }));
    const last = found.next && found.deliveries.at(-1)?.id;
    const rest = last ? shown.filter((one) => one.id < last) : []; // older calls have lower ids
    if (!rest.length) next = found.next;
    shown = [...found.deliveries, ...rest];
    draw();
  }

  main.replaceChildren(brand(), title, wrong, facts,
    h("div.row.tools",
      doing("Send test call", async () => {
        await post(path("/test"));
        tell("Sent a test call.");
        await live.now();
      }, "main"),
      doing("Resend failed calls", async () => {
        let after = "", resent = 0;
        do {
          const done = await post(path("/resend"), { after });
          resent += done.resent;
          after = done.next;
        } while (after);
        tell(`Resent ${plural(resent, "call")}.`);
        await live.now();
      }),
      doing("Show secret", async () => secretsOf(await get(query(path(), { secret: true })))),
      doing("Rotate secret", async () => {
        const sure = await ask("Rotate the secret?", "Calls are signed with both secrets for one day. Update your receiver within that time.", "Rotate secret");
        if (sure) secretsOf(await post(path("/rotate"), { overlap_ms: OVERLAP_MS }));
      }, "danger")),
    secrets,
    h("h2", "Calls"),
    h("div.row", h("label", { for: "state" }, "State"), state), rows.element, h("div.row", older));
  draw();
}

function begin() {
  document.body.replaceChildren(main);
  const token = taken(), id = endpointOf(token);
  if (!id) {
    refuse("This address has no link to an endpoint.");
    return;
  }
  bear(token);
  page(id);
}

addEventListener("hashchange", () => location.reload()); // another link in the same tab
begin();
