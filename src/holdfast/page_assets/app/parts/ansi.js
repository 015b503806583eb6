// Cuts a line of output into pieces with a colour, and makes characters visible that would hide or reorder text.
// Everything stays text: nothing of a line becomes markup, and no sequence but colours has an effect.

import { classes, html } from "../ui.js";
import { SEQUENCES, visible } from "../control.js";

const PIECES_MAX = 400;
const SHOWN_MAX = 4000;
const HUES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

function hueOf(red, green, blue) {
  const most = Math.max(red, green, blue), least = Math.min(red, green, blue);
  if (most - least < 40) return most > 127 ? "white" : "black";
  const on = (part) => (part - least > (most - least) / 2 ? 1 : 0);
  return HUES[on(red) + 2 * on(green) + 4 * on(blue)];
}

function ofPalette(number) {
  if (number < 16) return HUES[number % 8];
  if (number > 231) return number > 243 ? "white" : "black";
  const cube = number - 16;
  return hueOf(Math.floor(cube / 36) * 51, (Math.floor(cube / 6) % 6) * 51, (cube % 6) * 51);
}

// The style after the codes of one sequence.
function styled(style, codes) {
  const numbers = codes.split(/[;:]/).map(Number);
  let next = { ...style };
  for (let i = 0; i < numbers.length; i++) {
    const code = numbers[i];
    if (code === 0) next = {};
    else if (code === 1) next.bold = true;
    else if (code === 2) next.dim = true;
    else if (code === 4) next.under = true;
    else if (code === 22) next.bold = next.dim = false;
    else if (code === 24) next.under = false;
    else if (code === 39) next.hue = undefined;
    else if (code >= 30 && code <= 37) next.hue = HUES[code - 30];
    else if (code >= 90 && code <= 97) next.hue = HUES[code - 90];
    else if (code === 38 || code === 48) {
      const isRgb = numbers[i + 1] === 2;
      const hue = isRgb ? hueOf(numbers[i + 2], numbers[i + 3], numbers[i + 4]) : ofPalette(numbers[i + 2] || 0);
      if (code === 38) next.hue = hue;
      i += isRgb ? 4 : 2;
    }
  }
  return next;
}

// [{text, style}] and whether the line was longer than is shown.
export function pieces(line, most = SHOWN_MAX) {
  const found = [], cut = line.length > most, text = cut ? line.slice(0, most) : line;
  let style = {}, from = 0;
  const add = (to) => to > from && found.push({ text: text.slice(from, to), style });
  SEQUENCES.lastIndex = 0;
  for (let hit; found.length < PIECES_MAX && (hit = SEQUENCES.exec(text)); from = SEQUENCES.lastIndex) {
    add(hit.index);
    if (hit[1] !== undefined) style = styled(style, hit[1]);
    else if (hit[0].length === 1) found.push({ text: visible(hit[0]), style: { control: true } });
  }
  // A line of nothing but colours: the rest without them.
  const rest = found.length >= PIECES_MAX ? text.slice(from).replace(SEQUENCES, "") : text.slice(from);
  if (rest) found.push({ text: rest, style });
  return { found, cut };
}

export function Ansi({ line, most }) {
  const { found, cut } = pieces(line, most);
  return html`<bdi dir="ltr">${found.map(({ text, style }) => {
    const name = classes(style.hue && "hue-" + style.hue, style.bold && "strong", style.dim && "quiet", style.under && "under", style.control && "control");
    return name ? html`<span class=${name}>${text}</span>` : text;
  })}${cut ? "…" : null}</bdi>`;
}
