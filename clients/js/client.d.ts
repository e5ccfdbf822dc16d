// The types of client.js. The names are those of the Python client, in camelCase.

export type Json =
  | null
  | boolean
  | number
  | string
  | Json[]
  | { [member: string]: Json };

/** An error of the server or of the client. `code` is stable: see the table of errors. */
export class OncewardError extends Error {
  constructor(message: string, options?: { code?: string; retry?: boolean; status?: number; details?: object });
  readonly code: string;
  /** Whether the same call may succeed later. */
  readonly retry: boolean;
  /** The status of the HTTP response, or 0. */
  readonly status: number;
  /** Other members of the error, as the server sent them. */
  readonly details: Record<string, any>;
}

// Rooms.

/** A token or an API key, or a function that returns one. It is called before each connection, and
 * before the current token expires. */
export type Credentials = string | (() => string | Promise<string>) | null | undefined;
export type Unsubscribe = () => void;
export type State = "connecting" | "connected" | "closed";
export type Status = "joining" | "live" | "away" | "closed";

export interface LiveOptions {
  token?: Credentials;
}

/**
 * A WebSocket connection with its rooms. It connects at once, and reconnects after a loss unless the
 * error is permanent. Without a connection, changes are applied locally and wait. After the next
 * connection each of them is sent, and takes effect once.
 */
export class Live {
  /** `url` is the address of the server; by default, the origin of the page. */
  constructor(url?: string | URL | null, options?: LiveOptions);
  readonly state: State;
  /** The error that closed the connection; null after `close`. */
  readonly error: OncewardError | null;
  /** The name of the user, from the server; "" before the first connection. */
  readonly user: string;
  readonly rooms: ReadonlyMap<string, Room>;
  /** Call `hook(state)` when the connection is lost, restored or closed. */
  onState(hook: (state: State) => void): Unsubscribe;
  /** A room that can be used at once: changes wait until it is joined. The same id gives the same
   * object. With `create`, a missing room is created. */
  room(id: string, options?: { create?: boolean }): Room;
  /** The same, after the contents of the room have arrived. Rejects if the room cannot be joined. */
  join(id: string, options?: { create?: boolean }): Promise<Room>;
  /** Call an operation on a table, such as `join`, `leave`, `move` or `ready`. The body and the response
   * are those of the HTTP API, without renamed members. Rejects with the error of the server, or with
   * `outcome_unknown` if the connection is lost before the response. */
  act(does: string, table?: string, body?: Record<string, any>): Promise<any>;
  /** Connect now, without waiting for the end of a pause. */
  wake(): void;
  /** Leave all rooms and close the connection. Idempotent. */
  close(): void;
}

/** The author of a change: the user, and whether it was made by this client. */
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
  /** The id of the member that sent it; "" for a server. */
  readonly sender: string;
  /** The user. */
  readonly by: string;
  /** Whether it was sent to this member only. */
  readonly direct: boolean;
}

/** A change of a map or list, as it is sent. */
export type Operation = { readonly op: string; readonly [member: string]: any };

/** A change that is being sent. Await it to wait until the change is durable. */
export interface Saved extends PromiseLike<number | null> {
  /** The id of the changed list item, or "". */
  readonly id: string;
  /** Whether the server has responded. */
  readonly done: boolean;
  /** Resolves to the sequence number of the step; null if the step is durable and its number is
   * unknown. Rejects with the error of the room, or with `outcome_unknown`. A rejection that is not
   * handled is not reported. */
  then<A = number | null, B = never>(
    fulfilled?: ((seq: number | null) => A | PromiseLike<A>) | null,
    rejected?: ((error: OncewardError) => B | PromiseLike<B>) | null,
  ): Promise<A | B>;
  catch<B = never>(rejected: (error: OncewardError) => B | PromiseLike<B>): Promise<number | null | B>;
}

/** The result of undo or redo. */
export interface Undone {
  /** The step that restores the values; null if no value was restored. */
  readonly step: Saved | null;
  /** The values that were not restored, with the reason: one sentence each. */
  readonly kept: string[];
}

/** Changes that are shown and sent immediately, and undone together: a drag, or typing. */
export interface Gesture {
  /** End the gesture. Idempotent. */
  end(): void;
  /** End the gesture and undo it. Returns null if it has no changes or has ended. */
  cancel(): Undone | null;
}

/** A room. Changes are shown at once, sent when there is a connection, and take effect once. */
export class Room {
  private constructor();
  readonly id: string;
  /** `live`: connected. `away`: not connected, changes wait. `closed`: permanently, because of `error`
   * or after `leave`. */
  readonly status: Status;
  readonly error: OncewardError | null;
  readonly user: string;
  /** The member id of this connection. */
  readonly me: string;
  /** The members by id, including this one. In a very large room, only some of them. */
  readonly members: ReadonlyMap<string, Member>;
  /** The number of members. */
  readonly count: number;
  /** The epoch of the room, the last received sequence number, and the digest of the log up to it.
   * Clients with equal positions have equal copies. */
  readonly position: readonly [epoch: string, seq: number, digest: string];
  /** The number of steps that the server has not confirmed. */
  readonly waiting: number;
  readonly canUndo: boolean;
  readonly canRedo: boolean;

  /** A map, which may not exist yet. The same name gives the same object. */
  map<V = any>(name: string): RoomMap<V>;
  /** A list, which may not exist yet. The same name gives the same object. */
  list<V = any>(name: string): RoomList<V>;
  /** A presence. Values are sent at most every `everyMs` [40]. The last value is always sent. */
  presence<V = any>(name: string, options?: { everyMs?: number }): Presence<V>;

  /** Send the changes of `body` as one step. If `body` throws, nothing is changed. It must be
   * synchronous. */
  batch(body: () => void): Saved;
  /** Start a gesture: its changes are undone together. One at a time. */
  gesture(): Gesture;
  /** Undo the last step of this client. Values that others have changed since are kept. Throws if
   * there is nothing to undo. */
  undo(): Undone;
  /** Redo the last undone step. Throws if there is nothing to redo. */
  redo(): Undone;

  /** Send an event to all other members. It is not stored. Throws `not_joined` without a
   * connection. */
  say(event: string, value?: any): void;
  /** Send an event to one member by its id. Delivery is not confirmed. */
  tell(member: string, event: string, value?: any): void;
  /** Call `hook(value, said)` for each event of this name from others. */
  on(event: string, hook: (value: any, said: Said) => void): Unsubscribe;
  /** Call `hook(members)` when members join or leave. */
  onMembers(hook: (members: ReadonlyMap<string, Member>) => void): Unsubscribe;
  /** Call `hook(status)` when the status changes. */
  onStatus(hook: (status: Status) => void): Unsubscribe;
  /** Call `hook(room)` when `waiting`, `canUndo` or `canRedo` may have changed. */
  onSteps(hook: (room: Room) => void): Unsubscribe;
  /** Call `hook(error, operations)` when the room rejects a step, or when the outcome of a step is
   * unknown. Without operations: a presence value was rejected, and the previous one is restored. */
  onRefused(hook: (error: OncewardError, operations: readonly Operation[]) => void): Unsubscribe;
  /** Leave the room. The outcome of unconfirmed steps is unknown. Idempotent. */
  leave(): void;
}

/** Values by key. The last write of a key wins. Values are returned as copies. */
export class RoomMap<V = any> implements Iterable<[string, V]> {
  private constructor();
  readonly name: string;
  readonly size: number;
  /** Call `hook(map, who)` with the whole map after each change. With a key, call `hook(value, who)`
   * with its value; undefined if it was deleted. */
  subscribe(hook: (value: Record<string, V>, who: Who) => void): Unsubscribe;
  subscribe(hook: (value: V | undefined, who: Who) => void, key: string): Unsubscribe;
  get(key: string): V | undefined;
  get(key: string, otherwise: V): V;
  has(key: string): boolean;
  keys(): string[];
  whole(): Record<string, V>;
  [Symbol.iterator](): Iterator<[string, V]>;
  /** Set the value of a key. Throws if the value is not JSON or too large. */
  set(key: string, value: V): Saved;
  /** Delete a key. */
  delete(key: string): Saved;
  /** Add to a number; a missing key counts as 0. Throws `not_countable` for other values. */
  add(key: string, by?: number): Saved;
  /** Set the value of a key if its current value is `expect`; without `expect`, if the key is
   * missing. Throws `not_expected` if the local value differs. The `Saved` rejects if the value on the
   * server differs. */
  compare(key: string, value: V, options?: { expect?: V }): Saved;
  /** Delete the map with all its keys. */
  clear(): Saved;
}

/** An item of a list. Its id does not change when it is moved or set. */
export interface Item<V = any> {
  readonly id: string;
  readonly value: V;
}

/** Items in order. Concurrent inserts at one place are all kept, in the same order for everyone. */
export class RoomList<V = any> implements Iterable<V> {
  private constructor();
  readonly name: string;
  readonly length: number;
  /** Call `hook(values, who)` with all values in order after each change. */
  subscribe(hook: (values: V[], who: Who) => void): Unsubscribe;
  /** The value at an index, counted from the end if negative; undefined if it is out of range. */
  at(index: number): V | undefined;
  /** The value of an item; undefined for an unknown id. */
  get(id: string): V | undefined;
  has(id: string): boolean;
  /** All items in order, with their ids. */
  items(): Item<V>[];
  values(): V[];
  [Symbol.iterator](): Iterator<V>;
  /** The id of the item at an index, counted from the end if negative. Throws `bad_key`. */
  idAt(index: number): string;
  /** Append an item. */
  push(value: V): Saved;
  /** Insert an item at an index. Throws `bad_request`. */
  insert(index: number, value: V): Saved;
  /** Insert an item after another one; "" is the beginning. This and the methods below throw
   * `bad_key` for an unknown id. */
  insertAfter(id: string, value: V): Saved;
  /** Set the value of an item. */
  set(id: string, value: V): Saved;
  /** Move an item to an index. */
  move(id: string, index: number): Saved;
  /** Move an item after another one; "" is the beginning. */
  moveAfter(id: string, other: string): Saved;
  /** Delete an item. */
  delete(id: string): Saved;
  /** Delete the list with all its items. */
  clear(): Saved;
}

/** One value for each connected user. A user sets only their own value, and it expires. */
export class Presence<V = any> {
  private constructor();
  readonly name: string;
  /** Your own value; undefined if it is not set. */
  readonly mine: V | undefined;
  /** Call `hook(values, who)` with the values of all users after each change. */
  subscribe(hook: (values: Record<string, V>, who: Who) => void): Unsubscribe;
  /** The values by user, including your own. */
  all(): Record<string, V>;
  /** Set your own value. It is shown at once. It expires after `ttlS` seconds [60] unless it is set
   * again, or with your last connection. */
  set(value: V, ttlS?: number): void;
  /** Remove your own value. Idempotent. */
  remove(): void;
}
