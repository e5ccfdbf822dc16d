// The page of one player. A room signals news; the news themselves are loaded with the player's
// token.

import { Live } from "/client.js";

const PAUSE_MS = 1000;
const TRIES = 60;

const api = new URL("play/", document.baseURI);
const byId = (id) => document.getElementById(id);
let live = null;
const heard = new Set();
let due = [];
let ahead = 0;

/** The token after the # of the URL, or the stored one; in dev mode, a name is enough. */
function token() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given !== null) {
    sessionStorage.setItem("rps-token", given);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem("rps-token");
}

async function call(path, options = {}) {
  const answer = await fetch(new URL(path, api), {
    ...options,
    headers: { Authorization: `Bearer ${token()}`, "Content-Type": "application/json" },
  });
  const said = await answer.json().catch(() => ({ detail: "cannot reach the server" }));
  if (!answer.ok) {
    throw Object.assign(new Error(said.detail), { final: answer.status < 500 });
  }
  return said;
}

/** Like `crypto.randomUUID`, which is available only over HTTPS and on localhost. */
function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Send a command, and repeat it with the same id until there is a response. */
async function send(text) {
  const body = JSON.stringify({ id: randomId(), text });
  for (let left = TRIES; ; left--) {
    try {
      await call("texts", { method: "POST", body });
      if (live?.state === "connecting") {
        live.wake(); // the server responds, so reconnect without waiting
      }
      return;
    } catch (error) {
      if (error.final || left === 1) {
        tell(error.message, true);
        return;
      }
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}

async function refresh() {
  try {
    show(await call("me"));
  } catch (error) {
    tell(error.message, true);
  }
}

function show(me) {
  ahead = me.now_ms - Date.now();
  byId("claim").hidden = me.nick !== "";
  byId("player").hidden = me.nick === "";
  byId("who").textContent = me.nick;
  const { wins, losses, ties } = me.score;
  byId("score").textContent = `${wins} won, ${losses} lost, ${ties} tied`;
  byId("none").hidden = me.games.length > 0;
  byId("hears").hidden = me.heard.length === 0;
  due = [];
  byId("games").replaceChildren(...me.games.map(gameItem));
  for (const { id, text } of me.heard) {
    if (!heard.has(id)) {
      heard.add(id);
      byId("heard").prepend(Object.assign(document.createElement("li"), { textContent: text }));
    }
  }
  count();
}

function gameItem({ nick, mine, due_ms }) {
  const item = document.createElement("li");
  item.dataset.nick = nick;
  const words = document.createElement("span");
  words.textContent = mine === null ? `${nick} is waiting for you.` : `You threw ${mine} at ${nick}.`;
  item.append(words);
  if (due_ms !== null) {
    const left = document.createElement("time");
    due.push([left, due_ms]);
    item.append(left);
  }
  if (mine === null) {
    const answer = document.createElement("button");
    answer.type = "button";
    answer.textContent = `Throw at ${nick}`;
    answer.addEventListener("click", () => {
      byId("opponent").value = nick;
      document.querySelector(".plays button").focus();
    });
    item.append(answer);
  }
  return item;
}

function count() {
  for (const [element, at] of due) {
    const left = Math.max(0, Math.round((at - Date.now() - ahead) / 1000));
    element.textContent = `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")} left`;
  }
}

function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function tell(text, wrong = false) {
  byId("status").textContent = text;
  byId("status").classList.toggle("wrong", wrong);
}

async function come() {
  byId("enter").hidden = token() !== null;
  if (token() === null) {
    tell("");
    byId("name").focus();
    return;
  }
  try {
    const me = await call("me");
    show(me);
    byId(me.nick === "" ? "nick" : "opponent").focus();
    live?.close();
    live = new Live(null, { token: token() });
    live.onState((state) => tell(state === "connected" ? `Signed in as ${me.user}` : sentence(state)));
    const room = await live.join(me.room);
    room.map("news").subscribe(refresh);
    room.onStatus((status) => status === "live" && refresh());
    refresh();
  } catch (error) {
    tell(error.message, true);
    sessionStorage.removeItem("rps-token");
    byId("enter").hidden = false;
  }
}

byId("enter").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("rps-token", `dev:${byId("name").value.trim()}`);
  come();
});
byId("claim").addEventListener("submit", (event) => {
  event.preventDefault();
  send(`nick ${byId("nick").value}`);
});
byId("throw").addEventListener("submit", (event) => {
  event.preventDefault();
  send(`throw ${event.submitter.value} ${byId("opponent").value.trim()}`);
});
setInterval(count, 1000);
come();
