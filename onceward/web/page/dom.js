// Creates elements. Stored values become text, never markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element: h("button.small", {onclick}, "Send"). Children are texts, elements or lists. */
export function h(what, ...rest) {
  const [tag, ...classes] = what.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  return fill(element, rest);
}

/** The same for SVG elements. */
export function s(what, ...rest) {
  const [tag, ...classes] = what.split(".");
  const element = document.createElementNS(SVG, tag);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  return fill(element, rest);
}

function fill(element, rest) {
  const given = rest[0];
  if (given && typeof given === "object" && !Array.isArray(given) && !(given instanceof Node)) {
    rest.shift();
    for (const [name, value] of Object.entries(given)) {
      if (value === undefined || value === null || value === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (name === "href") element.setAttribute("href", safe(value));
      else if (name === "value" || name === "checked") element[name] = value;
      else element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...rest.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false));
  return element;
}

// Links stay within the console or its server, so that stored text cannot become a script.
function safe(href) {
  return href.startsWith("#") || /^(?:docs|metrics)$/.test(href) ? href : "#/";
}

/** Set a text only if it differs, to keep selections and screen readers undisturbed. */
export function put(element, text) {
  const wanted = String(text ?? "");
  if (element.textContent !== wanted) element.textContent = wanted;
  return element;
}

/** Set a class only if needed. */
export function mark(element, name, on) {
  element.classList.toggle(name, Boolean(on));
  return element;
}

/**
 * Sync the children of an element with a list. Each item keeps its element, with its focus, while
 * it is in the list.
 */
export function keyed(parent, items, key, make) {
  const known = parent.known ?? (parent.known = new Map());
  const seen = new Set();
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    if (seen.has(name)) continue;
    seen.add(name);
    let child = known.get(name);
    if (child === undefined) {
      child = make(item);
      known.set(name, child);
    }
    child.update?.(item);
    if (child.element === place) place = place.nextElementSibling;
    else parent.insertBefore(child.element, place);
  }
  for (const [name, child] of known) {
    if (!seen.has(name)) {
      child.element.remove();
      known.delete(name);
    }
  }
}

/** A table whose rows follow a list. Columns: {name, show(item) or update(cell, item), kind}. */
export function table(label, columns, key, empty) {
  const body = h("tbody");
  const head = h("tr", columns.map((c) => h(`th${c.kind ? `.${c.kind}` : ""}`, { scope: "col" }, c.name)));
  const none = h("p.none", { hidden: true }, empty);
  const grid = h("div.scroll", { tabindex: "0", role: "region", "aria-label": label },
    h("table", h("caption.unseen", label), h("thead", head), body));
  const element = h("div.tabular", grid, none);
  const update = (items) => {
    keyed(body, items, key, (first) => {
      const cells = columns.map((c) => h(`td${c.kind ? `.${c.kind}` : ""}`, { "data-name": c.name }));
      const row = h("tr", cells);
      return {
        element: row,
        update: (item) => columns.forEach((c, number) => {
          if (c.update) c.update(cells[number], item, first);
          else put(cells[number], c.show(item));
        }),
      };
    });
    none.hidden = items.length > 0;
    grid.hidden = items.length === 0;
  };
  return { element, update };
}

/** A cell that is created once, and updated by the function that `make` returned. */
export function once(make) {
  return (cell, item) => {
    if (!cell.change) cell.change = make(cell, item) ?? (() => {});
    cell.change(item);
  };
}

/** Ask for confirmation of an action; resolves to whether it was confirmed. */
export function ask(title, text, yes, { danger = true, more = null } = {}) {
  return new Promise((resolve) => {
    const go = h(`button${danger ? ".danger" : ".main"}`, { value: "yes" }, yes);
    const form = h("form", { method: "dialog" },
      h("h2", { id: "ask-title" }, title), h("p", text), more,
      h("div.row.end", h("button", { value: "no" }, "Not now"), go));
    const dialog = h("dialog", { "aria-labelledby": "ask-title" }, form);
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

let toasts = null;

/** Show a notification, and announce it to screen readers. */
export function tell(text, bad = false) {
  toasts ??= document.body.appendChild(h("div.toasts", { role: "status", "aria-live": "polite" }));
  const toast = h(`div.toast${bad ? ".bad" : ""}`, text);
  toasts.append(toast);
  setTimeout(() => toast.remove(), bad ? 15000 : 8000);
}

/** A button for a request, which shows its errors. */
export function doing(label, work, kind = "") {
  const button = h(`button${kind ? `.${kind}` : ""}`, { type: "button", onclick: async () => {
    button.disabled = true;
    try {
      await work(button);
    } catch (error) {
      tell(error.message, true);
    } finally {
      button.disabled = false;
    }
  } }, label);
  return button;
}
