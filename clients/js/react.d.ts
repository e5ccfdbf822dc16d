// The types of react.js: hooks for React 18 or later.

import type { Gesture, Item, Live, LiveOptions, Member, Presence, Room, RoomList, RoomMap, Said, State, Status, Undone } from "./client.js";
import type { Client } from "./http.js";

/** A connection that lasts as long as the component. It is replaced when `url` changes. */
export function useLive(url?: string | null, options?: LiveOptions): Live;
/** The name of the user, and the state of the connection. */
export function useConnection(live: Live): { state: State; user: string };
/** A room. It is left when the last component that uses it unmounts. */
export function useRoom(live: Live, id: string, options?: { create?: boolean }): Room;
export function useStatus(room: Room): Status;
export function useMembers(room: Room): readonly Member[];
/** The contents of a map, and the map for changes. */
export function useMap<V = any>(room: Room, name: string): [Readonly<Record<string, V>>, RoomMap<V>];
/** The items of a list in order, and the list for changes. */
export function useList<V = any>(room: Room, name: string): [readonly Item<V>[], RoomList<V>];
/** The values of all users, and the presence to set your own. */
export function usePresence<V = any>(room: Room, name: string, options?: { everyMs?: number }): [Readonly<Record<string, V>>, Presence<V>];
/** Undo and redo, whether they are available, and the number of unconfirmed steps. */
export function useSteps(room: Room): { canUndo: boolean; canRedo: boolean; waiting: number; undo(): Undone; redo(): Undone; gesture(): Gesture };
/** Call `hook` for events of other members. */
export function useEvent(room: Room, event: string, hook: (value: any, said: Said) => void): void;
/** A job that is followed. */
export interface FollowedJob {
  /** The state of the job; empty until it is known. */
  state: string;
  /** The last progress, from 0 to 1; null if there is none. */
  progress: number | null;
  text: string;
  /** The chunks of its stream, in order. */
  chunks: readonly any[];
  /** The result of a job that has succeeded. */
  result: any;
  /** Why the job has failed, is in doubt or was cancelled. */
  reason: string;
  /** Why the job cannot be followed. */
  error: Error | null;
}
/** The state, progress and stream of a job, until it ends; nothing without an id. The client must be the same in each render. */
export function useJob(client: Client, id: string | null | undefined): FollowedJob;
