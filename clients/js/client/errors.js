// Errors. Codes are those of the server and keep their meaning.

// Codes of rooms after which a retry may help. Responses to other calls contain this information.
const RETRY = (
  "too_slow room_full room_moved rate_limited slow_reader conflict contention outcome_unknown " +
  "overloaded engine_closed engine_unreachable node_stopped storage_full"
).split(" ");
// Close codes after which the client reconnects, with any reason.
const PASSING = /^(100[0156]|101[1-4]|4(408|423|429|499|502|507))$/;

export const reconnects = (close, reason) => RETRY.includes(reason) || PASSING.test(close);

export class OncewardError extends Error {
  name = "OncewardError";

  constructor(message, { code = "bad_request", retry, status = 0, details = {} } = {}) {
    super(message);
    this.code = code;
    this.retry = retry ?? RETRY.includes(code);
    this.status = status;
    this.details = details;
  }
}
