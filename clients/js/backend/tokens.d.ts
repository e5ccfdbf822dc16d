/**
 * Signed tokens (JWT) for the users of your application, for back ends in JavaScript.
 *
 * Keep the key secret, on your server: it can sign tokens for every user.
 */

import { ACTIONS, type Action } from "./actions.js";

export { ACTIONS, type Action };

/**
 * Permission for an action on the resource with exactly this name. `*`, spaces and quotes have no
 * meaning, so a name may come from a request. Check first that the user may use that resource.
 */
export type Grant = { action: Action; name: string } | { action: "all" };

export type SignOptions = {
  /** Who the token is for (`sub`). */
  user: string;
  /** What the user may do. `read: ["r"]` is short for `{ action: "read", name: "r" }`. */
  grants?: Iterable<Grant>;
  /** Lifetime in seconds [3600]. */
  expiresS?: number;
  /** The `audience` of the issuer in the server's settings ["onceward"]. */
  audience?: string;
  /** The `issuer` of that entry, if it is set. */
  issuer?: string;
  /** The `id` of that entry, if it is set. */
  keyId?: string;
  /** The algorithm of the key ["HS256"]. */
  algorithm?: "HS256" | "RS256" | "ES256" | "EdDSA";
  /** The current time [`Date.now()`]. */
  nowMs?: number;
} & { [action in Action]?: readonly string[] };

/**
 * Sign a token for a user of your application.
 *
 * `key` is the secret (HS256, 32 bytes or more), or the private key as PEM (PKCS #8). Rejects with a
 * `TypeError` for a user, name, action or key that is not valid.
 */
export function sign(key: string | Uint8Array, options: SignOptions): Promise<string>;
