// Draws step times over time with uPlot: the median as a line, the spread around it, and what happened as marks.
// A look at a part of it asks the server for that part in full detail.

import { html, useEffect, useRef, useState, useStore } from "../ui.js";
import { t, tn, useLanguage } from "../language.js";
import { count, duration, instant, moment } from "../format.js";
import { assets, saved } from "../boot.js";
import { loadAsset } from "../load.js";
import { colour, drawnDark, font } from "./colours.js";
import { Empty } from "./pieces.js";

const TALL = 220, CUT = 4;
const MARK_COLOURS = { incident: "lost", slowdown: "trouble" };

function tick(seconds) {
  const plain = (value) => String(+value.toPrecision(6));
  if (seconds === 0) return "0";
  if (seconds < 1) return plain(seconds * 1000) + " ms";
  return seconds < 120 ? plain(seconds) + " s" : seconds < 7200 ? plain(seconds / 60) + " min" : plain(seconds / 3600) + " h";
}

// Buckets are [at_s, first_step, count, low_s, median_s, high_s, loss].
function columns(buckets) {
  return [0, 5, 3, 4].map((place) => buckets.map((bucket) => bucket[place]));
}

function top(buckets) {
  const medians = buckets.map((bucket) => bucket[4]).sort((a, b) => a - b);
  const most = Math.max(...buckets.map((bucket) => bucket[5]));
  return Math.min(most, medians[medians.length >> 1] * CUT) * 1.08;
}

function drawMarks(plot, marks) {
  const { ctx, bbox } = plot, ratio = devicePixelRatio || 1;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  for (const mark of marks) {
    const x = plot.valToPos(mark.at_s, "x", true), strong = MARK_COLOURS[mark.kind];
    ctx.strokeStyle = ctx.fillStyle = colour(strong ?? "quiet");
    if (mark.until_s) {
      ctx.globalAlpha = strong ? 0.22 : 0.14;
      ctx.fillRect(x, bbox.top, Math.max(ratio, plot.valToPos(mark.until_s, "x", true) - x), bbox.height);
      ctx.globalAlpha = 1;
    } else {
      ctx.lineWidth = ratio * (strong ? 1.5 : 1);
      ctx.setLineDash(strong ? [] : [3 * ratio, 3 * ratio]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    if (mark.kind === "incident") {
      ctx.beginPath();
      ctx.moveTo(x - 5 * ratio, bbox.top);
      ctx.lineTo(x + 5 * ratio, bbox.top);
      ctx.lineTo(x, bbox.top + 8 * ratio);
      ctx.fill();
    }
  }
  ctx.restore();
}

function timeTicks(values, every) {
  return values.map((at_s) => {
    const date = new Date(at_s * 1000), two = (part) => String(part).padStart(2, "0");
    const time = `${two(date.getHours())}:${two(date.getMinutes())}`;
    const day = `${two(date.getMonth() + 1)}-${two(date.getDate())}`;
    return every >= 86400 ? day : every < 60 ? `${time}:${two(date.getSeconds())}` : time === "00:00" ? day : time;
  });
}

function options(box, series, call) {
  const grid = { stroke: colour("grid"), width: 1 }, ink = colour("quiet"), line = colour("curve");
  const axis = { stroke: ink, grid, ticks: { show: false }, font: font() };
  return {
    width: box.clientWidth, height: TALL, legend: { show: false },
    cursor: { drag: { x: true, y: false, setScale: false }, points: { show: false }, y: false },
    scales: {
      x: { time: false, range: () => [series.from_s ?? series.buckets[0][0], series.to_s ?? series.buckets[series.buckets.length - 1][0]] },
      y: { range: () => [0, top(series.buckets)] },
    },
    axes: [
      { ...axis, size: 30, space: 76, incrs: [1, 2, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800], values: (plot, splits, place, space, every) => timeTicks(splits, every) },
      { ...axis, size: 58, space: 44, values: (plot, splits) => splits.map(tick) },
    ],
    series: [
      {}, { stroke: "transparent", points: { show: false } }, { stroke: "transparent", points: { show: false } },
      { stroke: line, width: 1.5, points: { show: series.buckets.length < 40, size: 4, fill: line } },
    ],
    bands: [{ series: [1, 2], fill: colour("spread") }],
    hooks: {
      drawClear: [(plot) => drawMarks(plot, series.marks ?? [])],
      setCursor: [(plot) => call.point(plot.cursor.left < 0 ? null : plot.cursor.idx)],
      setSelect: [(plot) => plot.select.width > 4 && call.zoom(plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x"))],
    },
  };
}

function pointText(series, index) {
  const bucket = index === null ? null : series.buckets[index];
  if (!bucket) return tn(series.steps, "{n} step.", "{n} steps.") + (saved || !matchMedia("(pointer: fine)").matches ? "" : " " + t("Drag over a part to see it in detail; with the chart in focus, arrows move and + − 0 zoom."));
  const [at_s, first, many, low, median, high] = bucket;
  const steps = many > 1 ? t("steps {first}–{last}", { first: count(first), last: count(first + many - 1) }) : t("step {first}", { first: count(first) });
  const near = (series.marks ?? []).filter((mark) => mark.text && mark.at_s <= at_s + 1 && at_s <= (mark.until_s ?? mark.at_s + (series.to_s - series.from_s) / 200)).map((mark) => mark.text);
  const spread = many > 1 ? ` (${duration(low)} – ${duration(high)})` : "";
  return [moment(at_s, undefined, true) || instant(at_s), steps, duration(median) + spread, ...near].join(" · ");
}

// `onRange(from_s, to_s)`: a part is wanted in detail; (null, null): all of it. null: a saved page.
export function StepChart({ series, onRange }) {
  const box = useRef(null), plot = useRef(null), index = useRef(null);
  const dark = useStore(drawnDark), language = useLanguage();
  const [text, setText] = useState("");
  const point = (at) => {
    index.current = at ?? null;
    setText(pointText(series, index.current));
  };
  useEffect(() => {
    if (!series.buckets.length) return undefined;
    let ended = false, watch;
    const ready = globalThis.uPlot ? Promise.resolve() : Promise.all([loadAsset(assets + "uPlot.iife.min.js"), loadAsset(assets + "uPlot.min.css")]);
    ready.then(() => {
      if (ended) return;
      plot.current = new globalThis.uPlot(options(box.current, series, { point, zoom: onRange ?? (() => {}) }), columns(series.buckets), box.current);
      watch = new ResizeObserver(() => plot.current?.setSize({ width: box.current.clientWidth, height: TALL }));
      watch.observe(box.current);
    }, (error) => setText(error.message));
    setText(pointText(series, null));
    return () => {
      ended = true;
      watch?.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [series, dark, language]);
  if (!series.buckets.length) return html`<${Empty}>${t("Step times appear here once the job logs its first step.")}<//>`;
  const onKey = (event) => {
    const range = plot.current?.scales.x, all = series.buckets;
    if (!range || event.ctrlKey || event.altKey || event.metaKey) return;
    const middle = index.current === null ? (range.min + range.max) / 2 : all[index.current][0], half = (range.max - range.min) / 4;
    const move = (to) => {
      const next = Math.min(all.length - 1, Math.max(0, to));
      plot.current.setCursor({ left: plot.current.valToPos(all[next][0], "x"), top: 10 });
    };
    const keys = {
      ArrowRight: () => move((index.current ?? -1) + 1), ArrowLeft: () => move((index.current ?? all.length) - 1),
      "+": () => onRange?.(middle - half, middle + half), "=": () => onRange?.(middle - half, middle + half),
      "-": () => onRange?.(middle - half * 4, middle + half * 4), 0: () => onRange?.(null, null),
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  };
  return html`<div class="chart">
    <div class="plot" ref=${box} tabindex="0" role="group" aria-label=${t("Step time over time")} aria-describedby="chart-read" onKeyDown=${onKey} />
    <p class="quiet readout num" id="chart-read">${text}</p>
  </div>`;
}
