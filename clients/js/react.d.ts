// The types of react.js: hooks for React 18 or later.

import type { Gesture, Item, Live, LiveOptions, Member, Presence, Room, RoomList, RoomMap, Said, State, Status, Undone } from "./client.js";

/** A connection for as long as the component is there. It is made anew when `url` changes. */
export function useLive(url?: string | null, options?: LiveOptions): Live;
/** Who one is, and whether there is a connection. */
export function useConnection(live: Live): { state: State; user: string };
/** A room for as long as a component that uses it is there; it is left with the last one. */
export function useRoom(live: Live, id: string, options?: { create?: boolean }): Room;
export function useStatus(room: Room): Status;
export function useMembers(room: Room): readonly Member[];
/** The whole map, and the map to change it by. */
export function useMap<V = any>(room: Room, name: string): [Readonly<Record<string, V>>, RoomMap<V>];
/** The items in order, and the list to change it by. */
export function useList<V = any>(room: Room, name: string): [readonly Item<V>[], RoomList<V>];
/** The values of all users, and the presence to set one's own by. */
export function usePresence<V = any>(room: Room, name: string, options?: { everyMs?: number }): [Readonly<Record<string, V>>, Presence<V>];
/** Undo and redo, whether they can be done, and how many steps wait for the server. */
export function useSteps(room: Room): { canUndo: boolean; canRedo: boolean; waiting: number; undo(): Undone; redo(): Undone; gesture(): Gesture };
/** Hear what others say. */
export function useEvent(room: Room, event: string, hook: (value: any, said: Said) => void): void;
