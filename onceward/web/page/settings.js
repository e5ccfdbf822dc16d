// Settings: sessions, API keys and the configuration of the server.

import { get, part, post, remove, session } from "./api.js";
import { ask, doing, h, once, put, table, tell } from "./dom.js";
import { exactly, time } from "./format.js";

export function page() {
  const grants = session.user.grants.map(({ action, name, pattern }) => [action, name || pattern].filter(Boolean).join(":"));
  const you = h("dl.facts", [
    ["Signed in as", session.user.name], ["Scopes", grants.join(", ") || "none"],
    ["Until", exactly(session.user.until)], ["Mode", session.user.dev ? "dev mode: programs on this machine need no key" : "with keys"],
  ].map(([name, value]) => h("div", h("dt", name), h("dd", value))));
  const element = h("div.page", h("div.head", h("h1", { tabindex: "-1" }, "Settings")), you,
    sessions(), session.user.everything ? [keys(), settings()] : h("p.none", "Keys and settings require the scope all."));
  return { title: "Settings", element, stop() {} };
}

function sessions() {
  const list = table("Sessions", [
    { name: "Caller", kind: "name", show: (one) => one.caller },
    { name: "Since", kind: "number", show: (one) => time(one.created_ms) },
    { name: "Until", kind: "number", show: (one) => time(one.until_ms) },
    { name: "Browser", kind: "wide", show: (one) => one.current ? `${one.agent} (this one)` : one.agent },
    { name: "", update: once((cell, one) => {
      cell.append(doing("Revoke session", async () => {
        if (!await ask(`Revoke a session of ${one.caller}?`, "It ends immediately on all nodes.", "Revoke session")) return;
        await remove(`v1/sessions/${part(one.id)}?caller=${part(one.caller)}`);
        await refresh();
      }));
    }) },
  ], (one) => one.id, "No sessions.");
  const refresh = async () => {
    const found = await get(session.user.everything ? "v1/sessions?everyone=true" : "v1/sessions");
    list.update(found.sessions.map((one) => ({ ...one, current: one.id === found.current })));
  };
  refresh().catch((error) => tell(error.message, true));
  return h("section", h("h2", "Sessions"), list.element);
}

function keys() {
  const list = table("API keys", [
    { name: "Caller", kind: "name", show: (key) => key.name },
    { name: "Scopes", kind: "wide", show: (key) => key.scopes.join(", ") },
    { name: "Created", kind: "number", show: (key) => time(key.created_ms) },
    { name: "By", show: (key) => key.by },
    { name: "Digest", update: once((cell, key) => { cell.append(h("code", key.id.slice(0, 10))); }) },
    { name: "", update: once((cell, key) => {
      cell.append(doing("Remove key", async () => {
        if (!await ask(`Remove the key of ${key.name}?`, "Requests with this key are rejected, here immediately and on other nodes within seconds.", "Remove key")) return;
        await remove(`v1/keys/${part(key.id)}`);
        await refresh();
      }));
    }) },
  ], (key) => key.id, "No keys were created here. Keys in the server’s settings are not listed.");
  const name = h("input", { id: "name", required: true, autocomplete: "off", spellcheck: "false", placeholder: "billing" });
  const scopes = h("textarea", { id: "scopes", required: true, rows: "2", autocomplete: "off", spellcheck: "false", placeholder: "send:invoices.*\nlock:billing" });
  const wrong = h("p.wrong", { role: "alert" });
  const made = h("div", { role: "status" });
  const form = h("form", { onsubmit: async (event) => {
    event.preventDefault();
    put(wrong, "");
    made.replaceChildren();
    try {
      // Names can contain spaces and commas, so only line breaks separate scopes.
      const lines = scopes.value.split("\n").map((line) => line.trim()).filter(Boolean);
      const key = await post("v1/keys", { name: name.value.trim(), scopes: lines });
      made.replaceChildren(h("p", h("strong", `Key of ${key.name}.`), " It is shown only once. Copy it now."),
        h("code.secret", key.key),
        h("div.row", doing("Copy key", async () => {
          await navigator.clipboard.writeText(key.key);
          tell("Copied.");
        }), doing("Hide key", () => made.replaceChildren())));
      form.reset();
      await refresh();
    } catch (error) {
      put(wrong, error.message);
    }
  } }, h("div.fields", h("div", h("label", { for: "name" }, "Caller"), name),
    h("div.all", h("label", { for: "scopes" }, "Scopes, one per line"), scopes)),
  wrong, h("button.main", { type: "submit" }, "Create key"));
  const refresh = async () => list.update((await get("v1/keys")).keys);
  refresh().catch((error) => put(wrong, error.message));
  return h("section", h("h2", "API keys"),
    session.user.dev && h("p.faint", "In dev mode no key is needed. These keys apply once the server has keys in its settings."),
    list.element, h("section.panel", h("h2", "New key"), form, made));
}

function settings() {
  const list = table("Settings of the server", [
    { name: "Setting", kind: "name", show: (one) => one.name },
    { name: "Value", kind: "wide", show: (one) => one.value || "–" },
    { name: "From", show: (one) => one.source },
    { name: "Meaning", kind: "prose", show: (one) => one.meaning },
  ], (one) => one.name, "This server was configured by a program.");
  get("v1/settings").then((found) => list.update(found.settings)).catch((error) => tell(error.message, true));
  return h("section", h("h2", "Server"), list.element);
}
