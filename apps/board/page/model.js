// The board without a browser: notes, positions, names and messages, as pure functions.

export const COLOURS = ["lemon", "peach", "rose", "lilac", "sky", "mint"];
export const SIZE = 200; // size of a note in both directions
export const TEXT_MAX = 600;
export const NAME_MAX = 40;
export const FAR = 100_000; // the maximum distance of a note
const SCALE_MIN = 0.15;
const SCALE_MAX = 2.5;
const HUES = [8, 32, 88, 142, 172, 200, 224, 262, 292, 330];
const FIRST = "Quick Calm Bright Merry Gentle Bold Quiet Lucky Sunny Clever Brave Witty".split(" ");
const SECOND = "Otter Fox Heron Badger Lynx Robin Hare Seal Wren Beaver Owl Newt".split(" ");

/** A hash of a text that looks random. */
export function hash(text) {
  let h = 2166136261;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 16777619);
  return (h ^ (h >>> 15)) >>> 0;
}

/**
 * The colour of a user: clearly different from those in `taken`, or at least not equal to one while
 * there are others.
 */
export function hueOf(user, taken = new Set()) {
  const first = hash(user) % HUES.length;
  const order = HUES.map((_, n) => HUES[(first + 3 * n) % HUES.length]);
  const unlike = (hue) => [...taken].every((other) => Math.abs(((hue - other + 540) % 360) - 180) >= 40);
  return order.find(unlike) ?? order.find((hue) => !taken.has(hue)) ?? order[0];
}

/** The rotation of a note, in degrees. */
export const tiltOf = (id) => ((hash(id) % 61) - 30) / 15;
/** The name of a guest: the part before the mark. */
export const nameOf = (user) => user.slice(0, Math.max(user.lastIndexOf("~"), 0)) || user;
export const initials = (name) =>
  name.split(/\s+/).filter(Boolean).slice(0, 2).map((word) => [...word][0].toUpperCase()).join("");

/** A random name for a guest without one; `chance` is from 0 to 1. */
export function invented(chance) {
  const pick = Math.floor(chance * FIRST.length * SECOND.length);
  return `${FIRST[pick % FIRST.length]} ${SECOND[Math.floor(pick / FIRST.length)]}`;
}

/** A random name for a new board. */
export const boardName = (chance) =>
  `${invented(chance).toLowerCase().replace(" ", "-")}-${Math.floor(chance * 2 ** 40).toString(36)}`;

// Notes.

/** Notes from the bottom up. `items` are those of the list, `places` and `texts` are by id. */
export function notesOf(items, places, texts) {
  return items.map(({ id, value }) => {
    const { x = 0, y = 0 } = places[id] ?? {};
    return { id, x, y, text: texts[id] ?? "", colour: value.colour, by: value.by };
  });
}

/** Notes of a room's snapshot, in the form that the server stores. */
export function notesAsOf({ maps, lists }) {
  const items = (lists.notes ?? []).map(([id, , value]) => ({ id, value }));
  return notesOf(items, maps.places ?? {}, maps.texts ?? {});
}

// Characters per line and lines per note, from large to small.
const FITS = { l: [13, 5], m: [17, 6], s: [21, 9], xs: [28, Infinity] };

/** The largest font size that fits. */
export function sizeOf(text) {
  const lines = text.split("\n");
  const rows = (across) => lines.reduce((sum, line) => sum + Math.max(1, Math.ceil(line.length / across)), 0);
  return Object.keys(FITS).find((size) => rows(FITS[size][0]) <= FITS[size][1]);
}

/** A short name for a note. */
export function titleOf(note) {
  const line = (note?.text ?? "").trim().split("\n")[0];
  if (!line) return "a note";
  return `“${line.length > 28 ? `${line.slice(0, 27)}…` : line}”`;
}

/** A position near the wanted one that does not cover another note. */
export function freePlace(notes, wish) {
  const place = { ...wish };
  while (notes.some((note) => Math.abs(note.x - place.x) < 14 && Math.abs(note.y - place.y) < 14)) {
    place.x += 26;
    place.y += 26;
  }
  return bounded(place);
}

export const bounded = ({ x, y }) => ({
  x: Math.round(Math.min(Math.max(x, -FAR), FAR)),
  y: Math.round(Math.min(Math.max(y, -FAR), FAR)),
});

/**
 * Restore the notes of an earlier state through the list and maps of a room; call it in a batch.
 * Unchanged values are not written, so that their authors can still undo them.
 */
export function bringBack({ notes, places, texts }, then) {
  const wanted = new Set(then.map((note) => note.id));
  const now = new Map(notes.items().map(({ id, value }) => [id, value]));
  for (const id of now.keys()) if (!wanted.has(id)) takeAway({ notes, places, texts }, id);
  const order = then.map((note) => {
    const value = { colour: note.colour, by: note.by };
    const there = now.get(note.id);
    // A removed note is restored under a new id, since ids are unique.
    const id = there ? note.id : notes.push(value).id;
    if (there && there.colour !== note.colour) notes.set(id, value);
    const { x, y } = places.get(id) ?? {};
    if (x !== note.x || y !== note.y) places.set(id, { x: note.x, y: note.y });
    if ((texts.get(id) ?? "") !== note.text) texts.set(id, note.text);
    return id;
  });
  const is = notes.items().map((item) => item.id);
  if (order.some((id, index) => is[index] !== id)) {
    order.forEach((id, index) => notes.moveAfter(id, index ? order[index - 1] : ""));
  }
}

export function takeAway({ notes, places, texts }, id) {
  notes.delete(id);
  if (places.has(id)) places.delete(id);
  if (texts.has(id)) texts.delete(id);
}

// Reasons why a change was not undone.

/** Records the last author of each value and the texts of notes, for messages about undo. */
export class Memory {
  #seen = { notes: {}, places: {}, texts: {} };
  #by = new Map();
  #titles = new Map();

  /** Record all values of a kind by id after a change of a user. */
  saw(kind, all, who) {
    const before = this.#seen[kind];
    this.#seen[kind] = all;
    if (who.mine) return;
    for (const id of new Set([...Object.keys(before), ...Object.keys(all)])) {
      if (JSON.stringify(before[id]) !== JSON.stringify(all[id])) {
        this.#by.set(`${kind} ${id}`, { user: who.user, gone: all[id] === undefined });
      }
    }
  }

  remember(notes) {
    for (const note of notes) if (note.text) this.#titles.set(note.id, titleOf(note));
  }

  /** Messages for the changes that undo has `kept`; `called` returns the name of a user. */
  reasons(kept, called) {
    return [...new Set(kept.map((why) => this.#reason(why, called)).filter(Boolean))];
  }

  #reason(why, called) {
    const found = /^"(.+)" in "(notes|places|texts)"/.exec(why);
    if (!found) return why;
    const [, id, kind] = found;
    const title = this.#titles.get(id) ?? "the note";
    const gone = this.#by.get(`notes ${id}`);
    const who = (one) => (one?.user ? called(one.user) : "someone");
    if (gone?.gone) return `${who(gone)} removed ${title} in the meantime`;
    // Removed by this undo itself: its position does not matter.
    if (!(id in this.#seen.notes)) return "";
    // Moving a note also raises it to the top, which only its order in the list shows.
    const told = kind !== "notes" || gone ? kind : "places";
    const by = this.#by.get(`${told} ${id}`);
    const did = { notes: "changed", places: "moved", texts: "wrote on" }[told];
    return `${who(by)} ${did} ${title} in the meantime`;
  }
}

// The visible part of the board: a point of the board is at `x + scale * its x` of the screen.

export const toBoard = (view, at) => ({ x: (at.x - view.x) / view.scale, y: (at.y - view.y) / view.scale });
export const toScreen = (view, at) => ({ x: at.x * view.scale + view.x, y: at.y * view.scale + view.y });

/** Zoom so that the content at a point of the screen stays there. */
export function zoomed(view, factor, at) {
  const scale = Math.min(Math.max(view.scale * factor, SCALE_MIN), SCALE_MAX);
  const fixed = toBoard(view, at);
  return { scale, x: at.x - fixed.x * scale, y: at.y - fixed.y * scale };
}

/** The view that shows all notes with a margin, at most in original size. */
export function fitted(notes, { width, height }) {
  const margin = { x: width < 640 ? 14 : 40, y: 100 };
  if (!notes.length) return { x: width / 2 - SIZE / 2, y: height / 2 - SIZE / 2, scale: 1 };
  const left = Math.min(...notes.map((note) => note.x));
  const top = Math.min(...notes.map((note) => note.y));
  const right = Math.max(...notes.map((note) => note.x)) + SIZE;
  const bottom = Math.max(...notes.map((note) => note.y)) + SIZE;
  const fits = Math.min(
    Math.max(width - 2 * margin.x, 1) / (right - left),
    Math.max(height - 2 * margin.y, 1) / (bottom - top),
  );
  const scale = Math.min(Math.max(fits, SCALE_MIN), 1);
  return {
    scale,
    x: width / 2 - ((left + right) / 2) * scale,
    y: height / 2 - ((top + bottom) / 2) * scale,
  };
}

/**
 * The view with a note at the top, large enough to write on it: the keyboard of a phone covers the
 * lower part.
 */
export function nearest(view, note, { width }) {
  const scale = Math.max(view.scale, 0.9);
  return { scale, x: width / 2 - (note.x + SIZE / 2) * scale, y: 110 - note.y * scale };
}

/** The text of the connection status and of pending changes. */
export function statusOf(status, waiting, error) {
  const wait = waiting ? `, ${waiting} pending ${waiting === 1 ? "change" : "changes"}` : "";
  if (status === "live") return waiting > 3 ? `saving${wait}` : "live";
  if (status === "away") return `offline${wait}`;
  if (status === "closed") return error ? `closed: ${error.message}` : "closed";
  return "connecting";
}
