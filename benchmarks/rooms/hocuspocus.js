// Hocuspocus: a document of Yjs for each room, with one map, whose key `k` all changes set. The
// document begins with a first value by client 1, so that later ones follow it.
const { Server } = require("@hocuspocus/server");
const Y = require("yjs");

const first = new Y.Doc();
first.clientID = 1;
first.getMap("m").set("k", "first");
const beginning = Y.encodeStateAsUpdate(first);

const server = new Server({
  address: "127.0.0.1",
  port: 0,
  quiet: true,
  flushDelay: false, // one message for each change, as the others do it
  async onLoadDocument({ document }) {
    Y.applyUpdate(document, beginning);
  },
});
server.listen().then(() => console.log(server.httpServer.address().port));
