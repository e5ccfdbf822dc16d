// The shell of the console: sign-in, navigation and connection status.

import { enter, leave, session, whoami } from "./api.js";
import { h, mark, put, tell } from "./dom.js";
import * as entrance from "./enter.js";

const PAGES = [
  { path: "", name: "Overview", load: () => import("./overview.js") },
  { path: "queues", name: "Queues", load: () => import("./queues.js"), also: ["jobs"] },
  { path: "timers", name: "Timers", load: () => import("./timers.js"), also: ["endpoints"] },
  { path: "rooms", name: "Rooms", load: () => import("./rooms.js") },
  { path: "tables", name: "Tables", load: () => import("./tables.js") },
  { path: "locks", name: "Locks", load: () => import("./locks.js") },
  { path: "settings", name: "Settings", load: () => import("./settings.js") },
];
// Pages without an entry in the navigation.
const INNER = {
  jobs: () => import("./job.js"),
};

const main = h("main", { id: "main", tabindex: "-1" });
const links = PAGES.map((page) => h("a", { href: `#/${page.path}` }, page.name));
const nav = h("nav", { "aria-label": "Pages" }, h("ul", links.map((link) => h("li", link))));
const light = h("span.light", { role: "status" });
const who = h("span.who");
const out = h("button.plain", { type: "button", onclick: signOut }, "Sign out");
const theme = h("button.plain", { type: "button", onclick: turn });
const bar = h("header.bar",
  h("button.skip", { type: "button", onclick: () => main.focus() }, "Skip to content"),
  h("a.brand", { href: "#/" }, h("span.mark", { "aria-hidden": "true" }), "Onceward"),
  nav,
  h("div.foot", light, h("a", { href: "docs" }, "API"), theme, who, out));

let shown = null;
let turns = 0;

/** Called by pages when the server stops responding, and when it responds again. */
function trouble(error) {
  put(light, error ? "Offline" : "Live");
  mark(light, "bad", error);
  light.title = error ? error.message : "";
}

async function show(first = false) {
  const turn = ++turns;
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name = "", ...rest] = path.split("/").map(read);
  const page = PAGES.find((one) => one.path === name || one.also?.includes(name)) ?? PAGES[0];
  links.forEach((link, number) => {
    if (PAGES[number] === page) {
      link.setAttribute("aria-current", "page");
      nav.scrollLeft = link.offsetLeft - nav.clientWidth / 2; // on narrow screens
    } else link.removeAttribute("aria-current");
  });
  const made = await (INNER[name] ?? page.load)();
  if (turn !== turns || !session.user) return;
  shown?.stop();
  shown = made.page({ rest, query: new URLSearchParams(query), trouble });
  document.title = `${shown.title} · Onceward`;
  main.replaceChildren(shown.element);
  scrollTo(0, 0);
  if (!first) (main.querySelector("h1") ?? main).focus({ preventScroll: true });
}

function read(word) {
  try {
    return decodeURIComponent(word);
  } catch {
    return word;
  }
}

async function begin() {
  paint();
  const link = /^#enter=(\w+)$/.exec(location.hash);
  if (link) history.replaceState(null, "", "#/"); // a one-time link does not belong in the history
  try {
    await (link ? enter({ link: link[1] }) : whoami());
    open(true);
  } catch (error) {
    close(error, link !== null);
  }
}

function open(first = false) {
  document.body.replaceChildren(bar, main);
  put(who, session.user.dev ? "dev mode" : session.user.name);
  trouble(null);
  return show(first);
}

function close(why, byLink = false) {
  turns += 1;
  shown?.stop();
  shown = null;
  document.title = "Sign in · Onceward";
  const page = entrance.page(why, byLink, open);
  document.body.replaceChildren(page);
  page.querySelector("input")?.focus();
}

async function signOut() {
  await leave().catch(() => {});
  close(null);
}

// The theme: that of the system, or the user's choice.
const THEMES = { "": "Theme: auto", light: "Theme: light", dark: "Theme: dark" };

function chosen() {
  try {
    return localStorage.getItem("onceward-theme") ?? "";
  } catch {
    return "";
  }
}

function paint() {
  const name = chosen() in THEMES ? chosen() : "";
  document.documentElement.dataset.theme = name;
  put(theme, THEMES[name]);
}

function turn() {
  const names = Object.keys(THEMES);
  const next = names[(names.indexOf(chosen()) + 1) % names.length];
  try {
    localStorage.setItem("onceward-theme", next);
  } catch {
    tell("This browser does not store settings.", true);
  }
  paint();
}

session.onover = (problem) => close(problem);
addEventListener("hashchange", () => {
  if (session.user) show();
  else begin();
});
begin();
