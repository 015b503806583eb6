// Chooses the language, and says a text in it. English texts stand where they are used; texts.js has the Chinese ones.

import { root, saved } from "./boot.js";
import { keep, kept, makeStore, useStore } from "./ui.js";
import { CHINESE } from "./texts.js";

export const LANGUAGES = ["en", "zh"];

function first() {
  const wanted = [kept("language"), ...(navigator.languages || [])];
  for (const name of wanted) {
    const short = (name || "").slice(0, 2).toLowerCase();
    if (LANGUAGES.includes(short)) return short;
  }
  return "en";
}

const chosen = makeStore(first());

export function language() {
  return chosen.get();
}

export function useLanguage() {
  return useStore(chosen);
}

export function choose(name) {
  keep("language", name);
  if (!saved) document.cookie = `lang=${name}; path=${root}/; max-age=31536000; SameSite=Strict`; // the server writes the first sentence
  document.documentElement.lang = name === "zh" ? "zh-CN" : "en";
  chosen.set(name);
}

// `values` go in place of {name}. A text without a Chinese one stays English: better than nothing to read.
export function t(text, values) {
  const said = chosen.get() === "zh" ? (CHINESE[text] ?? text) : text;
  return values ? said.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole) : said;
}

// One, or many.
export function tn(count, one, many, values) {
  return t(count === 1 ? one : many, { n: count.toLocaleString("en-US"), ...values });
}

// A text of a document: {en, zh}.
export function say(words) {
  if (!words) return "";
  return (chosen.get() === "zh" ? words.zh : words.en) || words.en;
}
