// A person who edits a room at random, and notes what became of it. `tests.client.rooms` has the same.

const ITEMS = 300;

export class Person {
  outcomes = {};
  #saved = [];

  constructor(name, room, seed) {
    this.name = name;
    this.room = room;
    this.chance = random(seed);
  }

  static async enter({ Live }, name, id, seed) {
    const live = new Live(null, { token: `dev:${name}` });
    const person = new Person(name, await live.join(id, { create: true }), seed);
    person.live = live;
    return person;
  }

  // Edits, and waits until all of it is answered.
  async edit(count) {
    for (let number = 0; number < count; number++) {
      this.#one(number);
      if (number % 3 === 0) await new Promise((resolve) => setTimeout(resolve));
    }
    while (this.#saved.length) {
      const outcome = await this.#saved.shift().then(() => "taken", (error) => error.code);
      this.outcomes[outcome] = (this.outcomes[outcome] ?? 0) + 1;
    }
    return this.outcomes;
  }

  #one(number) {
    const { room, chance, name } = this;
    const items = room.list("items");
    const shared = room.map("shared");
    const any = () => items.idAt(Math.floor(chance() * items.length));
    this.#saved.push(room.map("counts").add(name, 1));
    // So that it stays about as long as it is.
    if (items.length < 20 || chance() < (items.length < ITEMS ? 0.3 : 0.05)) {
      items.insert(Math.floor(chance() * (items.length + 1)), `${name} ${number}`);
    } else if (chance() < 0.4) items.move(any(), Math.floor(chance() * items.length));
    else if (chance() < 0.5) items.set(any(), { by: name, number });
    else items.delete(any());
    if (number % 5 === 0) {
      shared.set("last", name);
      room.undo();
      if (chance() < 0.5) room.redo();
    } else if (number % 5 === 1) {
      room.batch(() => {
        shared.set(`key ${Math.floor(chance() * 9)}`, { by: name, text: "é\u{1f600}" });
        shared.delete(`key ${Math.floor(chance() * 9)}`);
        items.push(number);
      });
    } else if (number % 5 === 2) {
      const drag = room.gesture();
      for (let x = 0; x < 3; x++) shared.set("note", { x, by: name });
      if (chance() < 0.5) drag.cancel();
      else drag.end();
    }
  }

  // All that is in the room, as it is seen here.
  seen() {
    const { room } = this;
    return {
      position: room.position,
      counts: room.map("counts").whole(),
      shared: room.map("shared").whole(),
      items: room.list("items").items().map(({ id, value }) => [id, value]),
    };
  }

  // Waits until so many have said that they have come to their end, as one says oneself.
  async rest(count, mark) {
    const ends = this.room.map("ends");
    await ends.set(`${mark} ${this.name}`, true);
    const here = () => ends.keys().filter((key) => key.startsWith(`${mark} `)).length >= count;
    await new Promise((resolve) => {
      const look = () => here() && (end(), resolve());
      const end = ends.subscribe(look);
      look();
    });
  }
}

function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}
