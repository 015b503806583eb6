// Asks for a token. It goes to the server in the body of a request, never in an address.

import { root } from "../boot.js";
import { html, useState } from "../ui.js";
import { t } from "../language.js";
import { go } from "../route.js";
import { loadMe, post } from "../load.js";
import { Title } from "../parts/pieces.js";

// Only to a view of this page: never to another host.
function next(query) {
  const behind = location.hash.slice(1), wanted = query.get("next") ?? (behind.startsWith(root + "/") ? behind.slice(root.length) : "/");
  return /^\/(?![/\\])/.test(wanted) ? wanted.split("?") : ["/", ""];
}

export function LoginPage({ query }) {
  const [error, set] = useState(""), [busy, setBusy] = useState(false);
  const send = async (event) => {
    event.preventDefault();
    const token = new FormData(event.target).get("token").trim();
    setBusy(true);
    try {
      await post("/login", { token });
      await loadMe();
      const [path, search] = next(query);
      go(path, new URLSearchParams(search ?? ""), true);
    } catch (failed) {
      set(failed.message);
      setBusy(false);
    }
  };
  return html`<form class="login" onSubmit=${send}>
    <${Title}>${t("Log in with a token to see the jobs of this server.")}<//>
    <label for="token">${t("Token")}</label>
    <input id="token" name="token" type="password" autocomplete="current-password" required maxlength="200" aria-describedby="token-help" />
    ${error ? html`<p class="lost" role="alert">${error}</p>` : null}
    <button type="submit" class="main" disabled=${busy}>${busy ? t("Sending …") : t("Log in")}</button>
    <p id="token-help" class="quiet">${t("An administrator of this server creates tokens with")} <code>holdfast serve token create NAME --role viewer</code></p>
  </form>`;
}
