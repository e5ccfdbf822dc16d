// Rooms on node and `ws`: what a connection says goes to all others in its room.
const { WebSocketServer } = require("ws");

const rooms = new Map();
const server = new WebSocketServer({ port: 0, host: "127.0.0.1", perMessageDeflate: false }, () =>
  console.log(server.address().port),
);
server.on("connection", (socket) => {
  let room = null;
  socket.on("message", (data) => {
    if (room === null) {
      const name = data.toString();
      room = rooms.get(name) ?? new Set();
      rooms.set(name, room);
      room.add(socket);
      socket.send("joined");
      return;
    }
    for (const other of room) if (other !== socket) other.send(data, { binary: false });
  });
  socket.on("close", () => room?.delete(socket));
});
