// The types of http.js: what a client does over HTTP.

import type { Live, LiveOptions, Member, OncewardError, Operation, Unsubscribe } from "./client.js";
import type {
  ClaimedJob,
  Ending,
  Endpoint,
  Job,
  Leader,
  ListedRoom,
  HeldLocks,
  Lock,
  MatchView,
  MessageOptions,
  Place,
  Queue,
  Rating,
  Receipt,
  RetryOptions,
  RoomInfo,
  RoomSettings,
  ServerClock,
  RoomState,
  RoomStep,
  Table,
  Timer,
  TimerOptions,
  Waiter,
} from "./views.js";

export type * from "./views.js";

export interface ClientOptions {
  /** An API key or a token. */
  key?: string | null;
  /** For so long calls are made again while the server does not answer (60). */
  patienceS?: number;
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
  ): Promise<ClaimedJob[]>;
  complete(id: string, token: string, result?: any): Promise<void>;
  /** End an attempt badly; resolves to the job's state. */
  fail(
    id: string,
    token: string,
    reason: string,
    options?: { retryAfterS?: number; notBeforeS?: number; final?: boolean },
  ): Promise<string>;
  /** Renew a lease; resolves to until when, in ms. */
  extend(id: string, token: string, leaseS: number): Promise<number>;
  job(id: string, options?: { waitS?: number }): Promise<Job>;
  /** A job once it has ended, or as it is when the time is over. */
  wait(id: string, timeoutS?: number): Promise<Job>;
  /** End a job that has not ended; twice is once. */
  cancel(id: string): Promise<void>;
  /** Let a failed job try again. */
  redrive(id: string): Promise<void>;
  /** Report what became of a step in doubt, and why you know. */
  settle(
    id: string,
    step: string,
    outcome: { done: boolean; result?: any; reason?: string },
  ): Promise<void>;
  /** Runs a function on the jobs of a queue. */
  worker(queue: string, handler: (claim: ClaimedJob, signal: AbortSignal) => any, options?: WorkerOptions): Worker;

  // Queues.

  /** What time it is for the server. */
  serverClock(): Promise<ServerClock>;
  /** Accept a clock that is far ahead of the last commit. Idempotent. */
  confirmClock(): Promise<ServerClock>;
  queues(): Promise<Queue[]>;
  queue(name: string): Promise<Queue>;
  configure(queue: string, settings: Record<string, any>): Promise<Queue>;
  pause(queue: string): Promise<Queue>;
  resume(queue: string): Promise<Queue>;
  /** Failed jobs and those in doubt, and where the next ones start. */
  dead(queue: string, options?: { start?: string; limit?: number }): Promise<[Job[], string | null]>;
  /** Let all failed jobs of a queue try again, or those chosen; resolves to how many. */
  redriveAll(
    queue: string,
    chosen?: { reason?: string; orderKey?: string; sinceMs?: number },
    progress?: (done: number) => void,
    /** Gets the number of jobs with steps in doubt. */
    inDoubt?: (count: number) => void,
  ): Promise<number>;
  /** Cancel all jobs of a queue that wait; resolves to how many. */
  purge(queue: string, progress?: (done: number) => void): Promise<number>;

  // Timers and endpoints.

  /** Let something happen at a time: a POST to a URL or endpoint, or a job in a queue. It is set
   * once for its id or key. */
  setTimer(timer: TimerOptions): Promise<Timer>;
  /** With `app` it is one of the application that is served, also in the calls below. */
  timer(id: string, options?: { app?: boolean }): Promise<Timer>;
  timers(options?: {
    prefix?: string;
    state?: string;
    app?: boolean;
    after?: string;
    limit?: number;
  }): Promise<[Timer[], string | null]>;
  moveTimer(id: string, when: { at?: number | string | Date; delayS?: number; app?: boolean }): Promise<Timer>;
  cancelTimer(id: string, options?: { app?: boolean }): Promise<Timer>;
  /** Let the last firing of a timer, which has failed, be tried again. */
  resend(id: string, options?: { app?: boolean }): Promise<Timer>;
  makeEndpoint(
    url: string,
    options?: {
      id?: string;
      headers?: Record<string, string>;
      description?: string;
      disabled?: boolean;
      secret?: string;
      retry?: RetryOptions;
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
  acquire(names: string | string[], options?: LockOptions): Promise<HeldLocks>;
  /** Renew a lease; resolves to until when, in ms. */
  renew(id: string, leaseS?: number): Promise<number>;
  /** Let go; says whether it was held until now. */
  release(id: string): Promise<boolean>;
  lock(name: string): Promise<Lock>;
  /** Hold names while `body` runs, and renew the lease meanwhile. When it is lost, `signal` is
   * aborted, and this rejects with `lock_lost`. */
  hold<T>(
    names: string | string[],
    body: (lock: HeldLocks, signal: AbortSignal) => T | Promise<T>,
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
  /** The connections in a room. A creator that has not joined yet comes first, with an empty `id`. */
  roomMembers(id: string): Promise<Member[]>;
  /** All that is in a room, or was at a sequence number. */
  roomState(id: string, at?: number): Promise<RoomState>;
  /** Steps behind a sequence number, and since which one the next ones are. */
  roomHistory(id: string, options?: { since?: number; digest?: string; limit?: number }): Promise<[RoomStep[], number | null]>;
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

  // Tables. Without `user` it is about whoever the key is of.

  /** Make a table; without an id one is made up. The members of `policy` are those of the API, in
   * camelCase: `{ maxWins: 3, turnMs: 10_000 }`. */
  createTable(
    id?: string | null,
    options?: { policy?: Record<string, any>; game?: string; meta?: Record<string, any> },
  ): Promise<Table>;
  table(id: string): Promise<Table>;
  /** Tables in the order of their ids, and after which one the next ones come. */
  tables(options?: {
    prefix?: string;
    game?: string;
    phase?: string;
    after?: string;
    limit?: number;
  }): Promise<[Table[], string | null]>;
  /** Sit down, or stand in line; again is once. */
  joinTable(id: string, options?: { user?: string; lane?: string; party?: string[] }): Promise<Place>;
  /** Join a table and its room, and follow one's own place there, live. `live` is a connection of the
   * same user. */
  stand(id: string, live: Live, options?: { user?: string; lane?: string }): Promise<Standing>;
  /** Get up, or out of the line; again is once. Who leaves a game has lost it. */
  leaveTable(id: string, options?: { user?: string }): Promise<Place>;
  /** Be a spectator. */
  watchTable(id: string, options?: { user?: string }): Promise<Place>;
  /** Say that one is ready, or wants to play again. */
  ready(id: string, options?: { user?: string }): Promise<Place>;
  /** Where someone is: seat or position, and about how long it will take. */
  place(id: string, options?: { user?: string }): Promise<Place>;
  /** Part of the waitlist of a table, and the cursor of the next part, or null. */
  waitlist(id: string, options?: { after?: string; limit?: number }): Promise<[Waiter[], string | null]>;
  /** Give a sign of life, as those who wait must. Who is in the table's room does. */
  alive(id: string, options?: { user?: string }): Promise<void>;
  /** Make a move, once for its key; resolves to what the referee answers. */
  move(id: string, move: any, options?: { user?: string; key?: string }): Promise<any>;
  /** End the game of that number; without winners it is a draw. Rejects with `outcome_unknown` if an
   * answer was lost, and the game is over now. */
  endGame(id: string, winners: string[], options: { game: number }): Promise<Ending>;
  /** Stop all clocks and seat nobody, until `resumeTable`; twice is once. */
  pauseTable(id: string): Promise<Table>;
  resumeTable(id: string): Promise<Table>;
  /** End it for everyone; twice is once. */
  closeTable(id: string): Promise<Table>;
  /** The best players, from behind one of them on. */
  leaders(ladder?: string, options?: { limit?: number; after?: Leader }): Promise<Leader[]>;
  /** How well someone plays; null if that is not known. */
  rating(user: string, ladder?: string): Promise<Rating | null>;

  // Matches.

  /** A match as it stands, with one's own secrets and nobody else's. */
  match(id: string): Promise<MatchView>;
  /** What has happened in a match that is over. */
  matchLog(id: string): Promise<Record<string, any>[]>;
  /** A match that is over, move by move. */
  matchReplay(id: string): Promise<MatchView[]>;
}

/** One's own place at a table, live: from the table's room, without asking again and again. */
export class Standing {
  private constructor();
  /** Where one is now. */
  readonly place: Place;
  /** About how long one waits yet. */
  readonly waitMs: number;
  /** Call `hook(place)` with each change. */
  subscribe(hook: (place: Place) => void): Unsubscribe;
  /** Follow no longer; the place and the room stay. Twice is once. */
  close(): void;
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
 * the time to the next one, `notBeforeS` the least of it, and `final: true` lets there be none. The lease is renewed meanwhile; when
 * it is lost, `signal` is aborted, since others may be at work by then.
 */
export class Worker {
  private constructor();
  /** Work until `stop`; rejects with what the server refuses. */
  run(): Promise<void>;
  /** Take no more jobs; `run` resolves when those at hand have ended. */
  stop(): void;
}
