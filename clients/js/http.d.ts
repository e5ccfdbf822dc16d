// The types of http.js: what a client does over HTTP.

import type { Live, LiveOptions, Member, OncewardError, Operation } from "./client.js";

export interface ClientOptions {
  /** An API key or a token. */
  key?: string | null;
  /** For so long calls are made again while the server does not answer (60). */
  patienceS?: number;
}

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
export interface Claim {
  id: string;
  body: any;
  attempt: number;
  token: string;
  leaseUntil: number;
  key?: string | null;
  orderKey?: string | null;
  madeMs?: number;
  reason?: string;
}

/** A job as it is. It has ended if it is done, dead, in doubt or cancelled. */
export interface Job {
  id: string;
  queue: string;
  state: string;
  body: any;
  madeMs: number;
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
export interface Lock {
  id: string;
  token: number;
  /** By name. */
  tokens: Record<string, number>;
  leaseUntil: number;
}

export interface LockStatus {
  name: string;
  capacity: number;
  token: number;
  held: number;
  waiting: number;
  holders: { owner: string; sinceMs: number; number: number }[];
  waiters: { owner: string; sinceMs: number; number: number }[];
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
}

/** A timer as it is: active, firing, success, failed, skipped, cancelled or ended. */
export interface Timer {
  id: string;
  state: string;
  due: string;
  dueMs: number;
  leftMs: number;
  madeMs: number;
  fired: number;
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
  duplicate?: boolean;
  [member: string]: any;
}

export interface Endpoint {
  id: string;
  url: string;
  madeMs: number;
  disabled: boolean;
  health: { failing: boolean; since?: string | null; sinceMs?: number | null; said?: string };
  description?: string;
  headers?: Record<string, string>;
  /** The newest first; only if asked for. */
  secrets?: { secret: string; untilMs?: number | null }[];
  duplicate?: boolean;
}

export interface RoomSettings {
  meta?: Record<string, any>;
  schemas?: Record<string, any>;
  capacity?: number;
  keep?: number;
}

export interface RoomInfo {
  id: string;
  epoch: string;
  seq: number;
  /** From here on it can be seen as it was. */
  floor: number;
  madeMs: number;
  by: string;
  meta: Record<string, any>;
  schemas: Record<string, any>;
  capacity: number;
  keep: number;
}

export interface ListedRoom {
  id: string;
  epoch: string;
  madeMs: number;
  by: string;
  meta: Record<string, any>;
}

/** All that is in a room, at a sequence number. */
export interface RoomState {
  id: string;
  epoch: string;
  seq: number;
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
}

/** A client of a server over HTTP. Calls are made again until they are answered, or patience ends;
 * they reject with an `OncewardError`. */
export class Client {
  /** `url` is that of the server; without one, where the page is from. */
  constructor(url?: string | URL | null, options?: ClientOptions);

  /** A connection to rooms. It has this client's key, or another token, or what gets tokens. */
  live(options?: LiveOptions): Live;

  // Messages and jobs.

  /** Send a message, once for its key: durable when this resolves. With `waitS`, waits so long for
   * its end. */
  accept(queue: string, body: any, options?: MessageOptions & { waitS?: number }): Promise<Receipt>;
  /** A verdict for each, in their order. */
  acceptMany(queue: string, messages: (MessageOptions & { body: any })[]): Promise<(Receipt | OncewardError)[]>;
  /** Lease ready jobs, or wait for some. Each is to be completed, failed or extended. */
  claim(
    queue: string,
    options?: { max?: number; leaseS?: number; waitS?: number; worker?: string; signal?: AbortSignal },
  ): Promise<Claim[]>;
  complete(id: string, token: string, result?: any): Promise<void>;
  /** End an attempt badly; resolves to the job's state. */
  fail(
    id: string,
    token: string,
    reason: string,
    options?: { retryAfterS?: number; final?: boolean },
  ): Promise<string>;
  /** Renew a lease; resolves to until when, in ms. */
  extend(id: string, token: string, leaseS: number): Promise<number>;
  job(id: string, options?: { waitS?: number }): Promise<Job>;
  /** A job once it has ended, or as it is when the time is over. */
  wait(id: string, timeoutS?: number): Promise<Job>;
  /** End a job that has not ended; twice is once. */
  cancel(id: string): Promise<void>;
  /** Let a dead job try again. */
  redrive(id: string): Promise<void>;
  /** Say what became of a step in doubt. */
  settle(id: string, step: string, outcome: { done: boolean; result?: any }): Promise<void>;
  /** Runs a function on the jobs of a queue. */
  worker(queue: string, handler: (claim: Claim, signal: AbortSignal) => any, options?: WorkerOptions): Worker;

  // Queues.

  queues(): Promise<Queue[]>;
  queue(name: string): Promise<Queue>;
  configure(queue: string, settings: Record<string, any>): Promise<Queue>;
  pause(queue: string): Promise<Queue>;
  resume(queue: string): Promise<Queue>;
  /** Dead jobs and those in doubt, and where the next ones start. */
  dead(queue: string, options?: { start?: string; limit?: number }): Promise<[Job[], string | null]>;
  /** Let all dead jobs of a queue try again, or those chosen; resolves to how many. */
  redriveAll(
    queue: string,
    chosen?: { reason?: string; orderKey?: string; sinceMs?: number },
    progress?: (done: number) => void,
  ): Promise<number>;
  /** Cancel all jobs of a queue that wait; resolves to how many. */
  purge(queue: string, progress?: (done: number) => void): Promise<number>;

  // Timers and endpoints.

  /** Let something happen at a time: a POST to a URL or endpoint, or a job in a queue. It is set
   * once for its id or key. */
  setTimer(timer: TimerOptions): Promise<Timer>;
  timer(id: string): Promise<Timer>;
  timers(options?: {
    prefix?: string;
    state?: string;
    after?: string;
    limit?: number;
  }): Promise<[Timer[], string | null]>;
  moveTimer(id: string, when: { at?: number | string | Date; delayS?: number }): Promise<Timer>;
  cancelTimer(id: string): Promise<Timer>;
  /** Let the last firing of a timer, which has failed, be tried again. */
  resend(id: string): Promise<Timer>;
  makeEndpoint(
    url: string,
    options?: {
      id?: string;
      headers?: Record<string, string>;
      description?: string;
      disabled?: boolean;
      secret?: string;
    },
  ): Promise<Endpoint>;
  endpoint(id: string, options?: { secret?: boolean }): Promise<Endpoint>;
  endpoints(options?: { after?: string; limit?: number }): Promise<[Endpoint[], string | null]>;
  changeEndpoint(id: string, changes: Record<string, any>): Promise<Endpoint>;
  /** Forget an endpoint; twice is once. */
  removeEndpoint(id: string): Promise<void>;
  rotateSecret(id: string, options?: { overlapS?: number; secret?: string }): Promise<Endpoint>;
  /** Send a signed test call; resolves to its timer. */
  testEndpoint(id: string): Promise<Timer>;

  // Locks.

  /** Hold all these names, or none; waits in line for up to `waitS`. */
  acquire(names: string | string[], options?: LockOptions): Promise<Lock>;
  /** Renew a lease; resolves to until when, in ms. */
  renew(id: string, leaseS?: number): Promise<number>;
  /** Let go; says whether it was held until now. */
  release(id: string): Promise<boolean>;
  lock(name: string): Promise<LockStatus>;
  /** Hold names while `body` runs, and renew the lease meanwhile. When it is lost, `signal` is
   * aborted, and this rejects with `lock_lost`. */
  hold<T>(
    names: string | string[],
    body: (lock: Lock, signal: AbortSignal) => T | Promise<T>,
    options?: LockOptions,
  ): Promise<T>;

  // Rooms, for those who are in none.

  createRoom(id?: string | null, settings?: RoomSettings): Promise<RoomInfo>;
  roomInfo(id: string): Promise<RoomInfo>;
  rooms(options?: {
    prefix?: string;
    meta?: Record<string, any>;
    after?: string;
    limit?: number;
  }): Promise<[ListedRoom[], string | null]>;
  configureRoom(id: string, settings: RoomSettings): Promise<RoomInfo>;
  deleteRoom(id: string): Promise<void>;
  roomMembers(id: string): Promise<Member[]>;
  /** All that is in a room, or was at a sequence number. */
  roomState(id: string, at?: number): Promise<RoomState>;
  /** Steps behind a sequence number, and since which one the next ones are. */
  roomHistory(id: string, options?: { since?: number; limit?: number }): Promise<[RoomStep[], number | null]>;
  /** Change a room by operations, which take effect as one; resolves to the sequence number. */
  changeRoom(id: string, ops: Operation[]): Promise<number | null>;
  /** Say something to all who are in a room, or to one member; resolves to how many hear it. */
  sayInRoom(id: string, event: string, value?: any, options?: { to?: string }): Promise<number>;
  roomMap(id: string, name: string): Promise<Record<string, any>>;
  roomList(id: string, name: string): Promise<[id: string, value: any][]>;
  roomPresence(id: string, name: string): Promise<Record<string, any>>;
  makeInRoom(
    id: string,
    kind: "maps" | "lists" | "presences",
    name: string,
    options?: { schema?: Record<string, any> },
  ): Promise<void>;
  dropInRoom(id: string, kind: "maps" | "lists" | "presences", name: string): Promise<boolean>;
}

export interface LockOptions {
  leaseS?: number;
  waitS?: number;
  owner?: string;
  capacity?: number;
}

export interface WorkerOptions {
  concurrency?: number;
  leaseS?: number;
  waitS?: number;
  name?: string;
}

/**
 * Runs a handler on the jobs of a queue, several at once, until it is stopped. What the handler
 * returns is the job's result. What it throws fails the attempt: a member `retryAfterS` of that names
 * the time to the next one, and `final: true` lets there be none. The lease is renewed meanwhile; when
 * it is lost, `signal` is aborted, since others may be at work by then.
 */
export class Worker {
  private constructor();
  /** Work until `stop`; rejects with what the server refuses. */
  run(): Promise<void>;
  /** Take no more jobs; `run` resolves when those at hand have ended. */
  stop(): void;
}
