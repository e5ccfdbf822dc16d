// A program for `@roomservice/browser`: compiled against the published types, and against ours. What
// the one refuses, the other refuses, too.

import Default, { ListClient, MapClient, PresenceClient, RoomClient, RoomService, RoomServiceParameters } from "@roomservice/browser";

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const same = <T extends true>() => undefined as unknown as T;

type Settings = { title: string; count: number };
type Todo = { text: string; done: boolean };
type Cursor = { x: number; y: number };

const simple = new RoomService({ auth: "/auth" });
const given: RoomServiceParameters<{ page: number }> = {
  auth: async ({ room, ctx }) => {
    same<Equal<typeof room, string>>();
    same<Equal<typeof ctx, { page: number }>>();
    return { token: "t", user: "u", resources: [{ id: "1", object: "room", reference: room, permission: "join" }] };
  },
  ctx: { page: 1 },
};
new RoomService(given);
new Default({ auth: "/auth" });
// @ts-expect-error: without auth
new RoomService({});
// @ts-expect-error: a function that gives no user
new RoomService({ auth: async () => ({ token: "t", resources: [] }), ctx: {} });
// @ts-expect-error: a function needs its ctx
new RoomService({ auth: given.auth as never as () => Promise<never> });
// @ts-expect-error: a permission that there is not
given.auth = async () => ({ token: "", user: "", resources: [{ id: "", object: "", reference: "", permission: "all" }] });

export async function use() {
  const room: RoomClient = await simple.room("home");
  same<Equal<typeof room.me, string>>();
  // @ts-expect-error: it is who one is
  room.me = "someone else";
  // @ts-expect-error: a name is text
  await simple.room(1);

  const map: MapClient<Settings> = room.map<Settings>("settings");
  same<Equal<typeof map.keys, Array<keyof Settings>>>();
  const title = map.get("title");
  same<Equal<typeof title, string | undefined>>();
  map.set("title", "hi").set("count", 1).delete("title");
  const whole = map.toObject();
  same<Equal<typeof whole, Settings>>();
  // @ts-expect-error: another type
  map.set("count", "one");
  // @ts-expect-error: no such key
  map.get("other");
  // @ts-expect-error: it is no function
  map.keys();

  let list: ListClient<Todo[]> = room.list<Todo[]>("todos");
  list = list.push({ text: "a", done: false }, { text: "b", done: true });
  list = list.insertAt(0, { text: "c", done: false });
  list = list.insertAfter(0, { text: "d", done: false });
  list = list.set(0, { text: "e", done: true });
  list = list.delete(1);
  const todos = list.toArray();
  same<Equal<typeof todos, Todo[]>>();
  const texts = list.map((todo, index, key) => [`${todo.text} ${index.toFixed()} ${key.trim()}`] as never[]);
  same<Equal<typeof texts, Todo[]>>();
  // @ts-expect-error: another type
  list.push("a");
  // @ts-expect-error: an index is a number
  list.delete("a");

  const presence: PresenceClient<Cursor> = room.presence<Cursor>("cursors");
  const all = presence.set({ x: 1, y: 2 }, 30);
  same<Equal<typeof all, { [key: string]: Cursor }>>();
  same<Equal<ReturnType<typeof presence.getAll>, { [key: string]: Cursor }>>();
  same<Equal<ReturnType<typeof presence.getMine>, Cursor | undefined>>();
  // @ts-expect-error: another shape
  presence.set({ x: 1 });

  const listening = [
    ...room.subscribe(list, (items: Todo[], from: string) => items[0]?.text.trim() ?? from.trim()),
    ...room.subscribe(list, (items) => items.length),
    ...room.subscribe(map, ({ title }: Settings, from: string) => title.trim() + from.trim()),
    ...room.subscribe(presence, (cursors, from) => cursors[from]),
  ];
  room.unsubscribe(listening);
  // @ts-expect-error: items of another type
  room.subscribe(list, (items: string[], from: string) => items.length + from.length);
  // @ts-expect-error: it is told to nobody
  room.subscribe(list);
  // @ts-expect-error: one subscribes to an object
  room.subscribe("todos", () => {});
}
