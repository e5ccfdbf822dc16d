// The types of what http.js is asked with and answers, in the order of its calls.

import type { Operation } from "./client.js";

export interface MessageOptions {
  key?: string;
  delayMs?: number;
  dueMs?: number;
  orderKey?: string;
  limitKey?: string;
  priority?: number;
  attemptsMax?: number;
}

/** What a sender gets, the first time and each time after. */
export interface Receipt {
  id: string;
  key: string;
  state: string;
  duplicate: boolean;
  result?: any;
  reason?: string;
  sameBody?: boolean;
}

/** A job at hand, and the token that proves it. */
export interface ClaimedJob {
  id: string;
  body: any;
  attempt: number;
  token: string;
  leaseUntilMs: number;
  key?: string | null;
  orderKey?: string | null;
  createdMs?: number;
  reason?: string;
}

/** A job as it is. It has ended if it is done, failed, in doubt or cancelled. */
export interface Job {
  id: string;
  queue: string;
  state: string;
  body: any;
  createdMs: number;
  dueMs: number;
  attempt: number;
  attemptsMax: number;
  priority: number;
  key?: string | null;
  orderKey?: string | null;
  result?: any;
  reason?: string;
  endedMs?: number;
  worker?: string;
  history?: Record<string, any>[];
  /** The last settlements of steps in doubt. */
  settled?: Record<string, any>[];
}

export interface Queue {
  name: string;
  /** How many jobs, by state. */
  jobs: Record<string, number>;
  oldestReadyMs: number | null;
  countedMs: number | null;
  settings: Record<string, any>;
}

/** What is held, until the lease runs out or is renewed. */
export interface HeldLocks {
  id: string;
  token: number;
  /** By name. */
  tokens: Record<string, number>;
  leaseUntilMs: number;
}

export interface Lock {
  name: string;
  capacity: number;
  token: number;
  held: number;
  waiting: number;
  holders: { owner: string; sinceMs: number; number: number }[];
  waiters: { owner: string; sinceMs: number; number: number }[];
}

/** When a call that failed is attempted again. */
export interface RetryOptions {
  /** The pauses between attempts, in seconds. */
  pausesS?: number[];
  attemptsMax?: number;
  timeoutS?: number;
}

/** A receiver that does not answer is left alone for a while. */
export interface Pause {
  untilMs: number;
  failures: number;
}

/** When a call that failed is attempted again, as the server has it. */
export interface RetryPolicy {
  pausesMs?: number[] | null;
  attemptsMax?: number | null;
  timeoutMs?: number | null;
}

export interface TimerOptions {
  id?: string;
  key?: string;
  url?: string;
  endpoint?: string;
  queue?: string;
  body?: any;
  headers?: Record<string, string>;
  appendId?: boolean;
  /** A time in ms, a text as in RFC 3339, or a Date. */
  at?: number | string | Date;
  delayS?: number;
  everyS?: number;
  cron?: string;
  zone?: string;
  catchUp?: string;
  attemptsMax?: number;
  orderKey?: string;
  limitKey?: string;
  priority?: number;
  retry?: RetryOptions;
}

/** A timer as it is: active, suspended, firing, success, failed, skipped, cancelled or ended. */
export interface Timer {
  id: string;
  state: string;
  due: string;
  dueMs: number;
  leftMs: number;
  createdMs: number;
  fired: number;
  url?: string | null;
  endpoint?: string | null;
  queue?: string | null;
  headers?: Record<string, string>;
  body?: any;
  appendId?: boolean;
  attemptsMax?: number | null;
  retry?: RetryPolicy | null;
  orderKey?: string | null;
  limitKey?: string | null;
  priority?: number | null;
  everyMs?: number | null;
  cron?: string | null;
  zone?: string | null;
  catchUp?: string;
  /** The next times of one that repeats. */
  next?: string[];
  /** The last time it has fired. */
  last?: {
    id: string;
    number: number;
    firedMs: number;
    state: string;
    attempts?: { attempt: number; at: string; atMs: number; outcome: string; said?: string }[];
    dueMs?: number | null;
    nextAttemptMs?: number | null;
  } | null;
  /** Whether it was set before, by the same call. */
  duplicate?: boolean;
}

export interface Endpoint {
  id: string;
  url: string;
  createdMs: number;
  disabled: boolean;
  health: { failing: boolean; since?: string | null; sinceMs?: number | null; said?: string };
  description?: string;
  headers?: Record<string, string>;
  /** The newest first; only if asked for. */
  secrets?: { secret: string; untilMs?: number | null }[];
  /** Whether calls wait, since its secrets need a server key that the server does not have. */
  suspended?: boolean;
  retry?: RetryPolicy | null;
  /** If calls wait since it does not answer. */
  pause?: Pause | null;
  duplicate?: boolean;
}

/** What time it is for a server. */
export interface ServerClock {
  nowMs: number;
  /** What the clock of its machine or of its database shows. */
  wallMs: number;
  /** Whether that is not believed, since it is far ahead of the last commit. */
  held: boolean;
}

export interface RoomSettings {
  meta?: Record<string, any>;
  schemas?: Record<string, any>;
  /** How many users may be in it at a time. */
  capacity?: number;
  /** How many connections each user may have to it. */
  perUser?: number;
  keep?: number;
}

export interface RoomInfo {
  id: string;
  epoch: string;
  seq: number;
  /** Of its log up to `seq`. */
  digest: string;
  /** From here on it can be seen as it was. */
  floor: number;
  createdMs: number;
  by: string;
  meta: Record<string, any>;
  schemas: Record<string, any>;
  capacity: number;
  perUser: number;
  keep: number;
}

export interface ListedRoom {
  id: string;
  epoch: string;
  createdMs: number;
  by: string;
  meta: Record<string, any>;
}

/** All that is in a room, at a sequence number. */
export interface RoomState {
  id: string;
  epoch: string;
  seq: number;
  digest: string;
  maps: Record<string, Record<string, any>>;
  /** Of each item its id, position and value, in order. */
  lists: Record<string, [id: string, position: string, value: any][]>;
}

/** A step in the history of a room. */
export interface RoomStep {
  seq: number;
  ops: Operation[];
  by?: string;
  client?: string;
  n?: number;
  atMs?: number;
  /** Of the log up to here; rejects with `history_gone` if it is given to `roomHistory` and differs. */
  digest?: string;
}

/** Who sits under a marker. */
export interface Seat {
  user: string;
  sinceMs?: number;
  wins?: number;
  bot?: boolean;
  ready?: boolean;
  turn?: boolean;
  dueMs?: number;
  warned?: boolean;
  awayMs?: number;
  lane?: string;
  tier?: number;
  /** The same for those who came together. */
  party?: number;
  /** How many games in a row it has lost on time, and done nothing since. */
  idle?: number;
}

/** A table as it is. */
export interface Table {
  id: string;
  phase: string;
  /** Of the game that is on, or was the last. */
  number: number;
  /** By marker; null: empty. */
  seats: Record<string, Seat | null>;
  waiting: number;
  spectators: number;
  policy: Record<string, any>;
  game?: string;
  createdMs?: number;
  beganMs?: number;
  paused?: boolean;
  /** Why it has paused by itself. */
  pausedWhy?: string;
  paceMs?: number;
  lanes?: Record<string, number>;
  by?: string;
  meta?: Record<string, any>;
  pool?: string;
}

/** A place in the waitlist: of one person, or of a party. */
export interface Waiter {
  lane: string;
  number: number;
  /** In the lane, from 1 on. */
  position: number;
  sinceMs: number;
  /** How many people wait there together (1). */
  size?: number;
  /** Their names; none if the policy hides them. */
  users?: string[];
}

/** Where someone is at a table. */
export interface Place {
  table: string;
  user: string;
  role: string;
  phase: string;
  game?: number;
  marker?: string;
  lane?: string;
  number?: number;
  position?: number;
  went?: number;
  ahead?: number;
  waiting?: number;
  waitMs?: number;
  opened?: string;
}

/** How a game has ended. */
export interface Ending {
  number: number;
  /** By marker. */
  players: Record<string, string>;
  winners: string[];
  reason: string;
  ratings?: Record<string, number>;
}

/** Someone on a ladder. */
export interface Leader {
  user: string;
  rating: number;
  games?: number;
  won?: number;
  drawn?: number;
}

/** How well someone plays. */
export interface Rating {
  rating: number;
  games?: number;
  won?: number;
  drawn?: number;
}

/** A match as whoever asks may see it. */
export interface MatchView {
  match: string;
  game: string;
  /** By seat. */
  players: Record<string, string>;
  number: number;
  state: any;
  /** The seats whose moves have yet to come. */
  awaited: string[];
  /** What one may do now. */
  moves: any[];
  /** One's own move of this round, while it is hidden from others. */
  mine?: any;
  dueMs?: number | null;
  outcome?: { winners?: string[]; why?: string } | null;
  seat?: string | null;
}
