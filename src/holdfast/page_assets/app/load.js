// Fetches documents and sends actions. Views are functions of documents; only the pages around them load.
// Documents embedded in the page are used first: a saved page has nothing else.

import { makeStore, speak, useEffect, useRef, useState } from "./ui.js";
import { assets, boot, root, saved } from "./boot.js";
import { go, queryText, route } from "./route.js";
import { t } from "./language.js";

const CACHED_MAX = 60;
const cache = new Map(); // key: path and query; value: {doc, etag}
export const me = makeStore(boot.me ?? null);

export class LoadError extends Error {
  constructor(status, code, text, near = []) {
    super(text);
    Object.assign(this, { status, code, near });
  }
}

for (const [key, doc] of Object.entries({ ...boot.documents, ...(boot.path ? { [boot.path]: boot.document } : {}) }))
  cache.set(key, { doc, etag: doc?.etag ?? "", fresh: true });

export function hasDocument(path) {
  return !saved || cache.has(path);
}

function remember(key, entry) {
  cache.delete(key);
  cache.set(key, entry);
  if (!saved && cache.size > CACHED_MAX) cache.delete(cache.keys().next().value);
}

async function failure(answer) {
  let error = {};
  try {
    error = (await answer.json()).error ?? {};
  } catch {
    // Not from the server itself, but from something in between.
  }
  const text = error.text || t("The server answered {status} to {path}.", { status: answer.status, path: answer.url });
  return new LoadError(answer.status, error.code || "", text, error.near);
}

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(root + "/api/v1" + path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new LoadError(0, "unreachable", t("The server cannot be reached."));
  }
  if (answer.status === 401 && route.get().view !== "login") {
    const { path: from, query } = route.get();
    go("/login", { next: from + queryText(query) }, true);
  }
  return answer;
}

// The document at a path; from the cache where the server says that it is unchanged.
export async function get(path, query, signal) {
  const key = path + queryText(query), known = cache.get(key);
  if (saved) {
    const found = known ?? cache.get(path);
    if (!found) throw new LoadError(404, "not-saved", t("This is not part of the saved page."));
    return found.doc;
  }
  const headers = known?.etag ? { "If-None-Match": known.etag } : {};
  const answer = await ask(key, { headers, signal });
  if (answer.status === 304 && known) return known.doc;
  if (!answer.ok) throw await failure(answer);
  const doc = await answer.json();
  remember(key, { doc, etag: answer.headers.get("ETag") ?? "" });
  return doc;
}

export async function getText(path, query) {
  const key = path + queryText(query);
  if (saved) return get(path, query);
  const answer = await ask(key, {});
  if (!answer.ok) throw await failure(answer);
  return answer.text();
}

// An action of a person who has confirmed it.
export async function post(path, body) {
  const headers = { "Content-Type": "application/json", "X-Holdfast-Confirm": "yes" };
  if (me.get()?.csrf) headers["X-Holdfast-CSRF"] = me.get().csrf;
  const answer = await ask(path, { method: "POST", headers, body: JSON.stringify(body ?? {}) });
  if (!answer.ok) throw await failure(answer);
  return answer.json();
}

export async function loadMe() {
  if (saved) return;
  try {
    me.set(await get("/me"));
  } catch {
    me.set(null);
  }
}

const ROLES = ["reporter", "viewer", "operator", "admin"];

export function may(role) {
  return !saved && ROLES.indexOf(me.get()?.role) >= ROLES.indexOf(role);
}

// {doc, error, reload}. `path` null: nothing yet. A document that is known is shown at once, and asked for again.
// `isPlain`: what came with the page for the path alone will do until then.
export function useDocument(path, query, isPlain = false) {
  const key = path === null ? null : path + queryText(query);
  const [state, set] = useState({});
  const wanted = useRef(null);
  const known = key === null ? undefined : (cache.get(key) ?? (saved || isPlain ? cache.get(path) : undefined));
  const load = (quiet) => {
    wanted.current?.abort();
    if (key === null) return;
    const stop = (wanted.current = new AbortController());
    get(path, query, stop.signal).then(
      (doc) => wanted.current === stop && set({ key, doc }),
      (error) => {
        if (error.name === "AbortError" || wanted.current !== stop) return;
        set((before) => ({ key, doc: before.key === key ? before.doc : undefined, error }));
        if (!quiet) speak(error.message);
      },
    );
  };
  useEffect(() => {
    if (known?.fresh && cache.has(key)) known.fresh = false; // came with the page a moment ago
    else load(false);
    return () => wanted.current?.abort();
  }, [key]);
  const mine = state.key === key ? state : {};
  return { doc: mine.doc ?? known?.doc, error: mine.error, reload: () => load(true) };
}

const loading = new Map();
// The server's policy lets no script run that is not from the folder of assets; this is what says so to the browser.
const policy = globalThis.trustedTypes?.createPolicy("holdfast", {
  createScriptURL(url) {
    if (!url.startsWith(assets)) throw new TypeError(`${url} is not in ${assets}`);
    return url;
  },
});

// A script or style that only one view needs.
export function loadAsset(url) {
  if (!loading.has(url))
    loading.set(url, new Promise((done, failed) => {
      const style = url.endsWith(".css"), made = document.createElement(style ? "link" : "script");
      if (style) Object.assign(made, { rel: "stylesheet", href: url });
      else made.src = policy ? policy.createScriptURL(url) : url;
      made.onload = done;
      made.onerror = () => {
        loading.delete(url);
        failed(new LoadError(0, "asset", t("{url} cannot be loaded.", { url })));
      };
      document.head.append(made);
    }));
  return loading.get(url);
}
