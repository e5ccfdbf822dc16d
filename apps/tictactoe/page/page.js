// The page to play on. The table's room has the state; actions go to the server, which decides
// whether they are allowed.

import { Live } from "/client.js";

const LINES = [[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]];
const STATUS = {
  connected: (user) => `Signed in as ${user}`,
  connecting: () => "Connecting …",
  closed: () => "Disconnected. Reload the page.",
};
const STEP_MS = 700;
const PAUSE_MS = 500;
const TRIES = 120;

const byId = (id) => document.getElementById(id);
const cells = [];
let live = null;
let room = null;
let club = { tables: [], now_ms: Date.now() };
let table = "";
let place = { role: "" };
let ahead = 0;
let asking = false;
let again = false;
let watching = null;

/**
 * The token after the # of the URL, and a lane to wait in; or the stored ones. In dev mode, a name
 * is enough.
 */
function token() {
  const given = new URLSearchParams(location.hash.slice(1));
  if (given.has("token")) {
    sessionStorage.setItem("token", given.get("token"));
    sessionStorage.setItem("lane", given.get("lane") ?? "");
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem("token");
}

/**
 * Call the server, and repeat the call until there is a response. All calls here are idempotent.
 */
async function call(method, path, body) {
  const headers = { Authorization: `Bearer ${token()}`, "Content-Type": "application/json" };
  for (let left = TRIES; ; left--) {
    const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) }).catch(() => null);
    const said = await answer?.json().catch(() => null);
    if (answer?.ok && said) {
      if (live?.state === "connecting") {
        live.wake(); // the server responds, so reconnect without waiting
      }
      return said;
    }
    if (left === 1 || (said && answer.status < 500)) {
      throw Object.assign(new Error(said?.detail ?? "Cannot reach the server. Try again later."), { code: said?.code });
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}

const at = (what) => `/v1/tables/${encodeURIComponent(table)}${what}`;

/** Act at the table; shows the error of a rejected action. */
async function act(what, body = {}) {
  byId("wrong").textContent = "";
  try {
    const answer = await call("POST", at(`/${what}`), body);
    if (what !== "move") {
      place = answer;
      draw();
    }
  } catch (error) {
    byId("wrong").textContent = error.message;
  }
}

/** Load the user's place, with one request at a time. */
async function look() {
  if (asking) {
    again = true;
    return;
  }
  asking = true;
  try {
    do {
      again = false;
      const asked = table;
      const found = await call("GET", at("/place")).catch(() => place);
      if (asked === table) {
        place = found;
        draw();
      } else {
        again = true; // the user has moved to another table
      }
    } while (again);
  } finally {
    asking = false;
  }
}

function seats() {
  return room?.map("seats").whole() ?? {};
}

const state = () => room?.map("table").get("state") ?? {};

function draw() {
  const game = room?.map("game").get("now");
  const last = room?.map("game").get("last");
  const mine = game !== undefined && game.players[place.marker] === live.user ? place.marker : "";
  const active = mine !== "" && game.awaited.includes(mine);
  drawPlayers(game);
  if (watching === null) {
    drawBoard((game ?? last)?.state ?? Array(9).fill(""), active, game === undefined);
    put("message", message(game, last, mine, active));
  }
  drawWaitlist();
  byId("join").hidden = place.role === "seated" || place.role === "waiting";
  byId("leave").hidden = !byId("join").hidden;
  byId("leave").textContent = place.role === "waiting" ? "Leave the waitlist" : "Leave the table";
  const asked = state().phase === "ready";
  byId("ready").hidden = !asked || place.role !== "seated" || Boolean(seats()[place.marker]?.ready);
  byId("before").hidden = last === undefined;
  byId("ended").textContent = last === undefined ? "" : `${ended(last)}.`;
  document.title = active ? "Your turn · Tic-tac-toe" : "Tic-tac-toe";
  count();
}

function drawPlayers(game) {
  for (const section of byId("players").children) {
    const { marker } = section.dataset;
    const seat = seats()[marker];
    const mine = place.role === "seated" && place.marker === marker;
    section.querySelector(".user").textContent = seat ? named(seat.user, mine) : "Empty";
    const wins = seat?.wins ?? 0;
    const left = seat?.away_ms ? "Disconnected" : wins > 0 ? `${wins} ${wins === 1 ? "win" : "wins"} in a row` : "";
    section.querySelector(".wins").textContent = left;
    section.classList.toggle("mine", mine);
    section.classList.toggle("empty", !seat);
    section.classList.toggle("turn", Boolean(seat?.turn && game));
    section.classList.toggle("warned", Boolean(seat?.warned));
  }
}

/** Set a text if it differs, so that screen readers read it once. */
function put(id, text) {
  if (byId(id).textContent !== text) {
    byId(id).textContent = text;
  }
}

const named = (user, mine) => (mine ? `${user} (you)` : user);

/** The waitlist from the live view: the first entries of each lane, by priority and number. */
function drawWaitlist() {
  const lanes = room?.map("line").whole() ?? {};
  const rank = ({ lane }) => [lanes[lane]?.priority ?? 0, lanes[lane]?.tier ?? 0, lanes[lane]?.size ?? 1];
  const waiting = Object.values(room?.map("waitlist").whole() ?? {}).sort((one, other) => {
    const [a, b] = [[...rank(one), one.number], [...rank(other), other.number]];
    const at = a.findIndex((value, index) => value !== b[index]);
    return at < 0 ? 0 : a[at] - b[at];
  });
  const several = new Set(waiting.map(({ lane }) => lane)).size > 1;
  byId("waitlist").replaceChildren(...waiting.map((one) => waiter(one, several ? lanes[one.lane] : undefined)));
  const shown = waiting.reduce((sum, { size }) => sum + size, 0);
  const total = state().waiting ?? 0;
  byId("more").textContent = total === 0 ? "No players are waiting." : total > shown ? `and ${total - shown} more` : "";
}

function waiter({ lane, number, size, users }, of) {
  const mine = place.role === "waiting" && place.lane === lane && (place.number ?? 0) === number;
  const anonymous = size === 1 ? "Player" : `Party of ${size}`;
  const name = users === undefined ? anonymous : users.join(", ");
  const item = Object.assign(document.createElement("li"), { textContent: mine && users === undefined ? "You" : named(name, mine) });
  if (of !== undefined) {
    const [title] = lane.split("/");
    const text = of.tier > 0 ? `${title}, tier ${of.tier + 1}` : title;
    item.append(Object.assign(document.createElement("small"), { textContent: text }));
  }
  if (mine) {
    item.className = "mine";
    item.setAttribute("aria-current", "true");
  }
  return item;
}

function drawBoard(cellsNow, active, over) {
  const line = LINES.find(([a, b, c]) => cellsNow[a] && cellsNow[a] === cellsNow[b] && cellsNow[a] === cellsNow[c]);
  byId("board").classList.toggle("inactive", !active);
  byId("board").classList.toggle("over", over && line !== undefined);
  cells.forEach((cell, number) => {
    const mark = cellsNow[number];
    cell.textContent = mark;
    const open = active && mark === "";
    // It stays in the tab order, so that the keyboard focus is kept.
    cell.setAttribute("aria-disabled", String(!open));
    const where = `row ${Math.floor(number / 3) + 1}, column ${(number % 3) + 1}`;
    cell.setAttribute("aria-label", `${where}: ${mark || "empty"}`);
    cell.classList.toggle("winning", Boolean(over && line?.includes(number)));
    if (mark === "") {
      delete cell.dataset.mark;
    } else {
      cell.dataset.mark = mark;
    }
  });
}

function message(game, last, mine, active) {
  if (game !== undefined) {
    const turn = game.awaited.map((marker) => `${game.players[marker]} (${marker})`).join(", ");
    return active ? `Your turn. You play ${mine}.` : `${turn} to move`;
  }
  if (last !== undefined) {
    return ended(last);
  }
  return place.role === "seated" ? "Waiting for an opponent" : "No game yet";
}

function ended({ outcome, players }) {
  const winners = outcome.winners.map((marker) => (players[marker] === live.user ? "You" : players[marker])).join(", ");
  if (outcome.why === "stopped") {
    return "The game was stopped";
  }
  if (winners === "") {
    return "Draw";
  }
  const why = { timeout: " on time", left: ": the opponent left" }[outcome.why] ?? "";
  return `${winners} won${why}`;
}

/** What the user can do now. */
function rank() {
  if (state().paused) {
    return "The table is paused.";
  }
  if (place.role === "waiting") {
    return `You are number ${place.position} in the waitlist.`;
  }
  if (place.role === "seated") {
    const waits = room.map("game").get("now") !== undefined && byId("board").classList.contains("inactive");
    return waits ? "Wait for your turn." : "";
  }
  return "You are watching. Join the table to play.";
}

/** Remaining times; they change every second, so screen readers skip them. */
function times() {
  const { paused, starts_ms: startsMs, pace_ms: paceMs = 0, paced_ms: pacedMs = 0 } = state();
  if (paused) {
    return "";
  }
  if (startsMs !== undefined) {
    return `Next game in ${duration(Math.max(0, startsMs - now()))}.`;
  }
  const left = (place.ahead ?? 0) * paceMs + Math.max(paceMs - (now() - pacedMs), 0);
  return place.role === "waiting" ? `About ${duration(left)} to wait.` : "";
}

const now = () => Date.now() + ahead;

function duration(ms) {
  const seconds = Math.ceil(ms / 1000);
  return seconds < 90 ? `${seconds}\u00a0s` : `${Math.round(seconds / 60)}\u00a0min`;
}

/** Update the clocks. */
function count() {
  for (const section of byId("players").children) {
    const seat = seats()[section.dataset.marker];
    const due = seat?.away_ms || (seat?.turn ? seat.due_ms : 0);
    section.querySelector("time").textContent = due ? `${duration(Math.max(0, due - now()))} left` : "";
  }
  put("rank", room === null ? "" : rank());
  put("hint", room === null ? "" : times());
}

async function replay() {
  const { match } = room.map("game").get("last");
  clearTimeout(watching);
  const { views } = await call("GET", `/v1/matches/${match}/replay`);
  const next = (number) => {
    drawBoard(views[number].state, false, number === views.length - 1);
    byId("message").textContent = `Replay: move ${number} of ${views.length - 1}`;
    watching = setTimeout(() => {
      if (number + 1 < views.length) {
        next(number + 1);
      } else {
        watching = null;
        draw();
      }
    }, STEP_MS);
  };
  next(0);
}

/** The ranking of ranked tables; it changes at the end of a game. */
async function rankAll() {
  const ranked = club.tables.find(({ id }) => id === table)?.kind === "ranked";
  const { leaders } = ranked ? await call("GET", "/v1/ladders/tictactoe?limit=10") : { leaders: [] };
  byId("best").hidden = leaders.length === 0;
  byId("leaders").replaceChildren(
    ...leaders.map(({ user, rating }) => {
      const item = Object.assign(document.createElement("li"), { textContent: named(user, user === live.user) });
      item.classList.toggle("mine", user === live.user);
      item.append(Object.assign(document.createElement("small"), { textContent: rating }));
      return item;
    }),
  );
}

async function sit(id) {
  room?.leave();
  room = null; // until the other room is joined
  table = id;
  place = { role: "" };
  drawBoard(Array(9).fill(""), false, false); // no moves until the room is loaded
  byId("message").textContent = "";
  for (const button of byId("tables").children) {
    button.setAttribute("aria-current", String(button.dataset.table === id));
  }
  const joined = await live.join(club.tables.find((one) => one.id === id).room);
  if (table !== id) {
    joined.leave(); // the user has moved on to yet another table
    return;
  }
  room = joined;
  for (const name of ["seats", "table", "line"]) {
    room.map(name).subscribe(look);
  }
  room.map("waitlist").subscribe(draw);
  room.map("game").subscribe(draw);
  room.map("game").subscribe(() => rankAll().catch(() => {}), "last");
  room.onStatus((status) => {
    if (status === "live") {
      look();
    }
  });
  await Promise.all([look(), rankAll().catch(() => {})]);
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
    live?.close();
    live = new Live(null, { token });
    live.onState((now) => tell(STATUS[now]?.(live.user) ?? now, now === "closed"));
    club = await call("GET", "tables");
    ahead = club.now_ms - Date.now();
    byId("tables").replaceChildren(...club.tables.map(tableButton));
    byId("club").hidden = false;
    await sit(club.tables[0].id);
  } catch (error) {
    tell(error.message, true);
    sessionStorage.removeItem("token");
    byId("enter").hidden = false;
  }
}

function tableButton({ id, kind }) {
  const button = Object.assign(document.createElement("button"), { type: "button", className: "quiet", textContent: id === kind ? id : `${id} (${kind})` });
  button.dataset.table = id;
  button.addEventListener("click", () => sit(id));
  return button;
}

for (const marker of ["X", "O"]) {
  const section = byId("player").content.cloneNode(true).firstElementChild;
  section.dataset.marker = marker;
  section.querySelector(".marker").textContent = marker;
  byId("players").append(section);
}
for (let number = 0; number < 9; number++) {
  const cell = Object.assign(document.createElement("button"), { type: "button", className: "cell" });
  cell.addEventListener("click", () => {
    const game = room?.map("game").get("now");
    if (cell.getAttribute("aria-disabled") === "false" && game !== undefined) {
      const move = { move: number, number: game.number, match: game.match };
      act("move", { move, key: `${game.match}:${game.number}` });
    }
  });
  cells.push(cell);
  byId("board").append(cell);
}
drawBoard(Array(9).fill(""), false, false);
byId("board").addEventListener("keydown", (event) => {
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -3, ArrowDown: 3 }[event.key];
  const from = cells.indexOf(document.activeElement);
  const to = from + step;
  const same = Math.abs(step) === 3 || Math.floor(from / 3) === Math.floor(to / 3);
  if (step !== undefined && same && cells[to] !== undefined) {
    cells[to].focus();
    event.preventDefault();
  }
});
byId("enter").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", `dev:${byId("name").value.trim()}`);
  come();
});
byId("join").addEventListener("click", () => {
  const lane = sessionStorage.getItem("lane");
  act("join", lane ? { lane } : {});
});
byId("leave").addEventListener("click", () => act("leave"));
byId("ready").addEventListener("click", () => act("ready"));
byId("replay").addEventListener("click", () => replay().catch((error) => tell(error.message, true)));
setInterval(count, 1000);
come();
