// A page to play at. What is shown comes from the table's room; what is done goes to the server,
// which says whether it may be. The page decides nothing.

import { Live } from "/client.js";

const LINES = [[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]];
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

/** A token from behind the # of the address, or from before; in dev mode, a name will do. */
function token() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given !== null) {
    sessionStorage.setItem("token", given);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem("token");
}

/** Ask, and again while nobody answers: whatever is asked here can be asked twice. */
async function call(method, path, body) {
  const headers = { Authorization: `Bearer ${token()}`, "Content-Type": "application/json" };
  for (let left = TRIES; ; left--) {
    const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) }).catch(() => null);
    const said = await answer?.json().catch(() => null);
    if (answer?.ok && said) {
      if (live?.state === "connecting") {
        live.wake(); // whoever answers can be connected to, without the rest of a pause
      }
      return said;
    }
    if (left === 1 || (said && answer.status < 500)) {
      throw Object.assign(new Error(said?.detail ?? "the server does not answer"), { code: said?.code });
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}

const at = (what) => `/v1/tables/${encodeURIComponent(table)}${what}`;

/** Do something at the table; what may not be is said, and changes nothing. */
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

/** Find out where one is. However much changes, one question is under way. */
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
        again = true; // one has gone to another table meanwhile
      }
    } while (again);
  } finally {
    asking = false;
  }
}

function seats() {
  return room?.map("seats").whole() ?? {};
}

function draw() {
  const game = room?.map("game").get("now");
  const last = room?.map("game").get("last");
  const mine = game !== undefined && game.players[place.marker] === live.user ? place.marker : "";
  const active = mine !== "" && game.awaited.includes(mine);
  drawPlayers(game);
  if (watching === null) {
    drawBoard((game ?? last)?.state ?? Array(9).fill(""), active, game === undefined);
    byId("message").textContent = message(game, last, mine, active);
  }
  byId("rank").textContent = rank();
  byId("join").hidden = place.role === "seated" || place.role === "waiting";
  byId("leave").hidden = !byId("join").hidden;
  const asked = room?.map("table").get("state")?.phase === "ready";
  byId("ready").hidden = !asked || place.role !== "seated" || Boolean(seats()[place.marker]?.ready);
  byId("before").hidden = last === undefined;
  byId("ended").textContent = last === undefined ? "" : `${ended(last)}.`;
  count();
}

function drawPlayers(game) {
  for (const section of byId("players").children) {
    const seat = seats()[section.dataset.marker];
    section.querySelector(".user").textContent = seat?.user ?? "free";
    const wins = seat?.wins ?? 0;
    const left = seat?.away_ms ? "not connected" : wins > 0 ? `${wins} in a row` : "";
    section.querySelector(".wins").textContent = left;
    section.classList.toggle("turn", Boolean(seat?.turn && game));
    section.classList.toggle("warned", Boolean(seat?.warned));
  }
}

function drawBoard(state, active, over) {
  const line = LINES.find(([a, b, c]) => state[a] && state[a] === state[b] && state[a] === state[c]);
  byId("board").classList.toggle("inactive", !active);
  cells.forEach((cell, number) => {
    const mark = state[number];
    cell.textContent = mark;
    const open = active && mark === "";
    // It stays in the order of tabs, so that the keyboard keeps its place.
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
    const turn = game.awaited.map((marker) => game.players[marker]).join(", ");
    return active ? `Your turn: you are ${mine}` : `${turn} is to move`;
  }
  if (last !== undefined) {
    return ended(last);
  }
  return place.role === "seated" ? "Waiting for someone to play with" : "Nobody plays yet";
}

function ended({ outcome, players }) {
  const winners = outcome.winners.map((marker) => players[marker]).join(", ");
  if (outcome.why === "stopped") {
    return "The game did not count";
  }
  if (winners === "") {
    return "A draw";
  }
  const why = { timeout: ", on time", left: ", the other one left" }[outcome.why] ?? "";
  return `${winners === live.user ? "You" : winners} won${why}`;
}

function rank() {
  const waiting = room?.map("table").get("state")?.waiting ?? 0;
  if (place.role === "waiting") {
    return `You are number ${place.position} of ${waiting} in line, about ${duration(place.wait_ms ?? 0)} to wait.`;
  }
  return waiting === 0 ? "" : `${waiting} in line.`;
}

function duration(ms) {
  const seconds = Math.ceil(ms / 1000);
  return seconds < 90 ? `${seconds}\u00a0s` : `${Math.round(seconds / 60)}\u00a0min`;
}

/** Let the clocks of those who are to move run down. */
function count() {
  for (const section of byId("players").children) {
    const seat = seats()[section.dataset.marker];
    const due = seat?.away_ms || (seat?.turn ? seat.due_ms : 0);
    const left = Math.max(0, due - Date.now() - ahead);
    section.querySelector("time").textContent = due ? `${duration(left)} left` : "";
  }
}

async function replay() {
  const { match } = room.map("game").get("last");
  clearTimeout(watching);
  const { views } = await call("GET", `/v1/matches/${match}/replay`);
  const next = (number) => {
    drawBoard(views[number].state, false, number === views.length - 1);
    byId("message").textContent = `Again: move ${number} of ${views.length - 1}`;
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

/** Who plays best at ranked tables; it changes with the end of a game. */
async function rankAll() {
  const ranked = club.tables.find(({ id }) => id === table)?.kind === "ranked";
  const { leaders } = ranked ? await call("GET", "/v1/ladders/tictactoe?limit=10") : { leaders: [] };
  byId("best").hidden = leaders.length === 0;
  byId("leaders").replaceChildren(
    ...leaders.map(({ user, rating }) => Object.assign(document.createElement("li"), { textContent: `${user}: ${rating}` })),
  );
}

async function sit(id) {
  room?.leave();
  room = null; // until the other one is there
  table = id;
  place = { role: "" };
  drawBoard(Array(9).fill(""), false, false); // nobody may move before all is there
  for (const button of byId("tables").children) {
    button.setAttribute("aria-current", String(button.dataset.table === id));
  }
  const joined = await live.join(club.tables.find((one) => one.id === id).room);
  if (table !== id) {
    joined.leave(); // one has gone on to yet another table
    return;
  }
  room = joined;
  for (const name of ["seats", "table", "line"]) {
    room.map(name).subscribe(look);
  }
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
    live.onState((state) => tell(state === "connected" ? `here as ${live.user}` : `${state} …`, state === "closed"));
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
byId("join").addEventListener("click", () => act("join"));
byId("leave").addEventListener("click", () => act("leave"));
byId("ready").addEventListener("click", () => act("ready"));
byId("replay").addEventListener("click", () => replay().catch((error) => tell(error.message, true)));
setInterval(count, 1000);
come();
