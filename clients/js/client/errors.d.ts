/** What goes wrong. `code` is one of the server's table of errors, and never changes its meaning. */
export class OncewardError extends Error {
  constructor(message: string, options?: { code?: string; retry?: boolean; status?: number; details?: object });
  readonly code: string;
  /** Whether the same call may succeed later, unchanged. */
  readonly retry: boolean;
  /** Of the answer over HTTP, or 0. */
  readonly status: number;
  /** What else the server says of it, as it says it. */
  readonly details: Record<string, any>;
}
