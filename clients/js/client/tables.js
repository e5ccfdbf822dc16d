// The calls of the API that are about tables and matches. `Live.act` makes those at tables over a
// connection.

import { Standing } from "./standing.js";
import { Transport, asked } from "./transport.js";
import { fault, newId } from "./values.js";

export class TableCalls extends Transport {
  createTable(id, { policy = {}, game, meta } = {}) {
    const body = asked({ id: id ?? newId(), policy: asked(policy), game, meta });
    return this._once("table_exists", "POST", ["tables"], { body }, () => this.table(body.id));
  }

  table(id) {
    return this._call("GET", ["tables", id]);
  }

  tables(options = {}) {
    return this._page("tables", options);
  }

  joinTable(id, options) {
    return this.#at(id, "join", options);
  }

  async stand(id, live, { user, lane } = {}) {
    const room = await live.join(`table:${id}`);
    const place = await this.joinTable(id, { user: user ?? live.user, lane });
    return new Standing(this, room, place);
  }

  leaveTable(id, options) {
    return this.#at(id, "leave", options);
  }

  watchTable(id, options) {
    return this.#at(id, "watch", options);
  }

  ready(id, options) {
    return this.#at(id, "ready", options);
  }

  place(id, options) {
    return this._call("GET", ["tables", id, "place"], { query: options });
  }

  async waitlist(id, options) {
    const query = { limit: 100, ...options };
    const found = await this._call("GET", ["tables", id, "waitlist"], { query });
    return [found.waitlist, found.next ?? null];
  }

  async alive(id, options) {
    await this.#at(id, "heartbeat", options);
  }

  async move(id, move, { user, key = newId() } = {}) {
    const body = { ...asked({ user, key }), move };
    return (await this._call("POST", ["tables", id, "move"], { body })).answer;
  }

  endGame(id, winners, { game }) {
    const call = { body: { winners, game }, course: {} };
    return this._call("POST", ["tables", id, "result"], call).catch((error) => {
      if (!call.course.lost || !/^(other|no)_game$/.test(error.code)) throw error;
      throw fault("outcome_unknown", `game ${game} is over, by this call or by another`);
    });
  }

  pauseTable(id) {
    return this.#at(id, "pause");
  }

  resumeTable(id) {
    return this.#at(id, "resume");
  }

  closeTable(id) {
    return this.#at(id, "close");
  }

  async leaders(ladder = "tables", { limit = 100, after } = {}) {
    const query = { limit, rating: after?.rating, user: after?.user };
    return (await this._call("GET", ["ladders", ladder], { query })).leaders;
  }

  async rating(user, ladder = "tables") {
    return (await this._call("GET", ["ladders", ladder, user])).rating;
  }

  match(id) {
    return this._call("GET", ["matches", id]);
  }

  async matchLog(id) {
    return (await this._call("GET", ["matches", id, "log"])).entries;
  }

  async matchReplay(id) {
    return (await this._call("GET", ["matches", id, "replay"])).views;
  }

  #at(id, what, options) {
    return this._call("POST", ["tables", id, what], { body: options && asked(options) });
  }
}
