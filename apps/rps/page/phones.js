// Simulated phones that text the game. Their texts are never rendered as markup.

const FIRST = 2025550101;
const PAUSE_MS = 1000;
const TRIES = 60;

const api = new URL("phones/texts", document.baseURI);
const phones = new Map();
const texts = new Map();
const byId = (id) => document.getElementById(id);

/** The first free number. */
function freeNumber() {
  let number = FIRST;
  while (phones.has(`+1${number}`)) {
    number++;
  }
  return `+1${number}`;
}

function addPhone(number = freeNumber()) {
  if (phones.has(number)) {
    return phones.get(number);
  }
  const section = byId("phone").content.cloneNode(true).firstElementChild;
  const phone = {
    screen: section.querySelector(".screen"),
    input: section.querySelector("input"),
  };
  section.dataset.number = number;
  section.querySelector("h2").textContent = number;
  section.setAttribute("aria-label", `Phone ${number}`);
  section.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    send(number, phone.input.value);
    phone.input.value = "";
  });
  phones.set(number, phone);
  byId("phones").append(section);
  return phone;
}

/** Show a text once for its id; a known one changes its state. */
function show({ phone: number, id, text, sent }, state = "") {
  let item = texts.get(id);
  if (item === undefined) {
    item = document.createElement("li");
    item.textContent = text;
    texts.set(id, item);
    const { screen } = addPhone(number);
    screen.append(item);
    screen.scrollTop = screen.scrollHeight;
  }
  item.className = `${sent ? "mine" : "theirs"} ${state}`.trim();
}

/** Like `crypto.randomUUID`, which is available only over HTTPS and on localhost. */
function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function send(number, text) {
  const id = randomId();
  show({ phone: number, id, text, sent: true }, "pending");
  const times = byId("repeat").checked ? 5 : 1;
  try {
    await Promise.all(Array.from({ length: times }, () => post({ id, from: number, text })));
    show({ phone: number, id, text, sent: true });
  } catch (error) {
    show({ phone: number, id, text, sent: true }, "failed");
    tell(error.message, true);
  }
}

/** Send a text, and repeat it with the same id until there is a response. */
async function post(body) {
  for (let left = TRIES; ; left--) {
    const answer = await fetch(api, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    }).catch(() => null);
    if (answer !== null && answer.status < 500) {
      if (!answer.ok) {
        throw new Error((await answer.json()).detail);
      }
      return;
    }
    if (left === 1) {
      throw new Error("cannot reach the server");
    }
    await pause();
  }
}

async function listen() {
  let after = null;
  for (;;) {
    try {
      // The first request returns at once, later ones when there is news.
      const answer = await fetch(after === null ? api : `${api}?after=${after}`);
      if (!answer.ok) {
        throw new Error((await answer.json()).detail);
      }
      const said = await answer.json();
      said.texts.forEach((text) => show(text));
      after = said.after;
      tell("Connected");
    } catch (error) {
      tell(`Not connected: ${error.message}`, true);
      await pause();
    }
  }
}

function tell(text, wrong = false) {
  const status = byId("status");
  status.textContent = text;
  status.classList.toggle("wrong", wrong);
}

function pause() {
  return new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
}

byId("add").addEventListener("click", () => addPhone().input.focus());
addPhone().input.focus();
addPhone();
listen();
