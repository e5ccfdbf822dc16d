// Rooms on Colyseus: what a client says goes to all others in its room. Seats are given to whoever
// connects, which saves each a request before.
const http = require("http");
const { Server, Room, matchMaker } = require("@colyseus/core");
const { WebSocketTransport } = require("@colyseus/ws-transport");

class Bench extends Room {
  onCreate() {
    this.maxClients = Infinity;
    this.patchRate = null;
    this.onMessage("say", (client, value) => this.broadcast("said", value, { except: client }));
  }
}

const listening = http.createServer();
const transport = new WebSocketTransport({ server: listening, pingInterval: 0 });
const [upgrade] = listening.listeners("upgrade");
listening.removeAllListeners("upgrade");
listening.on("upgrade", async (request, socket, head) => {
  const name = request.url.slice(1);
  const seat = await matchMaker.joinOrCreate("bench", { name });
  request.url = `/${seat.processId}/${seat.roomId}?sessionId=${seat.sessionId}`;
  upgrade.call(listening, request, socket, head);
});
const server = new Server({ transport, greet: false, gracefullyShutdown: false });
server.define("bench", Bench).filterBy(["name"]);
server.listen(0, "127.0.0.1").then(() => console.log(listening.address().port));
