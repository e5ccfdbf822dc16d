// Programs for the client: what is right compiles, and what is wrong does not.

import { Live, OncewardError, Room, RoomList, RoomMap, type Json, type Saved, type Who } from "onceward";
import { Client, type ClaimedJob, type Job, type LivePlace, type Receipt } from "onceward/http";
import { useEvent, useList, useLive, useMap, usePresence, useRoom, useSteps } from "onceward/react";

type Note = { text: string; x: number };

const live = new Live("https://example.com", { token: async () => "token" });
const room: Room = await live.join("board", { create: true });
const notes: RoomMap<Note> = room.map<Note>("notes");
const end: () => void = notes.subscribe((all, who: Who) => all.a.text + who.user);
notes.subscribe((note) => note?.x, "a");
const saved: Saved = notes.set("a", { text: "", x: 1 });
const seq: number | null = await saved;
notes.get("a")?.text.length;
notes.get("a", { text: "", x: 0 }).text.length;
for (const [key, note] of notes) key.length + note.x;
const list: RoomList<string> = room.list("items");
list.set(list.push("milk").id, "bread");
list.items().map(({ id, value }) => id + value.length);
room.presence<{ x: number }>("cursor", { everyMs: 20 }).set({ x: 1 }, 10);
room.batch(() => void list.push("x"));
room.gesture().cancel()?.kept.length;
room.undo().step?.then((n) => n, (error: OncewardError) => error.code);
room.members.get("m")?.user.length;
const value: Json = { a: [1, null, "b", { c: true }] };

const client = new Client(null, { key: "k" });
const receipt = await client.send("q", value, { key: "k", waitS: 1, orderKey: "o" });
client.worker("q", async (claim: ClaimedJob, signal) => !signal.aborted && claim.body, { concurrency: 2 }).stop();
const held: number = await client.locks.hold(["a", "b"], (lock) => lock.token, { leaseS: 5 });
const { entries: steps, next } = await client.rooms.history("board");
const { seats } = await client.tables.create({ id: "corner", policy: { maxWins: 3, turnS: 10 } });
const followed: LivePlace = await client.tables.follow("corner", live, { lane: "main" });
const { waitlist: waiters, next: more } = await client.tables.waitlist("corner", { limit: 10 });
const waiting: string = `${waiters[0]?.users} ${waiters[0]?.position.toFixed()} ${more?.length}`;
followed.subscribe((place) => place.position ?? seats.X?.user);
const moved: Json = await live.act("move", "corner", { move: 1 });
const outcome = (await client.matches.get("m")).outcome?.winners;
(await client.sendMany("q", [{ body: 1 }])).map((one) => (one instanceof OncewardError ? one.code : one.id));

export function Component() {
  const here = useRoom(useLive(), "board");
  const [all, map] = useMap<Note>(here, "notes");
  const [items] = useList<Note>(here, "items");
  const [, cursor] = usePresence<{ x: number }>(here, "cursor");
  useEvent(here, "wave", (said, { by }) => [said, by]);
  useSteps(here).undo();
  map.set("b", all.a);
  cursor.set({ x: items[0].value.x });
}

// @ts-expect-error: another value
notes.set("a", { text: 1 });
// @ts-expect-error: by its id
list.set(0, "x");
// @ts-expect-error: there is no such option
new Live(null, { key: "k" });
// @ts-expect-error: rooms are made by connections
new Room();
// @ts-expect-error: it may be gone
notes.get("a").text;

const job: Job = await client.jobs.wait("id", { timeoutS: 5 });
const verdicts: (Receipt | OncewardError)[] = await client.sendMany("q", [{ body: 1, key: "a", delayS: 1 }]);
await client.timers.create({ url: "https://example.com", at: new Date(), retry: { pausesS: [1, 2], timeoutS: 5 } });
for await (const timer of client.timers.iterate({ state: "failed" })) timer.dueMs.toFixed();
await client.queues.redriveAll("q", { reason: "timeout", progress: (jobs) => jobs.toFixed() });
await client.rooms.apply("board", [{ op: "map.set", map: "m", key: "k", value: 1 }], { signal: new AbortController().signal });

// @ts-expect-error: an unknown operation
client.rooms.apply("board", [{ op: "map.swap", map: "m" }]);
// @ts-expect-error: durations are in seconds
client.locks.acquire(["a"], { leaseMs: 1000 });
// @ts-expect-error: the names are a list
client.locks.acquire("a");
// @ts-expect-error: the token is missing
client.jobs.complete("id");
// @ts-expect-error: there is no such state
client.jobs.list({ state: "lost" });
// @ts-expect-error: there is no such operation
client.jobs.accept("id");

export { end, held, job, moved, next, outcome, receipt, seq, steps, verdicts };
