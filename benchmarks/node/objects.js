// Durable Objects in miniflare: a line for each key, alarms, and rooms. Prints its port.
//
//   POST /line/KEY     keep the body, and say how many there were
//   POST /timer/N?at=T set an alarm; GET /fired?from=I tells which have rung, and when
//   GET  /room/NAME    a WebSocket: what a connection says goes to all others in its room
const { Miniflare } = require("miniflare");

const script = `
const fired = [];

export class Line {
  constructor(state) {
    this.state = state;
    this.count = 0;
    this.busy = false;
  }
  async fetch(request) {
    const body = await request.text();
    if (this.busy) return new Response("two at once", { status: 500 });
    this.busy = true;
    this.count += 1;
    this.state.storage.put("last", { count: this.count, body });
    this.busy = false;
    return new Response(String(this.count)); // held back until the write is durable
  }
}

export class Timer {
  constructor(state) {
    this.state = state;
  }
  async fetch(request) {
    const url = new URL(request.url);
    const number = Number(url.pathname.split("/")[2]);
    this.state.storage.put("number", number);
    await this.state.storage.setAlarm(Number(url.searchParams.get("at")));
    return new Response("set");
  }
  async alarm() {
    const at = Date.now();
    fired.push([await this.state.storage.get("number"), at]);
  }
}

export class Room {
  constructor() {
    this.sockets = new Set();
  }
  async fetch() {
    const [client, server] = Object.values(new WebSocketPair());
    server.accept();
    this.sockets.add(server);
    server.addEventListener("message", ({ data }) => {
      for (const other of this.sockets) if (other !== server) other.send(data);
    });
    server.addEventListener("close", () => this.sockets.delete(server));
    server.send("joined");
    return new Response(null, { status: 101, webSocket: client });
  }
}

export default {
  fetch(request, env) {
    const url = new URL(request.url);
    const [, kind, name] = url.pathname.split("/");
    if (kind === "fired") return Response.json(fired.slice(Number(url.searchParams.get("from"))));
    const objects = { line: env.LINE, timer: env.TIMER, room: env.ROOM }[kind];
    return objects.get(objects.idFromName(name)).fetch(request);
  },
};
`;

const [folder, port] = process.argv.slice(2);
const server = new Miniflare({
  modules: true,
  script,
  compatibilityDate: "2025-06-01",
  cf: false, // it would be fetched
  durableObjects: {
    LINE: { className: "Line", useSQLite: true },
    TIMER: { className: "Timer", useSQLite: true },
    ROOM: { className: "Room", useSQLite: true },
  },
  durableObjectsPersist: folder,
  host: "127.0.0.1",
  port: Number(port ?? 0),
});
server.ready.then((url) => console.log(url.port));
process.on("SIGTERM", () => server.dispose().finally(() => process.exit(0)));
