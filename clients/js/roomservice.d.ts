// The types of roomservice.js: those of `@roomservice/browser` 3, as far as they are public.

import type { Room } from "./client.js";

export type MapObject = { [key: string]: any };
export type ListObject = Array<any>;

export interface Resource {
  id: string;
  object: string;
  reference: string;
  permission: "read_write" | "join";
}

/** What the auth address, or function, gives: a token of the Onceward server for `user`. The room
 * is the one of the id that its resource has. */
export interface AuthResponse {
  token: string;
  user: string;
  resources: Resource[];
}

export type AuthFunction<T extends object> = (params: { room: string; ctx: T }) => Promise<AuthResponse>;

interface SimpleAuthParams {
  auth: string;
  /** Where the Onceward server is, if neither where this module nor where the page is from. */
  url?: string;
}
interface ComplexAuthParams<T extends object> {
  auth: AuthFunction<T>;
  ctx: T;
  url?: string;
}
export type RoomServiceParameters<T extends object> = SimpleAuthParams | ComplexAuthParams<T>;

export class RoomService<T extends object> {
  constructor(params: RoomServiceParameters<T>);
  /** The room, once it is loaded; created if it does not exist. The same name returns the same room. */
  room(name: string): Promise<RoomClient>;
}
export default RoomService;

export interface MapClient<T extends MapObject> {
  readonly keys: Array<keyof T>;
  get<K extends keyof T>(key: K): T[K] | undefined;
  /** Sets a whole value; `undefined` deletes. */
  set<K extends keyof T>(key: K, value: T[K]): MapClient<T>;
  delete<K extends keyof T>(key: K): MapClient<T>;
  toObject(): T;
}

export interface ListClient<T extends ListObject> {
  /** Throws a RangeError past the end. */
  insertAt<K extends number>(index: K, val: T[K]): ListClient<T>;
  insertAfter<K extends number>(index: K, val: T[K]): ListClient<T>;
  push<K extends number>(...args: Array<T[K]>): ListClient<T>;
  /** Sets an item that is there; `undefined` deletes it. */
  set<K extends number>(index: K, val: T[K]): ListClient<T>;
  /** Warns if there is no such item. */
  delete<K extends number>(index: K): ListClient<T>;
  map<K extends number>(fn: (val: T[K], index: number, key: string) => Array<T[number]>): Array<T[K]>;
  toArray(): T[number][];
}

export interface PresenceClient<T extends any> {
  /** Sets the user's value for `exp` seconds (default 60, at most a day). */
  set(value: T, exp?: number): { [key: string]: T };
  getMine(): T | undefined;
  getAll(): { [key: string]: T };
}

export type ListenerBundle = Array<{ objID?: string; fn: (args: any) => void }>;

export class RoomClient {
  private constructor();
  /** Who one is. */
  get me(): string;
  /** The room of client.js, for what Room Service did not have: undo, batches, members, status. */
  get onceward(): Room;
  map<T extends MapObject>(name: string): MapClient<T>;
  list<T extends ListObject>(name: string): ListClient<T>;
  presence<T extends any>(key: string): PresenceClient<T>;
  /** Calls a function after each change, including the user's own. It must not change the same object. */
  subscribe<T extends ListObject>(list: ListClient<T>, onChangeFn: (list: T) => any): ListenerBundle;
  subscribe<T extends ListObject>(list: ListClient<T>, onChangeFn: (list: T, from: string) => any): ListenerBundle;
  subscribe<T extends MapObject>(map: MapClient<T>, onChangeFn: (map: T) => {}): ListenerBundle;
  subscribe<T extends MapObject>(map: MapClient<T>, onChangeFn: (map: T, from: string) => any): ListenerBundle;
  subscribe<T extends any>(
    presence: PresenceClient<T>,
    onChangeFn: (obj: { [key: string]: T }, from: string) => any,
  ): ListenerBundle;
  unsubscribe(listeners: ListenerBundle): void;
}
