// The types of client.js. The names are those of the Python client, in camelCase.

export type Json =
  | null
  | boolean
  | number
  | string
  | Json[]
  | { [member: string]: Json };

/** What goes wrong. `code` is one of the server's table of errors, and never changes its meaning. */
export class OncewardError extends Error {
  constructor(message: string, options?: { code?: string; retry?: boolean; status?: number; details?: object });
  readonly code: string;
  /** Whether the same call may succeed later, unchanged. */
  readonly retry: boolean;
  /** Of the answer over HTTP, or 0. */
  readonly status: number;
  /** What else the server says of it, as it says it. */
  readonly details: Record<string, any>;
}

// Rooms.

/** A token or an API key, or what gets a new one: asked before each connection, and before the
 * last one expires. */
export type Credentials = string | (() => string | Promise<string>) | null | undefined;
export type Unsubscribe = () => void;
export type State = "connecting" | "connected" | "closed";
export type Status = "joining" | "live" | "away" | "closed";

export interface LiveOptions {
  token?: Credentials;
}

/**
 * A connection, and the rooms that one is in. It begins to connect at once, and is made again when
 * it is lost, for as long as that may help. While there is none, changes are made here and wait; on
 * the next one each of them is sent, and counts once.
 */
export class Live {
  /** `url` is that of the server; without one, where the page is from. */
  constructor(url?: string | URL | null, options?: LiveOptions);
  readonly state: State;
  /** Why it is closed, unless one has closed it. */
  readonly error: OncewardError | null;
  /** Who one is, as the server says; "" before that. */
  readonly user: string;
  readonly rooms: ReadonlyMap<string, Room>;
  /** Call `hook(state)` when the connection is lost, there again, or closed for good. */
  onState(hook: (state: State) => void): Unsubscribe;
  /** A room to work in at once: what is changed before it is joined waits. The same one for the
   * same id. With `create` it is made if there is none. */
  room(id: string, options?: { create?: boolean }): Room;
  /** The same, once all of it has come. Rejects with why it cannot be joined. */
  join(id: string, options?: { create?: boolean }): Promise<Room>;
  /** Do something at a table: `join`, `leave`, `move`, `ready` and whatever else there is over HTTP, with
   * the same body. Body and answer are as they go over the wire. Rejects with what the server says, and
   * with `outcome_unknown` if the connection is lost before it does. */
  act(does: string, table?: string, body?: Record<string, any>): Promise<any>;
  /** Try to connect now, without the rest of a pause. */
  wake(): void;
  /** Leave all rooms and end the connection; twice is once. */
  close(): void;
}

/** Who has changed something: a user, and whether it was done here. */
export interface Who {
  readonly user: string;
  readonly mine: boolean;
}

export interface Member {
  readonly id: string;
  readonly user: string;
}

export interface Said {
  readonly event: string;
  readonly value: any;
  /** The member who says it; "" if it is a server. */
  readonly sender: string;
  /** The user. */
  readonly by: string;
  /** Whether it was said to this member alone. */
  readonly direct: boolean;
}

/** An operation, as it goes over the wire. */
export type Operation = { readonly op: string; readonly [member: string]: any };

/** A change on its way. Await it to know that it is durable, if you need to know. */
export interface Saved extends PromiseLike<number | null> {
  /** Of the item, for what is done to one of a list; else "". */
  readonly id: string;
  /** Whether the server has answered. */
  readonly done: boolean;
  /** The sequence number of the step; null if it is durable and that is not known. Rejects with
   * what the room refused it with, or `outcome_unknown`. Nothing is reported if nobody asks. */
  then<A = number | null, B = never>(
    fulfilled?: ((seq: number | null) => A | PromiseLike<A>) | null,
    rejected?: ((error: OncewardError) => B | PromiseLike<B>) | null,
  ): Promise<A | B>;
  catch<B = never>(rejected: (error: OncewardError) => B | PromiseLike<B>): Promise<number | null | B>;
}

/** What undo or redo has come to. */
export interface Undone {
  /** The step that it was, if anything was to be done. */
  readonly step: Saved | null;
  /** What could not be restored, and why: one sentence each. */
  readonly kept: string[];
}

/** Changes that are shown and sent as they are made, and undone as one: a drag, or typing. */
export interface Gesture {
  /** It is over; twice is once. */
  end(): void;
  /** It is over, and is undone; null if it has changed nothing, or was over before. */
  cancel(): Undone | null;
}

/** One room. Changes show at once, are sent when there is a connection, and count once. */
export class Room {
  private constructor();
  readonly id: string;
  /** `live` while everything arrives; `away` while it does not, and changes wait; `closed` for
   * good, and `error` says why, unless one has left. */
  readonly status: Status;
  readonly error: OncewardError | null;
  readonly user: string;
  /** One's own id as a member, on this connection. */
  readonly me: string;
  /** All members, oneself included, by id; in a very large room not all of them. */
  readonly members: ReadonlyMap<string, Member>;
  /** How many members there are. */
  readonly count: number;
  /** The epoch of the room, the last sequence number that has come, and the digest of the room's log
   * up to there: clients with equal positions have equal copies. */
  readonly position: readonly [epoch: string, seq: number, digest: string];
  /** How many steps have no answer yet. */
  readonly waiting: number;
  readonly canUndo: boolean;
  readonly canRedo: boolean;

  /** A map; it need not be there yet. The same one for the same name. */
  map<V = any>(name: string): RoomMap<V>;
  /** A list; it need not be there yet. The same one for the same name. */
  list<V = any>(name: string): RoomList<V>;
  /** A presence. What is set is sent every `everyMs` at most (40 unless told); the last value always. */
  presence<V = any>(name: string, options?: { everyMs?: number }): Presence<V>;

  /** What `body` changes is one step: all of it or nothing. If it throws, nothing of it stays. It
   * must not be asynchronous. */
  batch(body: () => void): Saved;
  /** From now on changes are undone as one, until its end. There is one at a time. */
  gesture(): Gesture;
  /** Undo one's last step, where one's change is still the latest; says what it has left as it was,
   * and why. Throws if there is nothing to undo. */
  undo(): Undone;
  /** Do again what was undone last. Throws if there is nothing. */
  redo(): Undone;

  /** Tell all others who are there now; it is not kept. Throws `not_joined` while there is no
   * connection. */
  say(event: string, value?: any): void;
  /** Tell one member, by its id. Whether it is still there is not said. */
  tell(member: string, event: string, value?: any): void;
  /** Call `hook(value, said)` when others say something. */
  on(event: string, hook: (value: any, said: Said) => void): Unsubscribe;
  /** Call `hook(members)` when someone has come or gone. */
  onMembers(hook: (members: ReadonlyMap<string, Member>) => void): Unsubscribe;
  /** Call `hook(status)` when the connection to the room is lost or there again. */
  onStatus(hook: (status: Status) => void): Unsubscribe;
  /** Call `hook(room)` when `waiting`, `canUndo` or `canRedo` may have changed. */
  onSteps(hook: (room: Room) => void): Unsubscribe;
  /** Call `hook(error, operations)` when the room has refused a step, or when it is not known
   * whether it has taken it. Without operations: a
   * value of a presence was refused and the previous value is restored. */
  onRefused(hook: (error: OncewardError, operations: readonly Operation[]) => void): Unsubscribe;
  /** Be in the room no longer. Steps without an answer are given up: they may have been taken.
   * Twice is once. */
  leave(): void;
}

/** Values by key. Of several who set the same key, the last one counts. What is returned is a copy. */
export class RoomMap<V = any> implements Iterable<[string, V]> {
  private constructor();
  readonly name: string;
  readonly size: number;
  /** Call `hook(map, who)` with the whole map when something in it has changed, or, with a key,
   * `hook(value, who)` with its value (undefined if it is gone). */
  subscribe(hook: (value: Record<string, V>, who: Who) => void): Unsubscribe;
  subscribe(hook: (value: V | undefined, who: Who) => void, key: string): Unsubscribe;
  get(key: string): V | undefined;
  get(key: string, otherwise: V): V;
  has(key: string): boolean;
  keys(): string[];
  whole(): Record<string, V>;
  [Symbol.iterator](): Iterator<[string, V]>;
  /** Put a whole value under a key. Throws for what is no JSON, or too large. */
  set(key: string, value: V): Saved;
  /** Remove a key, if it is there. */
  delete(key: string): Saved;
  /** Add to a number, which is 0 if it is not there. Throws `not_countable` where something else is. */
  add(key: string, by?: number): Saved;
  /** Put a value under a key if `expect` is there, or nothing if that is not given. Throws
   * `not_expected` if it is not so here; the `Saved` rejects if it is not so at the server. */
  compare(key: string, value: V, options?: { expect?: V }): Saved;
  /** Remove the map with all that is in it. */
  clear(): Saved;
}

/** An item of a list: its id stays when it is moved or set. */
export interface Item<V = any> {
  readonly id: string;
  readonly value: V;
}

/** Items in order. What several insert at one place is all there, in one order for all. */
export class RoomList<V = any> implements Iterable<V> {
  private constructor();
  readonly name: string;
  readonly length: number;
  /** Call `hook(values, who)` with all values in order when something has changed. */
  subscribe(hook: (values: V[], who: Who) => void): Unsubscribe;
  /** The value at an index, from the end if it is negative; undefined if there is none. */
  at(index: number): V | undefined;
  /** The value of an item; undefined if there is none of that id here. */
  get(id: string): V | undefined;
  has(id: string): boolean;
  /** All items in order, with their ids. */
  items(): Item<V>[];
  values(): V[];
  [Symbol.iterator](): Iterator<V>;
  /** The id of the item at an index, from the end if it is negative. Throws `bad_key`. */
  idAt(index: number): string;
  /** Put an item at the end. */
  push(value: V): Saved;
  /** Put an item before the one that has this index here. Throws `bad_request`. */
  insert(index: number, value: V): Saved;
  /** Put an item right behind another one; in front, if that is "". Throws `bad_key` if there is
   * none of that id here, as do those below. */
  insertAfter(id: string, value: V): Saved;
  /** Give an item another value. */
  set(id: string, value: V): Saved;
  /** Put an item elsewhere: so that it has this index here. */
  move(id: string, index: number): Saved;
  /** Put an item right behind another one; in front, if that is "". */
  moveAfter(id: string, other: string): Saved;
  /** Remove an item, if it is there. */
  delete(id: string): Saved;
  /** Remove the list with all that is in it. */
  clear(): Saved;
}

/** A value of each user who is there. One sets one's own only, and it ends by itself. */
export class Presence<V = any> {
  private constructor();
  readonly name: string;
  /** One's own value; undefined if there is none. */
  readonly mine: V | undefined;
  /** Call `hook(values, who)` with the values of all users when one has changed. */
  subscribe(hook: (values: Record<string, V>, who: Who) => void): Unsubscribe;
  /** The values by user, one's own included. */
  all(): Record<string, V>;
  /** Set one's own value, whole. It shows here at once. It goes after `ttlS` seconds (60 unless
   * told) if it is not set again, or with one's last connection. */
  set(value: V, ttlS?: number): void;
  /** Remove one's own value; twice is once. */
  remove(): void;
}
