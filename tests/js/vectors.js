// Plays the vectors of rooms: what every client must do, whatever it is written in. Runs in Node and
// in browsers; `client` has what is exported by the modules, `vectors` is tests/vectors/rooms.

// What is wrong: one text for each case that went otherwise.
export function play(client, vectors) {
  return [
    ...positions(client, vectors.positions),
    ...vectors.steps.cases.flatMap((one) => [...steps(client, one)]),
    ...vectors.replica.cases.flatMap((one) => [...replica(client, one)]),
  ];
}

export const count = ({ positions, steps, replica }) =>
  positions.between.length + positions.nth.length + steps.cases.length + replica.cases.length;

function* positions({ between, stepped }, { between: pairs, nth }) {
  for (const [low, high, expected] of pairs) yield* differ(`between ${low} and ${high}`, between(low, high), expected);
  const known = new Map(nth);
  for (const by of [1, -1]) {
    let position = "a0";
    for (let number = 0; Math.abs(number) < 4000; number += by, position = stepped(position, by)) {
      if (known.has(number)) yield* differ(`number ${number}`, position, known.get(number));
    }
  }
  for (const [number, position] of nth) {
    yield* differ(`number ${number} and back`, stepped(stepped(position, 1), -1), position);
  }
}

function* steps({ State }, { name, steps, state: expected }) {
  const state = new State();
  for (const { ops, refused } of steps) {
    let code;
    try {
      state.apply(ops);
    } catch (error) {
      code = error.code ?? String(error);
    }
    yield* differ(`${name}: the code`, code, refused);
  }
  yield* differ(name, seen(state), expected);
}

function* replica({ Replica }, { name, client, acts }) {
  const copy = new Replica("r", client);
  copy.user = "me";
  let answers = [];
  for (const [number, act] of acts.entries()) {
    const sends = [];
    let refused;
    if (act.join) sends.push(copy.join());
    else if (act.lost) copy.lost();
    else if (act.hear) {
      for (const frame of act.hear) copy.receive(frame);
      copy.settle();
    } else {
      try {
        copy.change(act.change).onAnswer(({ n, seq, error }) => answers.push([n, error ? error.code : seq]));
      } catch (error) {
        refused = error.code ?? String(error);
      }
    }
    sends.push(...copy.out.splice(0));
    const { epoch, seq, digest, live } = copy;
    const found = { sends, answers, position: [epoch, seq, digest], live, ...seen(copy.state) };
    answers = [];
    yield* differ(`${name}, act ${number}`, refused === undefined ? found : { ...found, refused }, act.then);
  }
}

// All of a state as JSON: maps, and lists of items with id, position and value.
export function seen(state) {
  const named = (tables, shown) => Object.fromEntries([...tables].map(([name, table]) => [name, shown(table)]));
  return {
    maps: named(state.map, ({ cells }) => Object.fromEntries([...cells].map(([key, cell]) => [key, cell.value]))),
    lists: named(state.list, (table) =>
      table.order.map((position) => [table.ids.get(position), position, table.cells.get(table.ids.get(position)).value]),
    ),
  };
}

function* differ(what, found, expected) {
  const [one, other] = [found, expected].map((value) => JSON.stringify(sorted(value)));
  if (one !== other) yield `${what}: ${one}, not ${other}`;
}

function sorted(value) {
  if (Array.isArray(value)) return value.map(sorted);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.keys(value).sort().map((key) => [key, sorted(value[key])]));
}
