// Hooks for React 18 or later: see react.d.ts.

import { useEffect, useMemo, useReducer, useRef, useState, useSyncExternalStore } from "react";
import { Live } from "./client.js";

// The value that `look` returns. It is read again only when `subscribe` calls back: React needs the
// same object while nothing has changed.
function useSeen(subscribe, look, dependencies) {
  const store = useMemo(() => {
    let seen = look();
    return {
      get: () => seen,
      subscribe(changed) {
        seen = look(); // as it may have changed since it was first seen
        return subscribe(() => {
          seen = look();
          changed();
        });
      },
    };
  }, dependencies);
  return useSyncExternalStore(store.subscribe, store.get, store.get);
}

const users = new WeakMap();

// An object that lives while components use it. It is ended after the last one, with a delay: React
// may remove a component and add it again at once. If it is added later, the object is created
// again.
function useWhile(make, dependencies, ended, end) {
  const [turn, again] = useReducer((turn) => turn + 1, 0);
  const thing = useMemo(make, [...dependencies, turn]);
  useEffect(() => {
    if (ended(thing)) return again();
    users.set(thing, (users.get(thing) ?? 0) + 1);
    return () => {
      users.set(thing, users.get(thing) - 1);
      setTimeout(() => users.get(thing) === 0 && end(thing));
    };
  }, [thing]);
  return thing;
}

// The last connection that was made: React may render twice before a component uses it, or never show
// one.
let spare = null;

function connected(url, token, asked) {
  if (spare && spare.url === url && spare.token === token && !users.has(spare.live)) return spare.live;
  const live = new Live(url, { token: typeof token === "function" ? asked : token });
  spare = { url, token, live };
  return live;
}

export function useLive(url, { token } = {}) {
  const latest = useRef(token);
  latest.current = token;
  const asked = () => (typeof latest.current === "function" ? latest.current() : latest.current);
  return useWhile(
    () => connected(url, token, asked),
    [url],
    (live) => live.state === "closed" && !live.error,
    (live) => live.close(),
  );
}

export function useConnection(live) {
  return useSeen(
    (changed) => live.onState(changed),
    () => ({ state: live.state, user: live.user }),
    [live],
  );
}

export function useRoom(live, id, options) {
  return useWhile(
    () => live.room(id, options),
    [live, id],
    (room) => room.status === "closed" && !room.error,
    (room) => room.leave(),
  );
}

export function useStatus(room) {
  return useSeen((changed) => room.onStatus(changed), () => room.status, [room]);
}

export function useMembers(room) {
  return useSeen((changed) => room.onMembers(changed), () => [...room.members.values()], [room]);
}

export function useMap(room, name) {
  const map = room.map(name);
  return [useSeen((changed) => map.subscribe(changed), () => map.whole(), [map]), map];
}

export function useList(room, name) {
  const list = room.list(name);
  return [useSeen((changed) => list.subscribe(changed), () => list.items(), [list]), list];
}

export function usePresence(room, name, options) {
  const presence = room.presence(name, options);
  return [useSeen((changed) => presence.subscribe(changed), () => presence.all(), [presence]), presence];
}

export function useSteps(room) {
  return useSeen(
    (changed) => room.onSteps(changed),
    () => ({
      canUndo: room.canUndo,
      canRedo: room.canRedo,
      waiting: room.waiting,
      undo: () => room.undo(),
      redo: () => room.redo(),
      gesture: () => room.gesture(),
    }),
    [room],
  );
}

export function useEvent(room, event, hook) {
  const latest = useRef(hook);
  latest.current = hook;
  useEffect(() => room.on(event, (...args) => latest.current(...args)), [room, event]);
}

const UNSEEN = { state: "", progress: null, text: "", chunks: [], result: null, reason: "", error: null };

function seenAfter(seen, { kind, seq, attempt, value, ...news }) {
  if (kind === "chunk") return { ...seen, ...news, chunks: [...seen.chunks, value] };
  return { ...seen, ...news, ...(kind === "restart" && { chunks: [] }) };
}

export function useJob(client, id) {
  const [seen, show] = useState(UNSEEN);
  useEffect(() => {
    const over = new AbortController();
    const { signal } = over;
    const read = async () => {
      let job = UNSEEN;
      show(job);
      try {
        if (!id) return;
        for await (const update of client.jobs.follow(id, { signal })) {
          if (signal.aborted) return;
          show((job = seenAfter(job, update)));
        }
      } catch (error) {
        if (!signal.aborted) show({ ...job, error });
      }
    };
    read();
    return () => over.abort();
  }, [client, id]);
  return seen;
}
