// The types of http.js: the client of the API over HTTP.

import type { Live, LiveOptions, OncewardError, Unsubscribe } from "./client.js";
import type {
  CallOptions,
  ClaimedJob,
  HeldLocks,
  Job,
  LocksAcquireOptions,
  MessageInput,
  MessagesSendOptions,
  Operations,
  Place,
  QueuesRedriveOptions,
  Receipt,
  TablesJoinOptions,
} from "./operations.js";

export type * from "./operations.js";

export interface ClientOptions {
  /** An API key or a token. */
  key?: string | null;
  /** How long a call is retried while the server does not respond, in seconds [60]. */
  patienceS?: number;
}

/**
 * A client of the API over HTTP, with one method for each operation: `client.jobs.retry(id)`.
 *
 * Arguments in the path and required members are positional; all others are options. Durations are
 * in seconds (`leaseS`), points in time in milliseconds since 1970 (`dueMs`).
 *
 * A call is retried until the server responds or `patienceS` is over, and takes effect once. It
 * rejects with an `OncewardError`.
 */
export class Client {
  /** `url` is the address of the server; by default, the origin of the page. */
  constructor(url?: string | URL | null, options?: ClientOptions);

  readonly jobs: Operations["jobs"] & {
    /** Wait for the end of a job. After `timeoutS`, the job is returned in its current state. */
    wait(id: string, options?: CallOptions & { timeoutS?: number }): Promise<Job>;
    /**
     * Follow a job until it ends: its states, its progress, and the chunks of its stream. It
     * reconnects by itself. Continue with the `seq` of an update as `after`: no chunk is missing, and
     * none comes twice.
     */
    follow(id: string, options?: CallOptions & { after?: number }): AsyncGenerator<JobUpdate, void>;
  };
  readonly queues: Operations["queues"] & {
    /** Retry all failed jobs of a queue, or those that match. Idempotent. */
    redriveAll(
      queue: string,
      options?: Omit<QueuesRedriveOptions, "after"> & BulkOptions,
    ): Promise<BulkChange>;
    /** Cancel all waiting jobs of a queue. Idempotent. */
    purgeAll(queue: string, options?: CallOptions & BulkOptions): Promise<BulkChange>;
  };
  readonly locks: Operations["locks"] & {
    /**
     * Hold locks while `body` runs. The lease is renewed. If it is lost, `signal` is aborted, and
     * the call rejects with `lock_lost`.
     */
    hold<T>(
      names: string | string[],
      body: (lock: HeldLocks, signal: AbortSignal) => T | Promise<T>,
      options?: LocksAcquireOptions,
    ): Promise<T>;
  };
  readonly tables: Operations["tables"] & {
    /**
     * Join a table and its room, and follow the user's place there. `live` is a connection of the
     * same user.
     */
    follow(id: string, live: Live, options?: TablesJoinOptions): Promise<LivePlace>;
  };

  /**
   * Send a message. It is durable when the promise resolves. The same `key` takes effect once.
   * Without a key, the queue makes one from the body (`keyFields`), or each call sends a message.
   */
  send(queue: string, body: any, options?: MessagesSendOptions): Promise<Receipt>;
  /** Send up to 1,000 messages. Each result is a receipt or an error, in the order of `messages`. */
  sendMany(
    queue: string,
    messages: MessageInput[],
    options?: CallOptions,
  ): Promise<(Receipt | OncewardError)[]>;
  /** A worker that runs a function on the jobs of a queue. */
  worker(
    queue: string,
    handler: (job: WorkerJob, signal: AbortSignal) => any,
    options?: WorkerOptions,
  ): Worker;
  /** A WebSocket connection to rooms, with the key of this client or another token. */
  live(options?: LiveOptions): Live;
}

export interface Client extends Omit<Operations, "jobs" | "queues" | "locks" | "tables"> {}

/**
 * An update of a job. `restart`: the handler streams again from the beginning; drop all chunks so
 * far. `end`: there are no further updates. `seq` is the position after the update.
 */
export type JobUpdate = { seq: number; state: string } & (
  | { kind: "state" }
  | { kind: "progress"; progress: number; text: string }
  | { kind: "chunk"; value: any; attempt: number }
  | { kind: "restart"; attempt: number }
  | { kind: "end"; result: any; reason: string }
);

/** A job in the handler of a worker. */
export interface WorkerJob extends ClaimedJob {
  /**
   * Report progress, from 0 to 1, with a text for people. At most one value in 0.5 s is sent, and
   * always the last one.
   */
  progress(fraction: number, text?: string): Promise<void>;
  /**
   * Append a chunk to the stream of the job: a text, or any JSON value. Chunks are sent in batches,
   * at the latest before the job ends.
   */
  stream(chunk: any): Promise<void>;
}

export interface BulkOptions {
  /** Called with the number of changed jobs after each request. */
  progress?: (jobs: number) => void;
}

/** The outcome of a bulk change. */
export interface BulkChange {
  /** The number of changed jobs. */
  jobs: number;
  /** The number of retried jobs with steps in doubt. */
  inDoubt: number;
}

/** The place of a user at a table, updated from the table's room without polling. */
export class LivePlace {
  private constructor();
  /** The current place. */
  readonly place: Place;
  /** The estimated wait. */
  readonly waitMs: number;
  /** Call `hook(place)` after each change. */
  subscribe(hook: (place: Place) => void): Unsubscribe;
  /** Stop following. The user keeps the place and stays in the room. Idempotent. */
  close(): void;
}

export interface WorkerOptions {
  /** The maximum number of running jobs [16]. */
  concurrency?: number;
  /** The lease of a job; it is renewed while the job runs [30]. */
  leaseS?: number;
  /** How long one request waits for jobs, 1 or more [20]. */
  waitS?: number;
  /** The name of the worker, shown with its jobs. */
  name?: string;
}

/**
 * Runs a handler on the jobs of a queue, several at a time, until it is stopped.
 *
 * The return value of the handler is the result of the job. An exception fails the attempt. It can
 * have the members `retryAfterS` (the pause before the next attempt), `notBeforeS` (the shortest
 * pause) and `final: true` (no further attempt). The lease is renewed while the handler runs. If it
 * is lost, `signal` is aborted, because another worker may run the job.
 */
export class Worker {
  private constructor();
  /** Run until `stop`. Rejects with errors of the server that a retry cannot solve. */
  run(): Promise<void>;
  /** Stop claiming jobs. `run` resolves when the running jobs have ended. */
  stop(): void;
}
