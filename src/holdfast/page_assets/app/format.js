// Writes numbers, lengths and moments as people read them: with their unit, three figures that count.

import { language, t } from "./language.js";

export const DASH = "–";
const UNITS = { en: { d: " d", h: " h", min: " min", s: " s" }, zh: { d: " 天", h: " 小时", min: " 分", s: " 秒" } };

export function count(number) {
  return number === null || number === undefined ? DASH : Math.round(number).toLocaleString("en-US");
}

function three(value) {
  return value >= 99.95 ? value.toFixed(0) : value >= 9.995 ? value.toFixed(1) : value.toFixed(2);
}

// "431 ms", "1.92 s", "41.0 s", "2 min 5 s", "3 d 4 h": never raw seconds over 120.
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return DASH;
  const units = UNITS[language()];
  if (seconds === 0) return "0" + units.s;
  if (seconds < 0) return "−" + duration(-seconds);
  if (seconds < 0.9995e-3) return three(seconds * 1e6) + " µs";
  if (seconds < 0.9995) return three(seconds * 1000) + " ms";
  if (seconds < 120) return three(seconds) + units.s;
  return parts(Math.round(seconds), units);
}

// As `duration`, for what is known to the second only: "41 s".
export function span(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return DASH;
  if (seconds > 0 && seconds < 1) return duration(seconds);
  if (seconds < 10 && seconds % 1) return seconds.toFixed(1) + UNITS[language()].s;
  return parts(Math.round(seconds), UNITS[language()]);
}

function parts(whole, units) {
  const found = [];
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]) {
    const many = Math.floor(whole / size);
    whole -= many * size;
    if (many) found.push(many + units[unit]);
    if (found.length === 2 || (found.length && !many)) break;
  }
  return found.join(" ") || "0" + units.s;
}

export function percent(part, digits = 1) {
  return part === null || part === undefined ? DASH : (part * 100).toFixed(digits) + " %";
}

export function bytes(size) {
  if (size === null || size === undefined) return DASH;
  let unit = 0;
  while (size >= 999.5 && unit < 5) {
    size /= 1000;
    unit++;
  }
  return (unit ? three(size) : String(size)) + " " + ["B", "kB", "MB", "GB", "TB", "PB"][unit];
}

const two = (number) => String(number).padStart(2, "0");

function dayOf(date) {
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

// "03:12:07" of today, "11-24 03:12" of this year, "2025-11-24" before. In the reader's zone.
export function moment(at_s, now_s = Date.now() / 1000, exact = false) {
  if (at_s === null || at_s === undefined) return DASH;
  const date = new Date(at_s * 1000), day = dayOf(date), today = dayOf(new Date(now_s * 1000));
  const time = `${two(date.getHours())}:${two(date.getMinutes())}`, second = `:${two(date.getSeconds())}`;
  if (day === today) return time + second;
  return (day.slice(0, 4) === today.slice(0, 4) ? day.slice(5) : day) + " " + time + (exact ? second : "");
}

// As `moment`, to the minute: in lists.
export function minute(at_s, now_s) {
  return at_s === null || at_s === undefined ? DASH : moment(at_s, now_s).replace(/^(\d\d:\d\d):\d\d$/, "$1");
}

// "03:12:07.2": of lines that stand close together.
export function instant(at_s) {
  if (at_s === null || at_s === undefined) return "";
  const tenths = Math.floor(at_s * 10) / 10, date = new Date(tenths * 1000 + 1);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${Math.floor((tenths * 10) % 10)}`;
}

// For hovering: the whole moment, in the reader's zone and in UTC.
export function wholeMoment(at_s) {
  if (at_s === null || at_s === undefined) return "";
  const date = new Date(at_s * 1000);
  return `${dayOf(date)} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}, ${date.toISOString().replace(/\.\d+Z/, "Z")}`;
}

// [0, 1, 2, 3, 7] is "0–3, 7".
export function ranges(numbers, most = 12) {
  const sorted = [...new Set(numbers)].sort((a, b) => a - b), found = [];
  for (let i = 0; i < sorted.length; ) {
    let j = i;
    while (j + 1 < sorted.length && sorted[j + 1] === sorted[j] + 1) j++;
    found.push(j - i > 1 ? `${sorted[i]}–${sorted[j]}` : sorted.slice(i, j + 1).join(", "));
    i = j + 1;
  }
  return found.length > most ? found.slice(0, most).join(", ") + ", …" : found.join(", ");
}

export function ranks(numbers) {
  return t(numbers.length === 1 ? "rank {ranks}" : "ranks {ranks}", { ranks: ranges(numbers) });
}

// Who is at fault: "rank 5 (gpu-03, GPU 5)".
export function whoName(who) {
  if (!who) return "";
  const place = [who.node, who.device && (/^\d+$/.test(who.device) ? "GPU " + who.device : who.device)].filter(Boolean);
  const known = who.rank !== undefined && who.rank !== null;
  const name = known ? t("rank {ranks}", { ranks: who.rank })
    : who.worker !== undefined && who.worker !== null ? t("worker {n}", { n: who.worker }) : "";
  if (!name) return place.join(", ");
  return place.length ? `${name} (${place.join(", ")})` : name;
}
