// The other calls of an Onceward server, over HTTP: see http.d.ts.

export { Client } from "./client/calls.js";
export { Standing } from "./client/standing.js";
export { Worker } from "./client/work.js";
