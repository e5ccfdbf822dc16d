// What must hold of the board without a browser, apps/board/page/model.js, for numbers at
// random from one seed.

const ROUNDS = 300;

/** What is wrong: one text for each finding. */
export function wrong(model) {
  const found = [];
  const check = (fine, ...what) => fine || found.push(JSON.stringify(what));
  let seed = 1;
  const chance = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
  for (let round = 0; round < ROUNDS; round++) {
    views(model, chance, check);
    places(model, chance, check);
    names(model, chance, check);
  }
  texts(model, check);
  reasons(model, check);
  return found;
}

const number = (chance, most) => (chance() - 0.5) * 2 * most;
const point = (chance, most) => ({ x: number(chance, most), y: number(chance, most) });
const apart = (one, other) => Math.abs(one.x - other.x) + Math.abs(one.y - other.y);

function views({ toBoard, toScreen, zoomed }, chance, check) {
  const view = { ...point(chance, 2000), scale: 0.15 + chance() * 2 };
  const at = point(chance, 1000);
  check(apart(toScreen(view, toBoard(view, at)), at) < 1e-6, "there and back", view, at);
  const other = zoomed(view, 0.2 + chance() * 3, at);
  check(apart(toBoard(other, at), toBoard(view, at)) < 1e-4, "what is under the hand stays", view, at);
  check(other.scale >= 0.15 && other.scale <= 2.5, "neither too small nor too large", other);
}

function places({ SIZE, fitted, freePlace, toScreen }, chance, check) {
  const notes = Array.from({ length: 1 + Math.floor(chance() * 12) }, () => point(chance, 700));
  const screen = { width: 300 + chance() * 1500, height: 500 + chance() * 1000 };
  const view = fitted(notes, screen);
  for (const note of view.scale > 0.15 ? notes : []) {
    const low = toScreen(view, note);
    const high = toScreen(view, { x: note.x + SIZE, y: note.y + SIZE });
    const seen = low.x >= 0 && low.y >= 0 && high.x <= screen.width && high.y <= screen.height;
    check(seen, "all notes are seen", note, view, screen);
  }
  const free = freePlace(notes, notes[0]);
  const clear = notes.every((note) => Math.max(Math.abs(note.x - free.x), Math.abs(note.y - free.y)) >= 13);
  check(clear, "no note lies upon another", free);
}

function names({ NAME_MAX, boardName, hueOf, invented, tiltOf }, chance, check) {
  const name = invented(chance());
  check(/^\w+ \w+$/.test(name) && name.length <= NAME_MAX, "a name", name);
  const board = boardName(chance());
  check(/^[a-z0-9][a-z0-9-]{0,39}$/.test(board), "the name of a board", board);
  check(Math.abs(tiltOf(board)) <= 2 && tiltOf(board) === tiltOf(board), "a note hangs as it hung");
  check(hueOf(board) >= 0 && hueOf(board) < 360, "a colour");
  const taken = new Set();
  for (let n = 0; n < 10; n++) {
    const hue = hueOf(board, taken);
    check(!taken.has(hue), "a colour of one's own", hue);
    taken.add(hue);
  }
  check(hueOf(board, taken) === hueOf(board), "a colour when all are taken");
  const near = Math.abs(hueOf(board, new Set([hueOf(board)])) - hueOf(board));
  check(near >= 40 && near <= 320, "a colour that looks different", near);
}

function texts({ initials, nameOf, sizeOf, statusOf, titleOf }, check) {
  check(nameOf("Ann Lee~ABC") === "Ann Lee" && nameOf("developer") === "developer", "a guest's name");
  check(initials("Ann van Lee") === "AV" && initials("🦊 fox") === "🦊F", "initials");
  check(sizeOf("") === "l" && sizeOf("a\n".repeat(7)) === "s" && sizeOf("x".repeat(600)) === "xs", "sizes");
  check(titleOf({ text: " \n" }) === "a note" && titleOf(undefined) === "a note", "a note without text");
  check(titleOf({ text: `${"x".repeat(99)}\ny` }) === `“${"x".repeat(27)}…”`, "a long title");
  check(statusOf("away", 1) === "offline, 1 pending change" && statusOf("away", 0) === "offline", "offline");
  check(statusOf("live", 1) === "live" && statusOf("live", 9) === "saving, 9 pending changes", "live");
  check(statusOf("closed", 0, { message: "no" }) === "closed: no", "closed");
}

function reasons({ Memory, nameOf }, check) {
  const memory = new Memory();
  const ben = { user: "Ben~1", mine: false };
  const why = (...places) => memory.reasons(
    places.map(([kind, id]) => `"${id}" in "${kind}" was changed by others since, or its history is unknown`), nameOf,
  ).join("|");
  memory.saw("notes", { a: { colour: "sky" }, b: {} }, { user: "Ann~1", mine: true });
  memory.remember([{ id: "a", text: "Milk" }]);
  memory.saw("places", { a: { x: 1 } }, ben);
  check(why(["places", "a"], ["notes", "a"]) === "Ben moved “Milk” in the meantime", "told once");
  check(why(["texts", "a"]) === "someone wrote on “Milk” in the meantime", "told without a name");
  check(why(["texts", "z"]) === "", "what undo has taken away itself is not missed");
  memory.saw("notes", { a: { colour: "mint" }, b: {} }, ben);
  check(why(["notes", "a"]) === "Ben changed “Milk” in the meantime", "painted");
  memory.saw("notes", { b: {} }, ben);
  check(why(["texts", "a"]) === "Ben removed “Milk” in the meantime", "gone");
  check(memory.reasons(['the list "notes" is in use'], nameOf)[0] === 'the list "notes" is in use', "else as it is");
}
