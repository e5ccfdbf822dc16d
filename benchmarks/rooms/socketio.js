// Rooms on Socket.IO: what a connection says goes to all others in its room.
const { Server } = require("socket.io");
const http = require("http");

const listening = http.createServer();
const server = new Server(listening, { transports: ["websocket"] });
server.on("connection", (socket) => {
  const room = socket.handshake.query.room;
  socket.join(room);
  socket.emit("joined");
  socket.on("say", (value) => socket.to(room).emit("said", value));
});
listening.listen(0, "127.0.0.1", () => console.log(listening.address().port));
