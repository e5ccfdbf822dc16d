// User input: dragging notes, moving and zooming the board, keys. `board` applies it.

import { SIZE, toBoard, zoomed } from "./model.js";

const STEP = 20; // of an arrow key
const DRAG_PX = 4; // less is a click
const MOVE_MS = 40; // interval of position updates while a note is dragged

export function hands(board, surface) {
  const pointers = new Map(); // positions by id
  let drag = null;
  let moved = false;

  const at = (event) => ({ x: event.clientX, y: event.clientY });

  surface.addEventListener("pointerdown", (event) => {
    if (event.button > 1 || event.target.closest("textarea")) return;
    pointers.set(event.pointerId, at(event));
    surface.setPointerCapture(event.pointerId);
    moved = false;
    const id = event.button === 0 ? board.noteAt(event.target) : undefined;
    if (pointers.size > 1) return void drop(); // a second finger moves the board
    if (id === undefined || board.past) return;
    const note = board.note(id);
    const hold = toBoard(board.view, at(event));
    drag = { id, dx: note.x - hold.x, dy: note.y - hold.y, from: at(event), again: board.selected === id };
  });

  surface.addEventListener("pointermove", (event) => {
    board.point(toBoard(board.view, at(event)));
    const before = pointers.get(event.pointerId);
    if (!before) return;
    if (drag) return carry(event);
    if (Math.hypot(event.clientX - before.x, event.clientY - before.y) < (moved ? 0.5 : DRAG_PX)) return;
    moved = true;
    pan(event, before);
    pointers.set(event.pointerId, at(event));
  });

  for (const kind of ["pointerup", "pointercancel"]) {
    surface.addEventListener(kind, (event) => {
      if (!pointers.delete(event.pointerId)) return;
      if (drag) return void drop(event);
      if (!moved && kind === "pointerup" && pointers.size === 0) board.select(null);
    });
  }
  surface.addEventListener("pointerleave", (event) => {
    if (!pointers.has(event.pointerId)) board.point(null);
  });

  function carry(event) {
    const { x, y } = drag.from;
    if (!drag.gesture) {
      if (Math.hypot(event.clientX - x, event.clientY - y) < DRAG_PX) return;
      board.select(drag.id);
      drag.gesture = board.lift(drag.id);
    }
    const now = toBoard(board.view, at(event));
    drag.to = { x: now.x + drag.dx, y: now.y + drag.dy };
    drag.timer ??= setTimeout(put, MOVE_MS);
  }

  function put() {
    clearTimeout(drag.timer);
    drag.timer = undefined;
    // Another user may have removed the note.
    if (drag.to && !board.move(drag.id, drag.to)) drop();
  }

  function drop(event) {
    const held = drag;
    if (!held) return;
    if (held.gesture) {
      if (held.timer !== undefined) put();
      drag = null;
      held.gesture.end();
    } else {
      drag = null;
      if (event?.type === "pointerup") tap(held, event);
    }
  }

  // On touch screens the second tap starts writing; with a mouse, a double click.
  function tap({ id, again }, event) {
    if (again && event.pointerType !== "mouse") board.write(id);
    else board.select(id);
  }

  function pan(event, before) {
    const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
    const now = at(event);
    if (!other) {
      board.look({ ...board.view, x: board.view.x + now.x - before.x, y: board.view.y + now.y - before.y });
      return;
    }
    const apart = (one) => Math.hypot(one.x - other.x, one.y - other.y);
    const middle = (one) => ({ x: (one.x + other.x) / 2, y: (one.y + other.y) / 2 });
    const view = zoomed(board.view, apart(now) / Math.max(apart(before), 1), middle(before));
    board.look({ ...view, x: view.x + middle(now).x - middle(before).x, y: view.y + middle(now).y - middle(before).y });
  }

  surface.addEventListener("dblclick", (event) => {
    // The pointer was captured, so the event's target is always the surface.
    const hit = document.elementFromPoint(event.clientX, event.clientY);
    if (board.past || hit?.closest("textarea")) return;
    const id = board.noteAt(hit);
    if (id !== undefined) return board.write(id);
    const { x, y } = toBoard(board.view, at(event));
    board.write(board.add({ x: x - SIZE / 2, y: y - SIZE / 2 }));
  });

  surface.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const unit = event.deltaMode ? 16 : 1;
      if (event.ctrlKey) board.look(zoomed(board.view, Math.exp(-event.deltaY * unit * 0.01), at(event)));
      else {
        board.look({
          ...board.view,
          x: board.view.x - event.deltaX * unit,
          y: board.view.y - event.deltaY * unit,
        });
      }
    },
    { passive: false },
  );

  surface.addEventListener("focusin", (event) => {
    const id = board.noteAt(event.target);
    if (id !== undefined && !board.past) board.select(id);
  });

  addEventListener("keydown", (event) => {
    if (board.past && event.key === "Escape") return board.pastOf.close();
    if (event.target.closest("textarea, input, dialog")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (key(event)) event.preventDefault();
  });

  // Handle a key; returns whether it was for the board.
  function key(event) {
    if (board.past || event.altKey) return false;
    if (event.ctrlKey || event.metaKey) {
      const letter = event.key.toLowerCase();
      if (letter === "z") event.shiftKey ? board.redo() : board.undo();
      else if (letter === "y") board.redo();
      else return false;
      return true;
    }
    if (event.key === "n") return board.write(board.add()), true;
    if (event.key === "0") return board.fit(), true;
    if (event.key === "Escape") return board.select(null), true;
    const note = board.selected && board.note(board.selected);
    if (!note || event.target.closest("button, a")) return false;
    if (event.key === "Enter") return board.write(note.id), true;
    if (event.key === "Delete" || event.key === "Backspace") return board.remove(note.id), true;
    const turn = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!turn) return false;
    board.move(note.id, { x: note.x + STEP * turn[0], y: note.y + STEP * turn[1] });
    return true;
  }
}
