// Makes characters visible that would hide or reorder the text around them.

// Colour sequences, any other escape sequence, and single control characters. Tabs are plain.
export const SEQUENCES = /\x1b\[([0-9;:]*)m|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;
const SINGLE = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;

export function visible(letter) {
  const code = letter.codePointAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  return code === 0x7f ? "\u2421" : "U+" + code.toString(16).toUpperCase().padStart(4, "0");
}

const ANY = new RegExp(SINGLE.source);

// A name or a sentence from outside, as text.
export function plain(text) {
  if (!ANY.test(text)) return text;
  return text.replace(SEQUENCES, (found) => (found.length > 1 ? "" : visible(found))).replace(SINGLE, visible);
}
