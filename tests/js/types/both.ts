// The published types beside ours: the same names, and what is theirs can be used as ours.

import * as Theirs from "@roomservice/browser";
import * as Ours from "onceward/roomservice";

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const same = <T extends true>() => undefined as unknown as T;
type Todo = { text: string };

same<Equal<keyof typeof Theirs, keyof typeof Ours>>();
same<Equal<keyof Theirs.MapClient<any>, keyof Ours.MapClient<any>>>();
same<Equal<keyof Theirs.ListClient<any>, keyof Ours.ListClient<any>>>();
same<Equal<keyof Theirs.PresenceClient<any>, keyof Ours.PresenceClient<any>>>();
same<Equal<keyof Theirs.RoomService<any>, keyof Ours.RoomService<any>>>();
// All of theirs that a page uses; the rest is for the library itself.
type Inside = "forwardCmd" | "processCmd" | "bootstrap" | "startQueueingCmds" | "dispatchDocCmd" | "dispatchRmGuest";
same<Equal<Exclude<keyof Theirs.RoomClient, Inside>, Exclude<keyof Ours.RoomClient, "onceward">>>();

export const map = (theirs: Theirs.MapClient<{ a: 1 }>): Ours.MapClient<{ a: 1 }> => theirs;
export const mapBack = (ours: Ours.MapClient<{ a: 1 }>): Theirs.MapClient<{ a: 1 }> => ours;
export const list = (theirs: Theirs.ListClient<Todo[]>): Ours.ListClient<Todo[]> => theirs;
export const presence = (theirs: Theirs.PresenceClient<Todo>): Ours.PresenceClient<Todo> => theirs;
export const presenceBack = (ours: Ours.PresenceClient<Todo>): Theirs.PresenceClient<Todo> => ours;
export const parameters = (theirs: Theirs.RoomServiceParameters<Todo>): Ours.RoomServiceParameters<Todo> => theirs;
export const parametersBack = (ours: Ours.RoomServiceParameters<Todo>): Theirs.RoomServiceParameters<Todo> => ours;
