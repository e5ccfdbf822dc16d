// What goes wrong. Codes are those of the server, and do not change their meaning.

// Those of rooms after which trying again may help. Other calls are told by the answer.
const RETRY = (
  "too_slow room_full room_moved rate_limited slow_reader conflict contention outcome_unknown " +
  "overloaded engine_closed engine_unreachable node_stopped storage_full"
).split(" ");
// What a connection is closed with where connecting again is right, whatever the reason.
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
