// The client of the API over HTTP: see http.d.ts.

export { Client } from "./client/http.js";
export { LivePlace } from "./client/place.js";
export { Worker } from "./client/work.js";
