// A component that uses all hooks, and shows what they say as JSON. Others can be told to do things.

import { createElement, useState } from "react";
import {
  useConnection, useEvent, useJob, useList, useLive, useMap, useMembers, usePresence, useRoom, useStatus, useSteps,
} from "onceward/react";

export const made = []; // connections, in the order in which components had them
export const heard = [];
export const renders = { count: 0 };
export let does; // what a person may do with what the last rendering gave

export function All({ user, id = "r" }) {
  renders.count++;
  const live = useLive(null, { token: () => `dev:${user}` });
  if (!made.includes(live)) made.push(live);
  const room = useRoom(live, id, { create: true });
  const connection = useConnection(live);
  const status = useStatus(room);
  const members = useMembers(room).map((member) => member.user);
  const [values, map] = useMap(room, "m");
  const [items, list] = useList(room, "l");
  const [people, presence] = usePresence(room, "p");
  const { canUndo, canRedo, undo, redo, gesture } = useSteps(room);
  useEvent(room, "wave", (value, { by }) => heard.push([user, value, by]));
  does = { live, room, map, list, presence, undo, redo, gesture };
  const shown = { connection, status, members, values, items: items.map(({ value }) => value), people, canUndo, canRedo };
  return createElement("pre", { id: `all-${user}` }, JSON.stringify(shown));
}

export function Followed({ client, id }) {
  return createElement("pre", { id: "all-job" }, JSON.stringify(useJob(client, id)));
}

// Lets a test show something else.
export function Switch({ parts }) {
  const [part, show] = useState("first");
  Switch.show = show;
  return parts[part];
}
