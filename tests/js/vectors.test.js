// The vectors, played by the modules.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { count, play } from "./vectors.js";

const modules = ["positions", "state", "replica"].map((name) => import(`../../clients/js/client/${name}.js`));
const vectors = Object.fromEntries(
  ["positions", "steps", "replica"].map((name) => [
    name,
    JSON.parse(readFileSync(new URL(`../vectors/rooms/${name}.json`, import.meta.url))),
  ]),
);

test("the modules do as the vectors say", async () => {
  assert.ok(count(vectors) > 50);
  assert.deepEqual(play(Object.assign({}, ...(await Promise.all(modules))), vectors), []);
});

test("what goes otherwise is told", () => {
  class State {
    map = new Map();
    list = new Map();
    apply() {}
  }
  const told = play({ State, between: () => "a0", stepped: () => "a0" }, {
    ...vectors,
    replica: { cases: [] },
  });
  assert.ok(told.length > 20);
});
