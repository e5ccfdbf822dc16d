// The hooks, with a React that is just enough for one component: it renders when it is told to.

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { pathToFileURL } from "node:url";
import { World } from "./world.js";

const react = `
export const React = { cells: [], at: 0, effects: [], renders: 0 };
const cell = (make) => (React.cells[React.at] ??= make(), React.cells[React.at++]);
const changed = (one, other) => !one || one.length !== other.length || one.some((value, at) => value !== other[at]);
export function useMemo(make, dependencies) {
  const memo = cell(() => ({}));
  if (changed(memo.dependencies, dependencies)) Object.assign(memo, { dependencies, value: make() });
  return memo.value;
}
export const useRef = (current) => cell(() => ({ current }));
export function useEffect(run, dependencies) {
  const effect = cell(() => ({}));
  React.effects.push(() => {
    if (!changed(effect.dependencies, dependencies)) return;
    effect.end?.();
    Object.assign(effect, { dependencies, end: run() });
  });
}
export function useSyncExternalStore(subscribe, get) {
  useEffect(() => subscribe(() => React.renders++), [subscribe]);
  assertSame(get(), get());
  return get();
}
const assertSame = (one, other) => {
  if (one !== other) throw Error("React would render for ever");
};
`;

const folder = mkdtempSync(join(tmpdir(), "onceward-"));
writeFileSync(join(folder, "react.mjs"), react);
const source = new URL("../../clients/js/", import.meta.url);
const hooks = readFileSync(new URL("react.js", source), "utf8")
  .replace('"react"', '"./react.mjs"')
  .replace('"./client.js"', JSON.stringify(new URL("client.js", source).href));
writeFileSync(join(folder, "hooks.mjs"), hooks);
const load = (name) => import(pathToFileURL(join(folder, name)).href);
const { React } = await load("react.mjs");
const { useConnection, useEvent, useList, useLive, useMap, useMembers, usePresence, useRoom, useStatus, useSteps } =
  await load("hooks.mjs");

let world;

beforeEach(() => {
  world = new World().begin();
  Object.assign(React, { cells: [], renders: 0 });
});
afterEach(() => world.end());

// One rendering, and its effects.
function render(component) {
  React.at = 0;
  React.effects = [];
  const shown = component();
  for (const effect of React.effects) effect();
  return shown;
}

// What React does in the end; and in between, when it looks whether a component bears it.
function unmount() {
  for (const cell of React.cells) {
    cell.end?.();
    if (cell.end) cell.end = cell.dependencies = undefined;
  }
}

test("a component sees a room, is rendered when it changes, and leaves it at its end", async () => {
  const heard = [];
  const component = () => {
    const live = useLive("http://here", { token: "t" });
    const room = useRoom(live, "r", { create: true });
    useEvent(room, "wave", (value) => heard.push(value));
    return {
      live,
      room,
      connection: useConnection(live),
      status: useStatus(room),
      members: useMembers(room),
      map: useMap(room, "m"),
      list: useList(room, "l"),
      presence: usePresence(room, "p"),
      steps: useSteps(room),
    };
  };
  const first = render(component);
  assert.deepEqual([first.status, first.map[0], first.list[0]], ["joining", {}, []]);
  await world.pass(0);
  await world.welcome();
  await world.joined("r", { reset: "new", members: [{ id: "m1", user: "ann" }] });
  await world.hear({ t: "said", room: "r", event: "wave", value: 1 });
  assert.ok(React.renders > 0);
  const second = render(component);
  assert.equal(second.room, first.room);
  assert.deepEqual(
    [second.connection, second.status, second.members.length, heard],
    [{ state: "connected", user: "ann" }, "live", 1, [1]],
  );
  second.map[1].set("k", { a: 1 });
  const item = second.list[1].push("x").id;
  second.presence[1].set({ x: 1 });
  const third = render(component);
  assert.deepEqual([third.map[0], third.list[0]], [{ k: { a: 1 } }, [{ id: item, value: "x" }]]);
  assert.deepEqual([third.presence[0], third.steps.canUndo, third.steps.waiting], [{ ann: { x: 1 } }, true, 2]);
  third.steps.undo();
  assert.deepEqual(render(component).list[0], []);
  const same = render(component);
  assert.equal(same.map[0], third.map[0], "what has not changed is the same object");
  unmount();
  assert.equal(third.room.status, "live", "not yet: it may be put back");
  await world.pass(1);
  assert.deepEqual([third.room.status, third.live.state], ["closed", "closed"]);
});

test("a component that is taken away and put back at once keeps its room", async () => {
  const component = () => useRoom(useLive("http://here"), "r");
  const room = render(component);
  unmount();
  assert.equal(render(component), room);
  await world.pass(1);
  assert.equal(room.status, "joining");
  unmount();
  await world.pass(1);
  assert.equal(room.status, "closed");
});
