// Keys for those who do not want the mouse: rows up and down, search, views, help. None has an effect on a job.

import { makeStore } from "./ui.js";
import { saved } from "./boot.js";
import { go, route } from "./route.js";

export const helpOpen = makeStore(false);

export const KEYS = [
  ["j", "next row"], ["k", "row before"], ["Enter", "open the row"], ["u", "one level up"], ["/", "search"],
  ["g j", "jobs"], ["g n", "nodes"], ["g t", "terminal"], ["?", "these keys"],
];

const GO = { j: "/", n: "/nodes", t: "/terminal" };
let after = 0; // when g was pressed

function step(by) {
  const rows = [...document.querySelectorAll("[data-row]")];
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement), to = at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by));
  rows[to].focus();
  rows[to].scrollIntoView({ block: "nearest" });
}

function up() {
  const { view, path } = route.get();
  if (view === "job" || view === "terminal" || view === "nodes") go("/");
  else if (view === "incident") go(path.replace(/\/incidents\/\d+$/, ""));
  else if (view === "output") go(path.replace(/\/output$/, ""));
  else if (view === "node") go("/nodes");
}

function onKey(event) {
  const typing = event.target.closest?.("input, textarea, select, dialog, .shell, [contenteditable]");
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || typing) return;
  const second = Date.now() - after < 1200 && !saved ? GO[event.key] : undefined;
  after = 0;
  const keys = {
    j: () => step(1), k: () => step(-1), u: up, "?": () => helpOpen.set(true),
    "/": () => document.getElementById("search")?.focus(), g: () => (after = Date.now()),
  };
  if (second) go(second);
  else if (keys[event.key]) keys[event.key]();
  else return;
  event.preventDefault();
}

export function startKeys() {
  addEventListener("keydown", onKey);
}
