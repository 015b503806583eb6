// Turns addresses into views and back. The address holds the whole state of a view, so Back works.
// In a saved page (file://) the address stands behind the #.

import { boot, root, saved } from "./boot.js";
import { makeStore } from "./ui.js";

const SHAPES = [
  ["jobs", /^\/$/],
  ["job", /^\/jobs\/([^/]+)$/],
  ["incident", /^\/jobs\/([^/]+)\/incidents\/(\d+)$/],
  ["output", /^\/jobs\/([^/]+)\/output$/],
  ["nodes", /^\/nodes$/],
  ["node", /^\/nodes\/([^/]+)$/],
  ["terminal", /^\/terminal$/],
  ["login", /^\/login$/],
];

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function parse(path, search) {
  const plain = path.length > 1 ? path.replace(/\/+$/, "") : "/";
  for (const [view, shape] of SHAPES) {
    const found = shape.exec(plain || "/");
    if (found) return { view, path: plain, args: found.slice(1).map(decoded), query: new URLSearchParams(search) };
  }
  return { view: "missing", path: plain, args: [], query: new URLSearchParams(search) };
}

function set(before, next, back) {
  const stays = before.path === next.path;
  if (!stays) arrival.due = true;
  route.set({ ...next, moved: stays ? before.moved : Symbol("moved"), back });
}

function here() {
  if (saved) {
    const [path, search] = (location.hash.slice(1) || boot.start || "/").split("?");
    return parse(path, search || "");
  }
  const path = location.pathname.startsWith(root) ? location.pathname.slice(root.length) : location.pathname;
  return parse(path || "/", location.search);
}

export const route = makeStore(here());

// Whether a view was just arrived at: its first line then takes the focus, when it is there. Not when the page was opened.
export const arrival = { due: false };

// A query from an object: lists repeat the name, empty values are left out.
export function queryText(query) {
  const found = query instanceof URLSearchParams ? query : new URLSearchParams();
  if (found !== query)
    for (const [name, value] of Object.entries(query || {}))
      for (const one of Array.isArray(value) ? value : [value])
        if (one !== null && one !== undefined && one !== "" && one !== false) found.append(name, one);
  const text = String(found);
  return text ? "?" + text : "";
}

export function address(path, query) {
  return (saved ? "#" : root) + path + queryText(query);
}

export const jobPath = (id) => "/jobs/" + encodeURIComponent(id);
export const incidentPath = (id, number) => `${jobPath(id)}/incidents/${number}`;
export const nodePath = (name) => "/nodes/" + encodeURIComponent(name);

// The same view with other state. `replace`: no step for Back, for what changes at every letter or scroll.
export function go(path, query, replace = false) {
  const to = address(path, query);
  if (!replace) history.replaceState({ ...history.state, top: scrollY }, "");
  history[replace ? "replaceState" : "pushState"]({ top: 0 }, "", to);
  const before = route.get();
  set(before, here(), null);
}

// The query of the present view, with some of it changed.
export function change(values, replace = false) {
  const { path, query } = route.get(), next = new URLSearchParams(query);
  for (const [name, value] of Object.entries(values)) {
    next.delete(name);
    for (const one of Array.isArray(value) ? value : [value])
      if (one !== null && one !== undefined && one !== "" && one !== false) next.append(name, one);
  }
  go(path, next, replace);
}

// Links inside the page do not load it anew.
function onClick(event) {
  const link = event.target.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  if (link.target || link.hasAttribute("download") || link.hasAttribute("data-plain")) return;
  if (saved || link.origin !== location.origin || !link.pathname.startsWith(root + "/")) return;
  const found = parse(link.pathname.slice(root.length), link.search);
  if (found.view === "missing") return;
  event.preventDefault();
  go(found.path, found.query);
}

export function startRouting() {
  history.scrollRestoration = "manual";
  addEventListener("click", onClick);
  addEventListener(saved ? "hashchange" : "popstate", (event) => {
    set(route.get(), here(), event.state?.top ?? 0);
  });
  for (const kind of ["keydown", "pointerdown"]) addEventListener(kind, () => (arrival.due = false), true);
}
