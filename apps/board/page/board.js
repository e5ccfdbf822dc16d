// The board: connects the room with its display and the user's input.

import { Live, OncewardError } from "../../client.js";
import { Client } from "../../http.js";
import { hands } from "./hands.js";
import {
  COLOURS, Memory, NAME_MAX, SIZE, TEXT_MAX, boardName, bounded, bringBack, fitted, freePlace,
  hash, invented, nameOf, nearest, notesOf, statusOf, takeAway, toBoard,
} from "./model.js";
import { Past } from "./past.js";
import { View, say, toast } from "./view.js";

const RENEW_MS = 20_000; // a presence expires after a minute unless it is renewed

const byId = (id) => document.getElementById(id);
const name = decodeURIComponent(location.pathname.split("/").at(-1));
const server = new URL("../..", import.meta.url);
const chance = () => crypto.getRandomValues(new Uint32Array(1))[0] / 2 ** 32;
const kept = {
  get name() {
    return localStorage.getItem("name") || "";
  },
  set name(value) {
    localStorage.setItem("name", value);
  },
};

let ticket = null;

/** Get a ticket for this guest. The token is valid for this board and for a day. */
async function enter() {
  const answer = await fetch(`${location.pathname}/ticket`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ name: kept.name, ...(ticket && { token: ticket.token }) }),
  });
  if (!answer.ok) {
    const { detail, code, retry } = await answer.json();
    throw new OncewardError(detail, { code, retry });
  }
  ticket = await answer.json();
  return ticket.token;
}

// In dev mode calls need no credentials, and the ticket is not a token.
const credentials = () => (ticket.token.startsWith("dev:") ? null : ticket.token);

class Board {
  view = fitted([], { width: innerWidth, height: innerHeight });
  selected = null;
  #notes = [];
  #memory = new Memory();
  #me = { name: kept.name };
  #typing = null;
  #drawing = false;
  #fitted = false;

  constructor(room) {
    this.room = room;
    this.parts = { notes: room.list("notes"), places: room.map("places"), texts: room.map("texts") };
    this.people = room.presence("people");
    const { notes, places, texts } = this.parts;
    notes.subscribe((_, who) => this.#changed("notes", who));
    places.subscribe((_, who) => this.#changed("places", who));
    texts.subscribe((_, who) => this.#changed("texts", who));
    this.people.subscribe(() => this.draw());
    room.onStatus(() => this.#tell());
    room.onSteps(() => this.#tell());
    room.onRefused((error) => toast(`Rejected: ${error.message}`, true));
    this.picture = new View({ write: (id, text) => this.#type(id, text), written: () => this.#typed() });
    this.pastOf = new Past(room.id, () => new Client(server, { key: credentials() }), () => this.draw());
    setInterval(() => this.#say(), RENEW_MS);
    this.#say();
    this.#tell();
    this.draw();
  }

  // State.

  get past() {
    return this.pastOf.open;
  }

  note(id) {
    return this.#notes.find((note) => note.id === id);
  }

  noteAt(element) {
    return this.picture.noteAt(element);
  }

  #changed(kind, who) {
    const part = this.parts[kind];
    const all = kind === "notes" ? Object.fromEntries(part.items().map((item) => [item.id, item.value])) : part.whole();
    this.#memory.saw(kind, all, who);
    this.#read();
    this.draw();
  }

  #read() {
    const { notes, places, texts } = this.parts;
    this.#notes = notesOf(notes.items(), places.whole(), texts.whole());
    this.#memory.remember(this.#notes);
    if (this.selected && !this.note(this.selected)) this.select(null);
  }

  // Display.

  draw() {
    if (this.#drawing) return;
    this.#drawing = true;
    requestAnimationFrame(() => {
      this.#drawing = false;
      const people = this.people.all();
      const notes = this.pastOf.notes ?? this.#notes;
      if (!this.#fitted && this.room.status === "live") this.fit();
      this.picture.draw({
        notes, people, me: this.room.user, selected: this.selected, view: this.view, past: this.past,
      });
      this.picture.drawPeople(people, this.room.user);
    });
  }

  look(view) {
    this.view = view;
    this.draw();
  }

  fit() {
    this.#fitted = true;
    this.look(fitted(this.pastOf.notes ?? this.#notes, { width: innerWidth, height: innerHeight }));
  }

  select(id) {
    if (id === this.selected) return;
    this.selected = id;
    if (this.picture.writing && this.picture.writing !== id) this.picture.stopWriting();
    this.#at({ note: id ?? undefined });
    this.draw();
  }

  #tell() {
    const { status, waiting, error } = this.room;
    byId("status").dataset.state = status;
    say(byId("status"), statusOf(status, waiting, error));
    byId("undo").disabled = !this.room.canUndo;
    byId("redo").disabled = !this.room.canRedo;
  }

  // The user and its cursor.

  point(at) {
    this.#at(at ? bounded(at) : { x: undefined, y: undefined });
  }

  rename(called) {
    kept.name = called;
    this.#at({ name: called });
    this.draw();
  }

  #at(more) {
    this.#me = { ...this.#me, ...more };
    this.#say();
  }

  #say() {
    if (this.room.status !== "closed") this.people.set(this.#me);
  }

  // Actions.

  add(wish) {
    const middle = toBoard(this.view, { x: innerWidth / 2, y: innerHeight / 2 });
    const place = freePlace(this.#notes, wish ?? { x: middle.x - SIZE / 2, y: middle.y - SIZE / 2 });
    const { notes, places } = this.parts;
    let id = null;
    this.#try(() =>
      this.room.batch(() => {
        const colour = COLOURS[hash(this.room.user + notes.length) % COLOURS.length];
        ({ id } = notes.push({ colour, by: this.#me.name }));
        places.set(id, place);
      }),
    );
    this.select(id);
    return id;
  }

  /** Start to drag a note: all changes until the end of the gesture are one undo step. */
  lift(id) {
    this.picture.stopWriting();
    const gesture = this.room.gesture();
    this.#try(() => this.#toFront(id));
    return gesture;
  }

  #toFront(id) {
    const { notes } = this.parts;
    const top = notes.idAt(-1);
    if (top !== id && notes.has(id)) notes.moveAfter(id, top);
  }

  /** Move a note; false if it was removed. */
  move(id, to) {
    if (!this.parts.notes.has(id)) return false;
    this.#try(() => this.parts.places.set(id, bounded(to)));
    return true;
  }

  paint(id, colour) {
    const note = this.note(id);
    if (note && note.colour !== colour) this.#try(() => this.parts.notes.set(id, { colour, by: note.by }));
  }

  remove(id) {
    this.#try(() => this.room.batch(() => takeAway(this.parts, id)));
  }

  write(id) {
    const note = id && this.note(id);
    if (!note) return;
    this.select(id);
    this.picture.draw({
      notes: this.#notes, people: this.people.all(), me: this.room.user, selected: id, view: this.view, past: false,
    });
    if (matchMedia("(pointer: coarse)").matches) this.look(nearest(this.view, note, { width: innerWidth }));
    this.picture.write(id, note.text, TEXT_MAX);
    this.#at({ writing: true });
  }

  #type(id, text) {
    if (!this.parts.notes.has(id)) return;
    this.#typing ??= this.room.gesture();
    this.#try(() => this.parts.texts.set(id, text));
  }

  #typed() {
    this.#typing?.end();
    this.#typing = null;
    this.#at({ writing: undefined });
  }

  undo() {
    this.#turn("undo", "Undone", "undone");
  }

  redo() {
    this.#turn("redo", "Redone", "redone");
  }

  #turn(verb, done, kind) {
    this.picture.stopWriting();
    if (!(verb === "undo" ? this.room.canUndo : this.room.canRedo)) return toast(`There is nothing to ${verb}.`);
    this.#try(() => {
      const { step, kept: why } = this.room[verb]();
      const reasons = this.#memory.reasons(why, (user) => this.people.all()[user]?.name ?? nameOf(user));
      if (!reasons.length) return toast(`${done}.`);
      toast(`${step ? `Not all is ${kind}` : `Not ${kind}`}: ${reasons.join("; ")}.`, true);
    });
  }

  restore() {
    const then = this.pastOf.notes;
    if (!then) return;
    this.pastOf.close();
    this.#try(() => {
      this.room.batch(() => bringBack(this.parts, then));
      toast("Restored. Undo reverts it.");
    });
  }

  #try(does) {
    try {
      does();
    } catch (error) {
      toast(error.message, true);
    }
  }
}

function wire(board) {
  const click = (id, does) => byId(id).addEventListener("click", does);
  click("add", () => board.write(board.add()));
  click("undo", () => board.undo());
  click("redo", () => board.redo());
  click("fit", () => board.fit());
  click("history", () => {
    board.select(null);
    board.pastOf.enter();
  });
  click("restore", () => board.restore());
  click("write", () => board.write(board.selected));
  click("remove", () => board.remove(board.selected));
  click("share", share);
  click("me", () => {
    byId("called").value = kept.name;
    byId("naming").showModal();
    byId("called").select();
  });
  byId("naming").addEventListener("close", () => {
    const called = byId("called").value.replaceAll("~", " ").trim().slice(0, NAME_MAX);
    if (byId("naming").returnValue === "ok" && called) board.rename(called);
  });
  for (const colour of COLOURS) {
    const swatch = document.createElement("button");
    swatch.type = "button";
    swatch.dataset.colour = swatch.title = colour;
    swatch.addEventListener("click", () => board.paint(board.selected, colour));
    byId("colours").append(swatch);
  }
  addEventListener("resize", () => board.draw());
  hands(board, byId("board"));
}

async function share() {
  try {
    if (navigator.share && matchMedia("(pointer: coarse)").matches) {
      return await navigator.share({ title: document.title, url: location.href });
    }
    await navigator.clipboard.writeText(location.href);
    toast("Link copied. Anyone with the link can open this board.");
  } catch (error) {
    if (error.name !== "AbortError") toast(location.href);
  }
}

kept.name ||= invented(chance());
document.title = `${name} · Board`;
say(byId("name"), name);
byId("new").href = boardName(chance());

const live = new Live(server, { token: enter });
wire(new Board(live.room(`board/${name}`)));
