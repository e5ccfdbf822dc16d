// The display: notes, cursors and people. It updates only differences. User input becomes text,
// never markup.

import { hueOf, initials, nameOf, sizeOf, tiltOf, toScreen } from "./model.js";

const byId = (id) => document.getElementById(id);
const copyOf = (id) => byId(id).content.firstElementChild.cloneNode(true);

/** Set a text if it differs. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export class View {
  #world = byId("world");
  #cursors = byId("cursors");
  #notes = new Map(); // by id: { element, shown }
  #pointers = new Map(); // by user
  #hues = new Map(); // by user: constant while a user is present
  #writing = null; // { id, area }

  /** `on.write(id, text)` is called with each change of a text, `on.written()` at its end. */
  constructor(on) {
    this.on = on;
  }

  /** The id of the note of an element, if any. */
  noteAt(element) {
    return element?.closest?.(".note")?.dataset.id;
  }

  element(id) {
    return this.#notes.get(id)?.element;
  }

  /** Draw the board in its current view. */
  draw({ notes, people, me, selected, view, past }) {
    const board = byId("board");
    board.style.setProperty("--x", `${view.x}px`);
    board.style.setProperty("--y", `${view.y}px`);
    board.style.setProperty("--scale", view.scale);
    document.body.classList.toggle("past", past);
    this.#chooseHues(people, me);
    byId("hint").hidden = notes.length > 0 || past;
    const held = new Map();
    for (const [user, person] of Object.entries(people)) {
      if (user !== me && person.note && !past) held.set(person.note, { user, person });
    }
    this.#drawNotes(notes, selected, held);
    this.#drawCursors(past ? {} : people, me, view);
    this.#placeTools(notes.find((note) => note.id === selected), view, past);
  }

  #drawNotes(notes, selected, held) {
    const there = new Set(notes.map((note) => note.id));
    for (const [id, { element }] of this.#notes) {
      if (!there.has(id)) {
        if (this.#writing?.id === id) this.stopWriting();
        element.remove();
        this.#notes.delete(id);
      }
    }
    notes.forEach((note, order) => {
      const known = this.#notes.get(note.id) ?? this.#make(note.id);
      const holder = held.get(note.id);
      const shown = JSON.stringify([note, order, selected === note.id, holder?.user, holder?.person.writing]);
      if (known.shown === shown) return;
      known.shown = shown;
      this.#drawNote(known.element, note, order, selected === note.id, holder);
    });
  }

  #make(id) {
    const element = copyOf("note");
    element.dataset.id = id;
    element.style.setProperty("--tilt", `${tiltOf(id)}deg`);
    this.#world.append(element);
    const made = { element, shown: "" };
    this.#notes.set(id, made);
    return made;
  }

  #drawNote(element, note, order, selected, holder) {
    element.style.setProperty("--left", `${note.x}px`);
    element.style.setProperty("--top", `${note.y}px`);
    element.style.zIndex = order + 1;
    element.dataset.colour = note.colour;
    element.dataset.size = sizeOf(note.text);
    element.classList.toggle("selected", selected);
    element.classList.toggle("taken", holder !== undefined);
    element.setAttribute("aria-label", note.text || "Empty note");
    say(element.querySelector(".text"), note.text);
    say(element.querySelector("footer"), note.by);
    const tag = holder ? `${holder.person.name}${holder.person.writing ? " writes" : ""}` : "";
    say(element.querySelector(".held"), tag);
    if (holder) element.style.setProperty("--hue", this.#hues.get(holder.user));
    const area = this.#writing?.id === note.id ? this.#writing.area : null;
    if (area && area.value !== note.text) {
      const [from, to] = [area.selectionStart, area.selectionEnd];
      area.value = note.text;
      area.setSelectionRange(from, to);
    }
  }

  #drawCursors(people, me, view) {
    for (const [user, element] of this.#pointers) {
      if (user === me || people[user]?.x === undefined) {
        element.remove();
        this.#pointers.delete(user);
      }
    }
    for (const [user, person] of Object.entries(people)) {
      if (user === me || person.x === undefined) continue;
      let element = this.#pointers.get(user);
      if (!element) {
        element = copyOf("cursor");
        element.dataset.user = user;
        element.style.setProperty("--hue", this.#hues.get(user));
        this.#cursors.append(element);
        this.#pointers.set(user, element);
      }
      const at = toScreen(view, person);
      element.style.transform = `translate(${Math.round(at.x)}px, ${Math.round(at.y)}px)`;
      // At the right edge the name is to the left of the pointer. About 8 px for each letter.
      element.classList.toggle("edge", at.x > innerWidth - 32 - 8 * person.name.length);
      say(element.querySelector("span"), person.name);
    }
  }

  #placeTools(note, view, past) {
    const tools = byId("tools");
    tools.hidden = !note || past;
    if (tools.hidden) return;
    const at = toScreen(view, note);
    const width = tools.offsetWidth;
    const left = Math.min(Math.max(at.x + 100 * view.scale - width / 2, 8), innerWidth - width - 8);
    const above = at.y - tools.offsetHeight - 14;
    const top = above > 64 ? above : at.y + 200 * view.scale + 14;
    tools.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
    for (const swatch of tools.querySelectorAll("[data-colour]")) {
      swatch.setAttribute("aria-pressed", String(swatch.dataset.colour === note.colour));
    }
  }

  drawPeople(people, me) {
    const others = Object.entries(people).filter(([user]) => user !== me);
    byId("people").replaceChildren(
      ...others.slice(0, 6).map(([user, { name }]) => this.#face(document.createElement("li"), user, name)),
    );
    if (others.length > 6) {
      const more = document.createElement("li");
      more.textContent = `+${others.length - 6}`;
      byId("people").append(more);
    }
    this.#face(byId("me"), me, people[me]?.name ?? nameOf(me));
    byId("me").title = `You are ${people[me]?.name ?? nameOf(me)}: change your name`;
  }

  #face(element, user, name) {
    element.style.setProperty("--hue", this.#hues.get(user));
    element.title = name;
    element.setAttribute("aria-label", name);
    say(element, initials(name));
    return element;
  }

  #chooseHues(people, me) {
    const present = [me, ...Object.keys(people)];
    for (const user of this.#hues.keys()) {
      if (!present.includes(user)) this.#hues.delete(user);
    }
    for (const user of present) {
      if (!this.#hues.has(user)) this.#hues.set(user, hueOf(user, new Set(this.#hues.values())));
    }
  }

  // Writing.

  get writing() {
    return this.#writing?.id ?? null;
  }

  write(id, text, most) {
    this.stopWriting();
    const element = this.element(id);
    if (!element) return;
    const area = document.createElement("textarea");
    area.value = text;
    area.maxLength = most;
    area.spellcheck = false;
    area.setAttribute("aria-label", "Text of the note");
    this.#writing = { id, area };
    area.addEventListener("input", () => this.on.write(id, area.value));
    area.addEventListener("blur", () => this.stopWriting());
    element.append(area);
    element.classList.add("writing");
    area.focus({ preventScroll: true });
    area.setSelectionRange(text.length, text.length);
  }

  stopWriting() {
    if (!this.#writing) return;
    const { id, area } = this.#writing;
    this.#writing = null;
    this.element(id)?.classList.remove("writing");
    area.remove();
    this.on.written();
  }
}

let hiding = 0;

/** Show a message at the foot of the page for a while. */
export function toast(text, wrong = false) {
  const element = byId("toast");
  element.textContent = text;
  element.classList.toggle("wrong", wrong);
  element.hidden = false;
  clearTimeout(hiding);
  hiding = setTimeout(() => (element.hidden = true), 3000 + 50 * text.length);
}
