// Where nobody is signed in: what to do about it.

import { enter } from "./api.js";
import { h, put } from "./dom.js";

/** The page; `why` is the problem that led here, if there was one. */
export function page(why, byLink, opened) {
  const dev = why?.said?.dev ?? byLink;
  const wrong = h("p.wrong", { role: "alert" });
  if (why && (byLink || why.status !== 401)) put(wrong, why.message);
  else if (why && !("dev" in (why.said ?? {}))) put(wrong, why.message);
  const field = h("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false",
    required: true, placeholder: "ow_…" });
  const form = h("form.stack", { onsubmit: async (event) => {
    event.preventDefault();
    put(wrong, "");
    try {
      await enter({ token: field.value.trim() });
      field.value = "";
      opened();
    } catch (error) {
      put(wrong, error.message);
      field.focus();
    }
  } },
    h("label", { for: "token" }, "API key or token"), field,
    h("button.main", { type: "submit" }, "Sign in"));
  const byTerminal = h("div.stack",
    h("p", "This server is in dev mode: it signs in whoever has its terminal. Open the link that ",
      h("code", "onceward serve"), " has printed. It counts once; for a new one, run"),
    h("pre", "onceward console"));
  const byKey = h("div.stack", form,
    h("p.faint", "What you see and may do follows from its scopes: ", h("code", "all"), " for everything, ",
      h("code", "manage:*"), " for queues, ", h("code", "operate:*"), " for timers. ",
      h("code", "onceward token NAME --scope all"), " makes a key for the server’s settings; ",
      h("code", "onceward console --api-key …"), " makes a link. The key is not kept in this browser.")) ;
  return h("main.entrance",
    h("div.brand", h("span.mark", { "aria-hidden": "true" }), "Onceward"),
    h("h1", { tabindex: "-1" }, "Sign in"), wrong, dev ? byTerminal : byKey);
}
