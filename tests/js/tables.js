// Kinds of tables from end to end, by the client over HTTP and over WebSocket.

import assert from "node:assert/strict";

const { Client } = await import(process.env.HTTP ?? "../../clients/js/http.js");
const url = process.argv[2];
const host = new Client(url, { key: "dev:host" });
let number = 0;

/** Someone at a table. What it does goes over HTTP or over a connection; `seen` is what its room has shown. */
class Person {
  constructor(name, table, over) {
    this.client = new Client(url, { key: `dev:${name}` });
    Object.assign(this, { name, table, over, live: this.client.live(), seen: [], hooks: new Set() });
  }

  async enter() {
    this.room = await this.live.join(`table:${this.table}`);
    for (const name of ["seats", "table"]) {
      const look = () => {
        const whole = this.room.map(name).whole();
        this.seen.push([name, structuredClone(whole)]);
        for (const hook of this.hooks) hook();
      };
      this.room.map(name).subscribe(look);
      look();
    }
    return this;
  }

  act(what, body = {}) {
    if (this.over === "websocket") return this.live.act(what, this.table, body);
    return this.client.tables[what](this.table, body);
  }

  /** Resolves when the room has shown a map of which something holds, at any time. */
  sees(name, holds) {
    return new Promise((resolve) => {
      const check = () => {
        const found = this.seen.find(([one, whole]) => one === name && holds(whole));
        if (found) {
          this.hooks.delete(check);
          resolve(found[1]);
        }
      };
      this.hooks.add(check);
      check();
    });
  }
}

/** Run something at a new table with people who join it, in this order. */
async function at(policy, names, over, run) {
  const table = `kind-${++number}`;
  await host.tables.create({ id: table, policy: { idleS: 0, graceS: 600, ...policy } });
  const people = [];
  for (const name of names) {
    const person = await new Person(name, table, over).enter();
    await person.act("join");
    people.push(person);
  }
  await run(table, ...people);
  for (const { live } of people) live.close();
}

const players = async (table) => {
  const { seats } = await host.tables.get(table);
  return Object.fromEntries(Object.entries(seats).map(([marker, seat]) => [marker, seat && seat.user]));
};

for (const over of ["http", "websocket"]) {
  await at({ kind: "speed", idleS: 1, warnS: 0.5 }, ["ann", "ben", "cas"], over, async (table, ann, ben, cas) => {
    await ben.sees("seats", ({ X }) => X?.warned);
    await cas.sees("table", ({ ended }) => ended !== undefined); // nobody moved: all are late
    assert.equal((await ann.act("place")).role, "");
  });
  await at({ kind: "ranked", ladder: `js-${over}` }, ["ann", "ben"], over, async (table, ann) => {
    await host.tables.result(table, { winners: ["ann"], game: 1 });
    await ann.sees("table", ({ ended }) => ended?.ratings.ann === 1_216);
    assert.deepEqual((await ann.client.tables.leaders(`js-${over}`)).map(({ user }) => user), ["ann", "ben"]);
  });
  await at({ partyMax: 2 }, ["ann", "ben"], over, async (table) => {
    await host.tables.join(table, { user: "eve", party: ["fay"] });
    const { waitlist: [party] } = await host.tables.waitlist(table);
    assert.deepEqual([party.size, party.users], [2, ["eve", "fay"]]);
    await host.tables.result(table, { winners: ["ann"], game: 1 });
    assert.deepEqual(await players(table), { X: "eve", O: "fay" });
  });
  await at({ rematchS: 600 }, ["ann", "ben"], over, async (table, ann, ben) => {
    await host.tables.result(table, { winners: ["ann"], game: 1 });
    await ann.sees("table", ({ state }) => state.phase === "ready");
    assert.equal((await ann.act("ready")).phase, "ready");
    assert.equal((await ben.act("ready")).phase, "playing");
  });
  await at({}, ["ann", "ben"], over, async (table, ann) => {
    const wat = await new Person("wat", table, over).enter();
    assert.equal((await wat.act("watch")).role, "watching");
    await ann.sees("table", ({ state }) => state.spectators === 1);
    await assert.rejects(wat.client.tables.move(table, { move: 1 }), ({ code }) => code === "not_seated");
    assert.equal((await wat.act("join")).role, "waiting");
    wat.live.close();
  });
  await at({ botS: 0.001, bots: ["hal"] }, ["ann"], over, async (table, ann) => {
    await ann.sees("seats", ({ O }) => O?.user === "hal" && O.bot);
    await host.tables.join(table, { user: "ben" });
    await host.tables.result(table, { winners: ["ann"], game: 1 });
    assert.deepEqual(await players(table), { X: "ann", O: "ben" });
  });
  await at({ seats: ["A", "B", "C"] }, ["ann", "ben", "cas", "dan"], over, async (table, ann, ben) => {
    await host.tables.result(table, { winners: ["cas"], game: 1 });
    assert.deepEqual(await players(table), { A: "dan", B: "ann", C: "cas" });
    assert.equal((await ben.act("place")).position, 1);
  });
  await at({}, ["ann", "ben", "cas", "dan", "eve"], over, async (table, ann, ben, cas, dan, eve) => {
    await Promise.all([ann.act("leave"), ben.act("leave")]);
    const seated = await eve.sees("seats", ({ X, O }) => new Set([X?.user, O?.user, "cas", "dan"]).size === 2);
    assert.deepEqual(Object.keys(seated).sort(), ["O", "X"]);
    assert.equal((await eve.act("place")).position, 1);
    const { waitlist: waiting } = await eve.client.tables.waitlist(table);
    assert.deepEqual(waiting.map(({ users }) => users), [["eve"]]);
  });
}
console.log("well");
