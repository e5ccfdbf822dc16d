// Signed tokens (JWT) for the users of your application, for back ends in JavaScript.
// The same format as `onceward.tokens` in Python. Uses WebCrypto, no dependencies.

import { ACTIONS } from "./actions.js";

export { ACTIONS };

const OPTIONS = ["user", "grants", "expiresS", "audience", "issuer", "keyId", "algorithm", "nowMs"];
const TYPE = "onceward";
const SECRET_BYTES_MIN = 32;
const USER_BYTES_MAX = 256;
const GRANTS_MAX = 1000;
// Control characters, line separators, and what changes the direction of text.
const CONTROL = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/;
const ALGORITHMS = {
  HS256: { name: "HMAC", hash: "SHA-256" },
  RS256: { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" },
  ES256: { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" },
  EdDSA: { name: "Ed25519" },
};

/** Sign a token. Names are literal: no character in them has a meaning. */
export async function sign(key, options) {
  const { user, grants = [], expiresS = 3600, audience = "onceward", algorithm = "HS256" } = options;
  const { issuer, keyId, nowMs = Date.now() } = options;
  admitText("user", user);
  if (bytes(user).length > USER_BYTES_MAX) throw new TypeError(`the user has more than ${USER_BYTES_MAX} bytes`);
  if (CONTROL.test(user)) throw new TypeError(`the user ${JSON.stringify(user)} has control characters`);
  if (!Number.isSafeInteger(expiresS) || expiresS < 1) {
    throw new TypeError(`expiresS is ${expiresS}; use a whole number of at least 1`);
  }
  const now = Math.floor(nowMs / 1000);
  const claims = {
    sub: user,
    aud: audience,
    iat: now,
    exp: now + expiresS,
    authorization_details: details([...grants, ...named(options)]),
    iss: issuer,
  };
  const header = { alg: algorithm, typ: "JWT", kid: keyId };
  const text = [header, claims].map((part) => base64(bytes(JSON.stringify(part)))).join(".");
  return `${text}.${base64(await signature(algorithm, key, bytes(text)))}`;
}

/** Grants by the names of actions: `read: ["board.7"]`. */
function named(options) {
  const found = [];
  for (const [action, names] of Object.entries(options)) {
    if (OPTIONS.includes(action) || names === undefined) continue;
    if (!Array.isArray(names)) throw new TypeError(`${action} is a list of names; use ${action}: [name]`);
    for (const name of names) found.push({ action, name });
  }
  return found;
}

/** Grants as `authorization_details` (RFC 9396): one entry for each name. */
function details(grants) {
  const byName = new Map();
  let count = 0;
  for (const { action, name = "" } of grants) {
    admit(action, name);
    const actions = byName.get(name) ?? [];
    if (actions.includes(action)) continue;
    byName.set(name, [...actions, action]);
    count += 1;
  }
  if (count > GRANTS_MAX) throw new TypeError(`a token has at most ${GRANTS_MAX} grants`);
  return [...byName].map(([name, actions]) =>
    name === "" ? { type: TYPE, actions } : { type: TYPE, actions, identifier: name });
}

function admit(action, name) {
  if (action === "all") {
    if (name !== "") throw new TypeError("the grant \"all\" has no name");
  } else if (!ACTIONS.includes(action)) {
    throw new TypeError(`unknown action ${JSON.stringify(action)}; use one of ${ACTIONS.join(", ")}, all`);
  } else {
    admitText(`name for ${action}`, name);
  }
}

function admitText(what, text) {
  // With the flag u, a surrogate pair is one character: only a lone surrogate matches.
  if (typeof text !== "string" || text === "" || /\p{Surrogate}/u.test(text)) {
    throw new TypeError(`the ${what} is ${JSON.stringify(text)}; use non-empty, valid Unicode text`);
  }
}

async function signature(algorithm, key, text) {
  const chosen = Object.hasOwn(ALGORITHMS, algorithm) ? ALGORITHMS[algorithm] : undefined;
  if (chosen === undefined) {
    throw new TypeError(`unsupported algorithm ${JSON.stringify(algorithm)}; use ${Object.keys(ALGORITHMS).join(", ")}`);
  }
  const { subtle } = globalThis.crypto;
  const raw = typeof key === "string" ? bytes(key) : key;
  if (algorithm === "HS256" && raw.length < SECRET_BYTES_MIN) {
    throw new TypeError(`the secret has ${raw.length} bytes; use at least ${SECRET_BYTES_MIN}`);
  }
  const imported = algorithm === "HS256"
    ? subtle.importKey("raw", raw, chosen, false, ["sign"])
    : subtle.importKey("pkcs8", der(raw), chosen, false, ["sign"]);
  return new Uint8Array(await subtle.sign(chosen, await imported, text));
}

/** The bytes of a private key in PEM. */
function der(raw) {
  const pem = new TextDecoder().decode(raw);
  const body = /-----BEGIN PRIVATE KEY-----([A-Za-z0-9+/=\s]+)-----END PRIVATE KEY-----/.exec(pem);
  if (body === null) throw new TypeError("the key is not a private key as PEM (PKCS #8)");
  return Uint8Array.from(atob(body[1].replace(/\s/g, "")), (char) => char.charCodeAt(0));
}

function bytes(text) {
  return new TextEncoder().encode(text);
}

function base64(data) {
  let text = "";
  for (const byte of data) text += String.fromCharCode(byte);
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}
