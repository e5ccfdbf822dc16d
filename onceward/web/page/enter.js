// The sign-in page.

import { enter } from "./api.js";
import { h, put } from "./dom.js";

/** The page; `why` is the error that led here, if any. */
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
    h("p", "This server runs in dev mode. To sign in, open the link that ",
      h("code", "onceward serve"), " has printed. It works once. To create a new link, run"),
    h("pre", "onceward console"));
  const byKey = h("div.stack", form,
    h("p.faint", "The scopes of the key decide what you can see and do: ", h("code", "all"), " for everything, ",
      h("code", "manage:*"), " for queues, ", h("code", "operate:*"), " for timers. ",
      h("code", "onceward token NAME --scope all"), " creates a key for the server’s settings; ",
      h("code", "onceward console --api-key …"), " creates a sign-in link. This browser does not store the key.")) ;
  return h("main.entrance",
    h("div.brand", h("span.mark", { "aria-hidden": "true" }), "Onceward"),
    h("h1", { tabindex: "-1" }, "Sign in"), wrong, dev ? byTerminal : byKey);
}
