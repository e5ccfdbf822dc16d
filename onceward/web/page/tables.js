// Tables: seats, waitlist, the current game, and a replay of the last one.

import { get, part, post, query as ask, repeat } from "./api.js";
import { ask as confirm, doing, h, once, put, table, tell } from "./dom.js";
import { ago, brief, count, left, plural, pretty, span, time } from "./format.js";

const PHASES = { playing: "live" };

export function page(where) {
  return where.rest.length ? one(where) : all(where);
}

function all({ trouble }) {
  const list = table("Tables", [
    { name: "Table", kind: "name", update: once((cell, one) => {
      cell.append(h("a", { href: `#/tables/${part(one.id)}` }, one.id));
    }) },
    { name: "Phase", update: once((cell) => {
      const chip = h("span.chip");
      cell.append(chip);
      return (one) => {
        put(chip, one.paused ? "paused" : one.phase);
        chip.className = `chip ${one.paused ? "warn" : PHASES[one.phase] ?? ""}`;
      };
    }) },
    { name: "Game", show: (one) => one.game || "–" },
    { name: "Seats", kind: "wide", show: (one) => Object.entries(one.seats).map(([marker, seat]) => `${marker}: ${seat?.user ?? "free"}`).join(", ") },
    { name: "Waiting", kind: "number", show: (one) => count(one.waiting) },
    { name: "Watching", kind: "number", show: (one) => count(one.spectators) },
    { name: "Games", kind: "number", show: (one) => count(one.number) },
    { name: "Created", kind: "number", show: (one) => time(one.created_ms) },
  ], (one) => one.id, "No tables. Create one in an application or with POST /v1/tables.");
  const live = repeat(async () => list.update((await get("v1/tables?limit=200")).tables), 1000, trouble);
  const element = h("div.page", h("div.head", h("h1", { tabindex: "-1" }, "Tables")), list.element);
  return { title: "Tables", element, stop: live.stop };
}

function one({ rest: [id], trouble }) {
  const path = `v1/tables/${part(id)}`;
  const wrong = h("p.wrong", { role: "alert" }), phase = h("span.chip"), facts = h("dl.facts");
  const seats = table("Seats", [
    { name: "Seat", kind: "name", show: (seat) => seat.marker },
    { name: "Player", show: (seat) => seat.user ?? "free" },
    { name: "Since", kind: "number", show: (seat) => (seat.since_ms ? ago(seat.since_ms, Date.now()) : "") },
    { name: "Wins in a row", kind: "number", show: (seat) => seat.wins ?? (seat.user ? 0 : "") },
    { name: "Status", show: (seat) => (seat.away_ms ? "away" : seat.turn ? "to move" : seat.ready ? "ready" : "") },
    { name: "Time left", kind: "number", show: (seat) => (seat.due_ms ? left(seat.due_ms - Date.now()) : "") },
  ], (seat) => seat.marker, "The table has no seats.");
  const game = h("div"), replay = h("div");
  const pause = doing("Pause table", async () => {
    await post(`${path}/${last?.paused ? "resume" : "pause"}`);
    await live.now();
  });
  const end = doing("Close table", async () => {
    if (!await confirm(`Close ${id}?`, "This ends the current game and removes all players and waiters. It cannot be undone.", "Close table")) return;
    await post(`${path}/close`);
    tell(`Closed ${id}.`);
    location.hash = "#/tables";
  }, "danger");
  const user = h("input", { id: "user", autocomplete: "off", spellcheck: "false", placeholder: "user name" });
  const found = h("span.faint", { role: "status" });
  const seek = h("form.search", { role: "search", onsubmit: async (event) => {
    event.preventDefault();
    try {
      put(found, placeOf(await get(ask(`${path}/place`, { user: user.value.trim() }))));
    } catch (error) {
      put(found, error.message);
    }
  } }, h("label", { for: "user" }, "Find user"), user, h("button", { type: "submit" }, "Find"), found);
  let last = null, before = "", shown = "";

  const live = repeat(async () => {
    try {
      last = await get(path);
    } catch (error) {
      if (error.status !== 404) throw error;
      put(wrong, error.message);
      live?.stop();
      return;
    }
    seats.update(Object.entries(last.seats).map(([marker, seat]) => ({ marker, ...seat })));
    put(phase, last.paused ? "paused" : last.phase);
    phase.className = `chip ${last.paused ? "warn" : PHASES[last.phase] ?? ""}`;
    put(pause, last.paused ? "Resume table" : "Pause table");
    const text = JSON.stringify([last.waiting, last.spectators, last.number, last.lanes, last.paused_why]);
    if (text !== before) facts.replaceChildren(...[["Game", last.game || "none"], ["Games", count(last.number)],
      ["Paused", last.paused_why],
      ["Waiting", count(last.waiting)], ["Watching", count(last.spectators)],
      ["Lanes", Object.keys(last.lanes ?? {}).length > 1 ? brief(last.lanes) : null],
      ["Room", h("a", { href: `#/rooms/${part(`table:${id}`)}` }, `table:${id}`)]]
      .filter(([, value]) => value).map(([name, value]) => h("div", h("dt", name), h("dd", value))));
    before = text;
    await look();
  }, 1000, trouble);

  async function look() {
    const room = await get(`v1/rooms/${part(`table:${id}`)}/maps/game`).catch((error) => {
      if (error.status === 404 || error.status === 403) return { values: {} };
      throw error;
    });
    const { now, last: over } = room.values;
    game.replaceChildren(now ? h("section.inside", h("h2", `Game ${last.number}`),
      h("p.faint", `${Object.entries(now.players).map(([seat, who]) => `${who} (${seat})`).join(" against ")}; waits for ${
        now.awaited.map((seat) => now.players[seat]).join(", ") || "no move"}`),
      h("pre", { tabindex: "0", "aria-label": "State of the game" }, pretty(now.state))) : "");
    if (over?.match && over.match !== shown) {
      shown = over.match;
      replay.replaceChildren(h("h2", "Last game"), await moves(over.match));
    }
  }

  const element = h("div.page", h("p.trail", h("a", { href: "#/tables" }, "Tables")),
    h("div.head", h("h1", { tabindex: "-1" }, id), phase, h("div.row", pause, end)), wrong, facts,
    seats.element, seek, game, replay);
  return { title: id, element, stop: () => live.stop() };
}

function placeOf(place) {
  if (place.role === "waiting") {
    return `${place.user} is waiting at position ${place.position}${place.wait_ms ? `, for about ${span(place.wait_ms)}` : ""}.`;
  }
  return place.marker ? `${place.user} sits at ${place.marker}.` : `${place.user} is ${place.role || "not at this table"}.`;
}

/** The replay of a finished match, move by move. */
async function moves(id) {
  let views;
  try {
    views = (await get(`v1/matches/${part(id)}/replay`)).views;
  } catch (error) {
    return h("p.faint", error.message);
  }
  const slider = h("input.slider", { id: "move", type: "range", min: 0, max: views.length - 1, step: 1 });
  const state = h("pre", { tabindex: "0", "aria-label": "State after the move" }), said = h("output", { for: "move" });
  const show = () => {
    const view = views[Number(slider.value)];
    put(state, pretty(view.state));
    const winners = view.outcome?.winners.map((seat) => view.players[seat]).join(", ");
    put(said, `${slider.value === "0" ? "at the start" : `after move ${slider.value} of ${views.length - 1}`}${
      view.outcome ? `: ${winners ? `${winners} wins` : "draw"}` : ""}`);
  };
  slider.value = slider.max;
  slider.addEventListener("input", show);
  show();
  const players = Object.entries(views[0].players).map(([seat, who]) => `${who} (${seat})`).join(" against ");
  return h("section", h("p.faint", `${players}, ${plural(views.length - 1, "move")}`),
    h("div.row", h("label", { for: "move" }, "Replay"), h("span.grow", slider), said), state);
}
