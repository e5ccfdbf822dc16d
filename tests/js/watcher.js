// A page that shows a room in which very much happens: what it is told of, and how long it is busy.

export class Watcher {
  told = 0;
  longestMs = 0;
  #late = [];

  constructor(room) {
    this.room = room;
    const cells = new Map();
    room.map("flood").subscribe((all) => {
      this.told++;
      for (const [key, value] of Object.entries(all)) this.#show(cells, key, value);
    });
    this.#watch();
  }

  #show(cells, key, value) {
    if (!cells.has(key)) cells.set(key, document.body.appendChild(document.createElement("i")));
    cells.get(key).textContent = value.text;
  }

  // How late a task is that is due in 10 ms: so long a click would wait.
  #watch() {
    const due = performance.now() + 10;
    setTimeout(() => {
      const late = performance.now() - due;
      this.longestMs = Math.max(this.longestMs, late);
      this.#late[this.#late.length % 10_000] = late;
      this.#watch();
    }, 10);
  }

  // How late all but one in a hundred were.
  late() {
    return [...this.#late].sort((a, b) => a - b)[Math.floor(this.#late.length * 0.99)];
  }

  async until(seq) {
    while (this.room.position[1] < seq) await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
