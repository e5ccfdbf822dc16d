// The client of an Onceward server's rooms, for browsers: see client.d.ts.

export { OncewardError } from "./client/errors.js";
export { Live } from "./client/live.js";
export { Presence, RoomList, RoomMap } from "./client/objects.js";
export { Room } from "./client/room.js";
