// A client whose server goes away and comes back: node tests/js/away.js http://… It says what happens,
// a word a line: `attempt` to connect, the status of its room, and `saved` for what it did meanwhile.

const { Live } = await import(process.env.CLIENT ?? "../../clients/js/client.js");
const { WebSocket } = globalThis;
globalThis.WebSocket = class extends WebSocket {
  constructor(...given) {
    console.log("attempt");
    super(...given);
  }
};
const room = await new Live(process.argv[2], { token: "dev:ann" }).join("board", { create: true });
console.log(room.status);
room.onStatus((status) => {
  console.log(status);
  if (status === "away") room.map("m").add("k", 1).then(() => console.log("saved"));
});
