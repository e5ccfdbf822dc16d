// A to-do list written for Room Service, where the next line was
// import { RoomService } from "@roomservice/browser";
import { RoomService } from "/roomservice.js";

const byId = (id) => document.getElementById(id);
const service = new RoomService({ auth: "/todo/auth" });

async function start() {
  const room = await service.room("todo");
  const todos = room.list("todos");
  const settings = room.map("settings");
  const people = room.presence("people");

  function showTodos(items) {
    byId("todos").replaceChildren(...items.map((item, index) => entry(item, index)));
  }

  function entry(item, index) {
    const line = document.createElement("li");
    const box = document.createElement("input");
    box.type = "checkbox";
    box.checked = item.done;
    box.setAttribute("aria-label", `${item.text} is done`);
    box.addEventListener("change", () => todos.set(index, { ...item, done: box.checked }));
    const text = document.createElement("span");
    text.textContent = item.text;
    text.className = item.done ? "done" : "";
    const bin = document.createElement("button");
    bin.textContent = "Delete";
    bin.addEventListener("click", () => todos.delete(index));
    line.append(box, text, bin);
    return line;
  }

  function showTitle({ title = "" }) {
    const input = byId("title");
    if (input instanceof HTMLInputElement && input.value !== title) input.value = title;
  }

  function showPeople(all) {
    const others = Object.entries(all).filter(([user]) => user !== room.me);
    const told = others.map(([user, { typing }]) => (typing ? `${user} is typing` : user));
    byId("people").textContent = told.length ? `Also here: ${told.join(", ")}` : "";
  }

  room.subscribe(todos, showTodos);
  room.subscribe(settings, showTitle);
  room.subscribe(people, showPeople);
  showTodos(todos.toArray());
  showTitle(settings.toObject());
  showPeople(people.getAll());

  const text = /** @type {HTMLInputElement} */ (byId("text"));
  const title = /** @type {HTMLInputElement} */ (byId("title"));
  byId("form").addEventListener("submit", (event) => {
    event.preventDefault();
    todos.push({ text: text.value, done: false });
    text.value = "";
    people.set({ typing: false });
  });
  text.addEventListener("input", () => people.set({ typing: text.value !== "" }));
  title.addEventListener("input", () => settings.set("title", title.value || undefined));

  people.set({ typing: false });
  setInterval(() => people.set(people.getMine() ?? { typing: false }), 30_000);
}

start().catch((error) => {
  byId("people").textContent = error.message;
});
