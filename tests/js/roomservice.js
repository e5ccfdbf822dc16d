// One program for two modules: the published `@roomservice/browser`, and the drop-in.
//   node tests/js/roomservice.js theirs PATH_OF_THE_PACKAGE
//   node tests/js/roomservice.js ours URL_OF_A_SERVER
// It prints what it has seen: `same` has to be the same for both, `differs` is what the documentation
// says to be different.

import { createRequire } from "node:module";
import { begin, connected } from "./standin.js";

const [, , whose, place] = process.argv;
const theirs = whose === "theirs";
if (theirs) begin();
const module = theirs ? createRequire(import.meta.url)(place) : await import("../../clients/js/roomservice.js");
const { RoomService } = module;

console.warn = console.error = () => {};
const sent = []; // over all connections: the socket, and what it has sent
const { send } = WebSocket.prototype;
WebSocket.prototype.send = function (text) {
  sent.push([this, text]);
  send.call(this, text);
};
const sending = async (holds) => {
  for (;;) {
    const found = sent.find(([socket, text]) => holds(text, socket));
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
};
const asked = [];
const session = (user, room) => ({
  token: `dev:${user}`,
  user,
  resources: ["document", "room"].map((object) => ({ object, id: room, reference: room })),
});
const { fetch } = globalThis;
globalThis.fetch = async (url, options) => {
  if (url !== "/my/auth") return fetch(url, options);
  asked.push({ method: options.method, headers: options.headers, body: JSON.parse(options.body) });
  return Response.json(session("url", "auth"));
};

const make = (parameters) => new RoomService(theirs ? parameters : { ...parameters, url: place });
async function enter(user, name) {
  const auth = async (given) => (asked.push(given), session(user, given.room));
  const service = make({ auth, ctx: { of: user } });
  const room = await service.room(name);
  if (theirs) await connected(`dev:${user}`);
  return [room, (await service.room(name)) === room];
}
const thrown = (does) => {
  try {
    does();
    return null;
  } catch (error) {
    return error;
  }
};
const until = (room, object, holds) =>
  new Promise((resolve) => {
    const listening = room.subscribe(object, (value, from) => {
      if (holds(value)) (room.unsubscribe(listening), resolve([value, from]));
    });
  });

const same = { exports: Object.keys(module).filter((name) => name !== "__esModule").sort() };
const [ann, cached] = await enter("ann", "home");
const [ben] = await enter("ben", "home");
const bens = { map: ben.map("m"), list: ben.list("l"), presence: ben.presence("p") };
const [map, list, here] = [ann.map("m"), ann.list("l"), ann.presence("p")];

// What there is.
const names = {
  room: [ann, "map list presence subscribe unsubscribe me"],
  map: [map, "get set delete keys toObject"],
  list: [list, "get set delete insertAt insertAfter push map toArray"],
  presence: [here, "set getMine getAll"],
};
same.names = Object.entries(names).map(([kind, [object, all]]) => [
  kind,
  all.split(" ").map((name) => [name, Array.isArray(object[name]) ? "array" : typeof object[name]]),
]);
same.rooms = [cached, ann.me, ben.me, ann.map("m") === map, ann.list("l") === list, ann.presence("p") === here];
same.empty = [map.toObject(), map.keys, list.toArray(), here.getAll(), here.getMine() ?? null, map.get("a") ?? null];

// What is told of one's own changes, and returned.
const told = [];
const listening = [map, list, here].map((object) => ann.subscribe(object, (value, from) => told.push([value, from])));
same.listening = listening.map((one) => one.map(({ objID, fn }) => [objID, typeof fn]));
const again = map.set("title", "hi");
const whole = [again === map, again.set("count", 2).toObject(), list.push("a", "b") === list];
const heard = Promise.all([
  until(ben, bens.list, (value) => value.length === 4),
  until(ben, bens.presence, (value) => value.ann?.x === 1),
]);
list.insertAt(0, "front").insertAfter(0, { text: "second" });
here.set({ x: 1 });
same.heard = await heard;
const next = until(ben, bens.presence, (value) => value.ann?.x === 2);
const all = here.set({ x: 2 }, 30);
same.changed = [whole, all, here.getMine(), map.keys, list.map((value, index, key) => [value, index, typeof key])];
same.told = structuredClone(told.splice(0));
same.next = await next;
same.others = [bens.map.toObject(), bens.list.toArray(), bens.presence.getAll(), bens.presence.getMine() ?? null];

// Others change, too; what is undefined is deleted, and so is what is not there.
const back = Promise.all([
  until(ann, list, (value) => value[0] === "FRONT" && value.length === 3),
  until(ann, map, (value) => !("title" in value) && value.ben === null),
]);
bens.list.set(0, "FRONT").delete(3);
bens.map.set("title", undefined).set("ben", null).delete("nothing");
same.back = await back;
told.length = 0;
for (const one of listening.slice(0, 2)) ann.unsubscribe(one);
list.set(1, undefined);
map.set("after", true);
const seen = until(ben, bens.presence, (value) => value.ann === "here");
here.set("here");
await seen;
same.unsubscribed = [told.splice(0), list.toArray(), list.get(0), list.get(9) ?? null, map.toObject()];

// What is wrong changes nothing.
const [range, type] = [[() => list.insertAt(3, 1), () => list.insertAfter(5, 1), () => list.insertAt(0.5, 1)], []];
same.ranges = range.map((does) => thrown(does) instanceof RangeError);
type.push(() => list.insertAt(-1, 1), () => list.set(9, 1));
same.errors = type.map((does) => thrown(does) instanceof Error);
same.nothing = [list.delete(9).toArray(), list.delete(-1).toArray(), list.toArray()];

// How auth is asked.
const byUrl = await make({ auth: "/my/auth" }).room("auth");
const noUser = await make({ auth: async () => ({ token: "dev:x", resources: [] }) }).room("x").catch((error) => error);
same.auth = [byUrl.me, noUser instanceof Error, [...asked]];

// What the documentation says to be different.
const differs = { insertBelow: thrown(type[0]).name, setMissing: thrown(type[1]).name };
const value = { deep: [1] };
map.set("value", value);
differs.sameObject = map.get("value") === value;
const loop = ann.map("loop");
ann.subscribe(loop, () => loop.set("again", 1));
differs.loop = [/^Infinite loop/.test(thrown(() => loop.set("first", 1))?.message), loop.toObject()];
const failing = ann.map("failing");
let others = 0;
ann.subscribe(failing, () => {
  throw Error("of a subscriber");
});
ann.subscribe(failing, () => others++);
differs.subscriber = [thrown(() => failing.set("a", 1))?.message, others, thrown(() => failing.set("b", 2))?.message.slice(0, 13)];
// In one turn: the later one comes after what is sent later only if it was not sent at all.
here.set("first");
here.set("last");
await new Promise((resolve) => setTimeout(resolve, 200));
const marked = until(ben, bens.map, (value) => value.marker);
map.set("marker", true);
await marked;
differs.burst = bens.presence.getAll().ann;
const twice = make({ auth: async ({ room }) => session("two", room) });
differs.twoCalls = (([one, other]) => one === other)(await Promise.all([twice.room("two"), twice.room("two")]));

// Three days, in what is sent.
const DAY_S = 24 * 3600;
ann.presence("far").set("x", 3 * DAY_S);
const [, far] = await sending((text) => text.includes('"far"'));
const { ttl_ms, body } = JSON.parse(far);
const lastsS = theirs ? body.expAt - Date.now() / 1000 : ttl_ms / 1000;
differs.presenceDays = Math.round(lastsS / DAY_S);
// A connection is lost; the next one begins with a token.
await enter("cat", "token");
const tokens = () => asked.filter(({ ctx }) => ctx?.of === "cat").length;
const once = tokens();
const [lost] = await sending((text) => text.includes("dev:cat"));
lost.close();
await sending((text, socket) => text.includes("dev:cat") && socket !== lost);
differs.tokensAfterLoss = tokens() - once;

process.stdout.write(JSON.stringify({ same, differs }), () => process.exit());
