// Reads the colours of the page for what is drawn on a canvas, and says when they change.

import { keep, kept, makeStore } from "../ui.js";

const dark = matchMedia("(prefers-color-scheme: dark)");

// "light", "dark", or "" for what the system wants.
export const theme = makeStore(kept("theme") || "");

export function isDark() {
  return theme.get() ? theme.get() === "dark" : dark.matches;
}

export const drawnDark = makeStore(isDark());

function apply() {
  if (theme.get()) document.documentElement.dataset.theme = theme.get();
  else delete document.documentElement.dataset.theme;
  drawnDark.set(isDark());
}

export function chooseTheme(name) {
  theme.set(name);
  keep("theme", name);
  apply();
}

apply();
dark.addEventListener("change", apply);

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

export function font() {
  const { fontSize, fontFamily } = getComputedStyle(document.body);
  return `${fontSize} ${fontFamily}`;
}
