// Draws who waits for whom: groups of ranks in layers, those that nobody keeps waiting at the bottom.

import { html } from "../ui.js";
import { t } from "../language.js";
import { ranges } from "../format.js";

const BOX = 40, LAYER = 96, GAP = 24, LETTER = 8.4, PAD = 24;

const keyOf = (ranks) => [...ranks].sort((a, b) => a - b).join(",");

export function collectiveName(edge) {
  const number = edge.sequence === null || edge.sequence === undefined ? "" : ` #${edge.sequence.toLocaleString("en-US")}`;
  return edge.collective + number + (edge.group ? ` (${edge.group})` : "");
}

export function waitSentence(edge) {
  return t("Ranks {who} wait for {whom} in {what}.", { who: ranges(edge.ranks), whom: ranges(edge.awaits), what: collectiveName(edge) });
}

// The depth of a group: how many others it waits for, one after the other. A ring ends where it comes back.
function depths(edges) {
  const known = new Map();
  const depth = (key, path) => {
    if (path.includes(key)) return 0;
    if (!known.has(key)) {
      const next = edges.filter((edge) => keyOf(edge.ranks) === key).map((edge) => depth(keyOf(edge.awaits), [...path, key]));
      known.set(key, next.length ? 1 + Math.max(...next) : 0);
    }
    return known.get(key);
  };
  for (const edge of edges) for (const ranks of [edge.ranks, edge.awaits]) depth(keyOf(ranks), []);
  return known;
}

function placed(edges) {
  const deep = depths(edges), most = Math.max(...deep.values()), layers = [];
  const names = new Map();
  for (const edge of edges) for (const ranks of [edge.ranks, edge.awaits]) names.set(keyOf(ranks), ranges(ranks, 4));
  for (const [key, depth] of deep) (layers[most - depth] ??= []).push(key);
  const places = new Map();
  const widthOf = (key) => Math.max(64, names.get(key).length * LETTER + PAD);
  const sizes = layers.map((keys) => keys.reduce((sum, key) => sum + widthOf(key) + GAP, -GAP)), wide = Math.max(...sizes.filter(Boolean));
  layers.forEach((keys, layer) => {
    let left = (wide - sizes[layer]) / 2;
    for (const key of keys) {
      places.set(key, { left, width: widthOf(key), top: layer * LAYER + 2, name: names.get(key) });
      left += widthOf(key) + GAP;
    }
  });
  return { places, wide, tall: (layers.length - 1) * LAYER + BOX + 4 };
}

function Arrow({ from, to, name, awaited }) {
  const up = to.top <= from.top;
  const x1 = from.left + from.width / 2, x2 = to.left + to.width / 2;
  const y1 = up ? from.top : from.top + BOX, y2 = up ? to.top + BOX : to.top - 5;
  const bend = up ? from.width : 0;
  const path = `M${x1 + bend / 2} ${y1} C ${x1 + bend} ${(y1 + y2) / 2}, ${x2 + bend} ${(y1 + y2) / 2}, ${x2 + bend / 2} ${y2}`;
  return html`<g><path class="edge" d=${path} marker-end="url(#arrow)" />
    <text x=${(x1 + x2) / 2 + bend / 2 + 8} y=${(y1 + y2) / 2 + 4 + awaited * 18}>${name}</text></g>`;
}

export function WaitGraph({ edges }) {
  const { places, wide, tall } = placed(edges);
  const waits = new Set(edges.map((edge) => keyOf(edge.ranks)));
  const label = Math.max(...edges.map((edge) => collectiveName(edge).length)) * LETTER + 16;
  return html`<figure class="graph">
    <svg viewBox=${`0 0 ${Math.max(wide, wide / 2 + label) + 4} ${tall}`} width=${Math.max(wide, wide / 2 + label) + 4} height=${tall} role="img" aria-label=${edges.map(waitSentence).join(" ")}>
      <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto-start-reverse"><path d="M0 0 8 4 0 8z" class="head" /></marker></defs>
      ${edges.map((edge, i) => html`<${Arrow} from=${places.get(keyOf(edge.ranks))} to=${places.get(keyOf(edge.awaits))} name=${collectiveName(edge)}
        awaited=${edges.slice(0, i).filter((other) => keyOf(other.ranks) === keyOf(edge.ranks) && keyOf(other.awaits) === keyOf(edge.awaits)).length} />`)}
      ${[...places].map(([key, { left, width, top, name }]) => html`<g class=${waits.has(key) ? "" : "culprit"}>
        <rect x=${left + 1} y=${top} width=${width} height=${BOX} rx="3" />
        <text class="middle" x=${left + 1 + width / 2} y=${top + BOX / 2 + 5}>${name}</text></g>`)}
    </svg>
    <figcaption>${edges.map((edge) => html`<p>${waitSentence(edge)}</p>`)}</figcaption>
  </figure>`;
}
