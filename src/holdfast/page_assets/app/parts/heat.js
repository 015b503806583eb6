// Draws ranks over time as a map in one hue on a canvas: the farther from the median of all, the darker. Says in words
// what it shows.

import { html, useEffect, useRef, useState, useStore } from "../ui.js";
import { t, useLanguage } from "../language.js";
import { moment, ranges } from "../format.js";
import { colour, drawnDark, font } from "./colours.js";
import { Empty, Table } from "./pieces.js";

const ROW_MOST = 16, ROW_LEAST = 2, TALL_MOST = 320, LEFT = 44, BELOW = 24;

function channels(name) {
  const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  probe.fillStyle = colour(name);
  probe.fillRect(0, 0, 1, 1);
  return [...probe.getImageData(0, 0, 1, 1).data.slice(0, 3)];
}

function median(values) {
  const known = values.filter((value) => value !== null).sort((a, b) => a - b);
  return known.length ? known[known.length >> 1] : null;
}

export function figure(value, unit) {
  if (value === null || value === undefined) return t("no value");
  const plain = Math.abs(value) >= 99.95 ? value.toFixed(0) : value.toFixed(1);
  return unit ? `${plain} ${unit}` : plain;
}

// The rows that stand out most from the median of all, and the sentence that says so.
function outliers(heat) {
  const rows = heat.ranks.map((rank, i) => ({ rank, middle: median(heat.values[i]), last: heat.values[i].findLast((value) => value !== null) ?? null }));
  const usual = median(rows.map((row) => row.middle));
  const far = (row) => (row.middle === null ? -1 : Math.max(Math.abs(row.middle - usual), row.last === null ? 0 : Math.abs(row.last - usual)));
  return { usual, rows: [...rows].sort((a, b) => far(b) - far(a)).slice(0, 8) };
}

function paint(sheet, heat, tall) {
  const ratio = devicePixelRatio || 1, wide = sheet.clientWidth, pen = sheet.getContext("2d");
  sheet.width = Math.round(wide * ratio);
  sheet.height = Math.round((tall + BELOW) * ratio);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  const rows = heat.ranks.length, cols = heat.values[0]?.length ?? 0, usual = median(heat.values.flat()) ?? 0;
  const far = heat.values.flat().reduce((most, value) => (value === null ? most : Math.max(most, Math.abs(value - usual))), 1e-9);
  const cold = channels("ground"), hot = channels("curve"), none = channels("line");
  const picture = document.createElement("canvas");
  picture.width = cols;
  picture.height = rows;
  const brush = picture.getContext("2d"), image = brush.createImageData(cols, rows);
  heat.values.forEach((row, y) => row.forEach((value, x) => {
    const part = value === null ? 0 : 0.12 + (0.88 * Math.abs(value - usual)) / far, to = (y * cols + x) * 4;
    for (let i = 0; i < 3; i++) image.data[to + i] = value === null ? none[i] : cold[i] + (hot[i] - cold[i]) * part;
    image.data[to + 3] = 255;
  }));
  brush.putImageData(image, 0, 0);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(picture, LEFT, 0, wide - LEFT, tall);
  labels(pen, heat, wide, tall, cols);
}

function labels(pen, heat, wide, tall, cols) {
  pen.font = font();
  pen.fillStyle = colour("quiet");
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  const size = tall / heat.ranks.length, every = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096].find((step) => step * size >= 17) ?? heat.ranks.length;
  for (let row = 0; row < heat.ranks.length; row += every) pen.fillText(String(heat.ranks[row]), LEFT - 8, Math.max(8, Math.min(tall - 7, (row + 0.5) * size + 1)));
  pen.textBaseline = "top";
  const until = heat.from_s + heat.column_s * cols;
  pen.textAlign = "left";
  pen.fillText(moment(heat.from_s), LEFT, tall + 6);
  pen.textAlign = "right";
  pen.fillText(moment(until), wide, tall + 6);
  pen.strokeStyle = pen.fillStyle = colour("lost");
  for (const mark of heat.incidents ?? []) {
    const x = LEFT + ((wide - LEFT) * (mark.at_s - heat.from_s)) / (until - heat.from_s);
    if (x < LEFT || x > wide) continue;
    pen.beginPath();
    pen.moveTo(x, 0);
    pen.lineTo(x, tall);
    pen.stroke();
  }
}

const METRICS = { utilisation: "utilisation", cpu: "cpu", step: "step" };

export function HeatChart({ heat }) {
  const sheet = useRef(null), dark = useStore(drawnDark), language = useLanguage();
  const [cell, setCell] = useState(null);
  const rows = heat.ranks.length, cols = heat.values[0]?.length ?? 0;
  const tall = Math.max(32, Math.min(TALL_MOST, rows * Math.max(ROW_LEAST, Math.min(ROW_MOST, TALL_MOST / Math.max(rows, 1)))));
  useEffect(() => {
    if (!rows || !cols) return undefined;
    const draw = () => paint(sheet.current, heat, tall), watch = new ResizeObserver(draw);
    watch.observe(sheet.current);
    draw();
    return () => watch.disconnect();
  }, [heat, dark, language]);
  if (!rows || !cols) return html`<${Empty}>${t("A map of ranks over time appears here once ranks have been sampled twice.")}<//>`;
  const onMove = (event) => {
    const area = sheet.current.getBoundingClientRect(), x = event.clientX - area.left - LEFT, y = event.clientY - area.top;
    const inside = x >= 0 && y >= 0 && y < tall && x < area.width - LEFT;
    setCell(inside ? { row: Math.floor((y / tall) * rows), col: Math.floor((x / (area.width - LEFT)) * cols) } : null);
  };
  const onKey = (event) => {
    const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!by || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const from = cell ?? { row: 0, col: cols - 1 }, within = (value, most) => Math.min(Math.max(value, 0), most - 1);
    setCell({ row: within(from.row + by[0], rows), col: within(from.col + by[1], cols) });
  };
  const found = outliers(heat);
  const said = t("{ranks} ranks, median {usual}. Outliers: {far}.", {
    ranks: rows, usual: figure(found.usual, heat.unit),
    far: found.rows.slice(0, 3).map((row) => `rank ${row.rank} (${figure(row.last ?? row.middle, heat.unit)})`).join(", "),
  }) + " " + t("Darker is farther from the median.");
  const read = cell
    ? `${t("rank {ranks}", { ranks: heat.ranks[cell.row] })} · ${moment(heat.from_s + cell.col * heat.column_s, undefined, true)} · ${figure(heat.values[cell.row][cell.col], heat.unit)}`
    : said;
  return html`<div class="heat" role="group" tabindex="0" aria-label=${t("Ranks over time: {metric}", { metric: METRICS[heat.metric] ?? heat.metric })} aria-describedby="heat-read"
      onPointerMove=${onMove} onPointerLeave=${() => setCell(null)} onKeyDown=${onKey}>
    <canvas ref=${sheet} style=${{ height: tall + BELOW + "px" }} aria-hidden="true" />
    <p class="quiet readout num" id="heat-read">${read}</p>
  </div>
  <details><summary>${t("outliers as a table")}</summary>
    <${Table} label=${t("Outliers")} columns=${[[t("rank"), "number"], [t("median"), "number"], [t("last"), "number"]]}
      rows=${found.rows.map((row) => [String(row.rank), figure(row.middle, heat.unit), figure(row.last, heat.unit)])} /></details>
  <p class="unseen">${said} ${ranges(heat.ranks)}</p>`;
}
