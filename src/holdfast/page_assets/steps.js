// Draws what the page's data holds: the curve of step times with uPlot, the heat map on a canvas.
// Text goes into the page by textContent only. Nothing is fetched.
"use strict";
(() => {
  const { chart, heat } = JSON.parse(document.getElementById("data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const FONT = "12px system-ui, sans-serif";
  const LABEL_ROW = 16;
  const GUTTER = 8;
  const HINT = "Point at the curve for its numbers; drag to zoom in, double-click to see all. " +
    "With the plot in focus: arrow keys move, + and \u2212 zoom, 0 shows all.";

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const count = (n) => Math.round(n).toLocaleString("en-US");
  const by = (id) => document.getElementById(id);

  function three(value) {
    return value >= 99.95 ? value.toFixed(0) : value >= 9.995 ? value.toFixed(1) : value.toFixed(2);
  }

  // As duration() in step_chart.py.
  function duration(s) {
    if (s === null || !Number.isFinite(s)) return "unknown";
    if (s > 0 && s < 0.9995e-3) return three(s * 1e6) + " µs";
    if (s < 0.9995) return three(s * 1000) + " ms";
    if (s < 599.5) return three(s) + " s";
    let rest = Math.round(s), text = "";
    for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]) {
      if (rest >= size) text += Math.floor(rest / size) + unit;
      rest %= size;
    }
    return text;
  }

  function steps(first, last) {
    return first === last ? "step " + count(first) : "steps " + count(first) + " to " + count(last);
  }

  function make(tag, text, kind) {
    const made = document.createElement(tag);
    if (text) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  }

  // Round numbers ------------------------------------------------------------------------------------------

  const SIZES = [];
  for (let e = -7; e < 2; e++) for (const m of [1, 2, 5]) SIZES.push(m * 10 ** e);
  const TIMES = SIZES.filter((s) => s < 60).concat([60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400]);

  function roundTimes(low, high, most) {
    const wanted = (high - low) / most;
    const every = TIMES.find((s) => s >= wanted) || Math.ceil(wanted / 86400) * 86400;
    const found = [];
    for (let i = Math.ceil(low / every - 1e-9); i * every <= high * (1 + 1e-9); i++) found.push(i * every);
    return found;
  }

  function decades(low, high, most) {
    const few = Math.log10(high / low) > most / 3;
    const found = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.log10(high); e++)
      for (const m of few ? [1] : [1, 2, 5]) if (m * 10 ** e >= low && m * 10 ** e <= high) found.push(m * 10 ** e);
    return found;
  }

  function tick(s) {
    const plain = (n) => String(+n.toPrecision(6));
    if (s === 0) return "0";
    if (s < 0.001) return plain(s * 1e6) + " µs";
    if (s < 1) return plain(s * 1000) + " ms";
    if (s < 120) return plain(s) + " s";
    return s < 7200 ? plain(s / 60) + " min" : plain(s / 3600) + " h";
  }

  // Round steps of each run that is wide enough: a list of [x, step].
  function roundSteps(low, high, most) {
    const wanted = Math.max(high - low, 1) / Math.max(most, 1);
    const found = [];
    for (const run of chart.runs) {
      const first = Math.max(low, run.first_step + run.offset), last = Math.min(high, run.last_step + run.offset);
      if (last < first) continue;
      const ten = 10 ** Math.floor(Math.log10(Math.max(wanted, 1)));
      const every = Math.max(1, [1, 2, 5, 10].map((m) => m * ten).find((size) => size >= wanted * (1 - 1e-9)) || ten);
      for (let step = Math.ceil((first - run.offset) / every) * every; step + run.offset <= last; step += every) {
        const x = step + run.offset;
        if (!found.length || x - found[found.length - 1][0] >= wanted * 0.6) found.push([x, step]);
      }
    }
    return found;
  }

  // The curve ----------------------------------------------------------------------------------------------

  function curveData() {
    const x = [], high = [], low = [], mid = [], at = [];
    let run = null;
    chart.curve.forEach((point, i) => {
      if (run !== null && point.run !== run) {
        x.push((x[x.length - 1] + point.x) / 2);
        for (const list of [high, low, mid, at]) list.push(null); // a gap: no line leads from one run to the next
      }
      run = point.run;
      x.push(point.x); high.push(point.high_s); low.push(point.low_s); mid.push(point.median_s); at.push(i);
    });
    return { columns: [x, high, low, mid], at };
  }

  function drawCurve() {
    const box = by("curve");
    if (!box) return;
    const { columns, at } = curveData();
    const firstX = Math.min(chart.runs[0].first_step + chart.runs[0].offset);
    const lastX = chart.runs.reduce((most, run) => Math.max(most, run.last_step + run.offset), firstX);
    const pad = Math.max((lastX - firstX) * 0.01, 0.5);
    const whole = [firstX - pad, lastX + pad];
    const marks = [
      ...chart.long.map((p) => ({ x: p.x, y: p.median_s, kind: p.kind,
        label: p.kind + ": " + steps(p.first_step, p.last_step) + ", " + duration(p.median_s) })),
      ...chart.spikes.map((d) => ({ x: d.x, y: d.y, kind: "spike", label: "long step: " + d.label })),
    ];
    marks.sort((a, b) => a.x - b.x);
    const rows = (chart.runs.length > 1) + (chart.bands.length > 0) + (chart.loss.length > 0);
    const lows = columns[2].concat(marks.map((m) => m.y)).filter((s) => s > 0);
    const least = lows.length ? Math.min(...lows) : 1e-3;
    let mode = chart.cut_s === null ? "all" : "cut";
    let zoom = null;
    let plot = null;
    let index = null;

    const top = () => (mode === "cut" ? chart.cut_s : Math.max(chart.top_s * 1.06, 1e-6));
    const range = () => (mode === "log" ? [least / 1.3, Math.max(chart.top_s, least) * 1.3] : [0, top()]);

    function controls() {
      const form = by("scales");
      const choices = chart.cut_s === null ? [["all", "linear"], ["log", "logarithmic"]]
        : [["cut", "to " + duration(chart.cut_s)], ["all", "to " + duration(chart.top_s)], ["log", "logarithmic"]];
      form.append(make("span", "Scale:"));
      for (const [name, text] of choices) {
        const label = make("label"), input = make("input");
        Object.assign(input, { type: "radio", name: "scale", value: name, checked: name === mode });
        input.addEventListener("change", () => { mode = name; draw(); });
        label.append(input, text);
        form.append(label);
      }
      if (chart.cut_s !== null) {
        const over = marks.filter((m) => m.y > chart.cut_s).length + chart.curve.filter((p) => p.high_s > chart.cut_s).length;
        form.append(make("span", "▲ at the upper edge: longer than the scale shows (" + count(over) + ", up to " +
          duration(chart.top_s) + ")", "hint"));
      }
    }

    function legend() {
      const used = [["curve", "line", "median of a stretch, with its shortest and longest step"]];
      for (const kind of new Set(chart.long.map((p) => p.kind))) used.push([kind, "square", kind]);
      for (const kind of new Set(chart.shades.map((s) => s.kind))) used.push([kind, "fill", kind]);
      if (chart.spikes.length) used.push(["spike", "dot", "single long step"]);
      if (chart.bands.length) used.push(["slow", "fill", "slowdown, with its ratio"]);
      if (chart.runs.length > 1) used.push(["run", "rule", "a run begins"]);
      if (chart.loss.length) used.push(["loss", "rule", "loss"]);
      const place = by("legend");
      place.replaceChildren();
      for (const [name, shape, text] of used) {
        const sign = canvas(18, 12), pen = sign.getContext("2d");
        pen.fillStyle = pen.strokeStyle = colour(name);
        if (shape === "line") { pen.globalAlpha = 0.25; pen.fillRect(0, 1, 18, 10); pen.globalAlpha = 1; pen.fillRect(0, 5, 18, 2); }
        if (shape === "fill") { pen.globalAlpha = 0.25; pen.fillRect(0, 0, 18, 12); }
        if (shape === "rule") pen.fillRect(8, 0, 2, 12);
        if (shape === "square" || shape === "dot") shapeAt(pen, name, 9, 6, 1, false);
        const item = make("span");
        item.append(sign, text);
        place.append(item);
      }
    }

    function shapeAt(pen, kind, x, y, unit, cut) {
      const r = 3.5 * unit;
      pen.fillStyle = colour(kind);
      pen.beginPath();
      if (cut) { pen.moveTo(x, y); pen.lineTo(x + r, y + 2 * r); pen.lineTo(x - r, y + 2 * r); pen.closePath(); }
      else if (kind === "spike") pen.arc(x, y, r, 0, 2 * Math.PI);
      else pen.rect(x - r, y - r, 2 * r, 2 * r);
      pen.fill();
    }

    const unit = () => uPlot.pxRatio || devicePixelRatio;
    const xOf = (u, x) => u.valToPos(x, "x", true);
    const yOf = (u, y) => u.valToPos(y, "y", true);

    function behind(u) {
      const pen = u.ctx, { left, top: upper, width, height } = u.bbox;
      pen.save();
      pen.beginPath(); pen.rect(left, upper, width, height); pen.clip();
      const fill = (from, to, name, alpha) => {
        const a = xOf(u, from), b = Math.max(xOf(u, to), a + unit());
        pen.globalAlpha = alpha; pen.fillStyle = colour(name); pen.fillRect(a, upper, b - a, height); pen.globalAlpha = 1;
        return [a, b];
      };
      for (const shade of chart.shades) fill(shade.first_x, shade.last_x, shade.kind, 0.16);
      for (const band of chart.bands) {
        const [a, b] = fill(band.first_x, band.last_x, "slow", 0.14);
        pen.strokeStyle = colour("slow"); pen.lineWidth = unit();
        for (const [value, dash] of [[band.before_s, [4, 4]], [band.after_s, []]]) {
          if (!(value > 0)) continue;
          pen.setLineDash(dash.map((d) => d * unit()));
          pen.beginPath(); pen.moveTo(a, yOf(u, value)); pen.lineTo(b, yOf(u, value)); pen.stroke();
        }
        pen.setLineDash([]);
      }
      pen.restore();
    }

    function before(u) {
      const pen = u.ctx, { left, top: upper, width, height } = u.bbox, k = unit();
      const within = (x) => x >= u.scales.x.min && x <= u.scales.x.max;
      pen.save();
      pen.font = 12 * k + "px system-ui, sans-serif"; pen.textBaseline = "middle"; pen.textAlign = "left";
      let row = 0;
      // Each kind of label has its own row; one that would touch the label before it is left out.
      const labels = (list) => {
        if (!list.length) return;
        const y = upper - (rows - row - 0.5) * LABEL_ROW * k;
        let free = -Infinity;
        for (const { at: x, text, name } of list) {
          const wide = pen.measureText(text).width, start = Math.min(Math.max(x + 2 * k, left), left + width - wide);
          if (start < free) continue;
          pen.fillStyle = colour(name); pen.fillText(text, start, y); free = start + wide + 8 * k;
        }
      };
      const rule = (x, name, dash) => {
        pen.strokeStyle = colour(name); pen.lineWidth = k; pen.setLineDash(dash.map((d) => d * k));
        pen.beginPath(); pen.moveTo(x, upper - rows * LABEL_ROW * k * (name === "slow" ? 0 : 0.2)); pen.lineTo(x, upper + height); pen.stroke();
        pen.setLineDash([]);
      };
      if (chart.runs.length > 1) {
        const starts = chart.runs.map((run, i) => ({ x: run.first_step + run.offset - (i ? 0.5 : 0), text: "run " + (run.run + 1), name: "run" })).filter((s) => within(s.x));
        if (starts.length * 2 < width) for (const s of starts) rule(xOf(u, s.x), "run", []);
        labels(starts.map((s) => ({ ...s, at: xOf(u, s.x) })));
        row++;
      }
      if (chart.bands.length) {
        labels(chart.bands.filter((b) => b.last_x >= u.scales.x.min && b.first_x <= u.scales.x.max)
          .sort((a, b) => a.first_x - b.first_x).map((b) => ({ at: Math.max(xOf(u, b.first_x), left), text: b.label, name: "slow" })));
        row++;
      }
      if (chart.loss.length) {
        const seen = chart.loss.filter((m) => within(m.x)).sort((a, b) => a.x - b.x);
        for (const mark of seen) rule(xOf(u, mark.x), "loss", [2, 3]);
        labels(seen.map((m) => ({ at: xOf(u, m.x), text: m.label, name: "loss" })));
      }
      pen.beginPath(); pen.rect(left, upper - 1, width, height + 2); pen.clip();
      const most = u.scales.y.max;
      const lastAt = {};
      // At the edge only those that do not touch the one before: a solid row would say no more.
      const hides = (kind, x) => {
        if (x - (lastAt[kind] ?? -Infinity) < 8 * k) return true;
        lastAt[kind] = x;
        return false;
      };
      for (const m of marks) {
        if (!within(m.x)) continue;
        const cut = m.y > most;
        if (cut && hides(m.kind, xOf(u, m.x))) continue;
        shapeAt(pen, m.kind, xOf(u, m.x), cut ? upper : yOf(u, m.y), k, cut);
      }
      if (mode === "cut") for (const p of chart.curve) if (p.high_s > most && within(p.x) && !hides("curve", xOf(u, p.x))) shapeAt(pen, "curve", xOf(u, p.x), upper, k, true);
      pen.restore();
    }

    function read(u, i) {
      document.querySelectorAll("tr.here").forEach((one) => one.classList.remove("here"));
      const line = by("read-curve");
      index = i;
      if (i === null || i === undefined || at[i] === null || at[i] === undefined) { line.textContent = HINT; line.classList.add("hint"); return; }
      line.classList.remove("hint");
      const p = chart.curve[at[i]];
      const said = [steps(p.first_step, p.last_step) + (chart.runs.length > 1 ? " of run " + (p.run + 1) : "")];
      said.push(p.low_s === p.high_s ? duration(p.median_s)
        : "median " + duration(p.median_s) + ", " + duration(p.low_s) + " to " + duration(p.high_s));
      if (p.kind !== "step") said.push(p.kind);
      const near = (u.scales.x.max - u.scales.x.min) / u.bbox.width * unit() * 6;
      for (const m of marks) if (Math.abs(m.x - p.x) <= near && said.length < 6) said.push(m.label);
      for (const m of chart.loss) if (Math.abs(m.x - p.x) <= near) said.push(m.label);
      for (const band of chart.bands) {
        if (p.x < band.first_x - 0.5 || p.x > band.last_x + 0.5) continue;
        const tr = by("slowdown-" + band.index);
        if (tr) tr.classList.add("here");
        const cells = tr ? [...tr.cells].map((cell) => cell.textContent) : [];
        said.push("slowdown " + band.label + (cells.length ? " " + cells[0] + " (" + cells[2] + "), cost " + cells[5] + ": " + cells[6] : ""));
      }
      line.textContent = said.join(" · ");
    }

    function options() {
      const width = box.clientWidth, ink = colour("quiet"), grid = { stroke: colour("grid"), width: 1 };
      return {
        width, height: width < 560 ? 300 : 400, legend: { show: false }, padding: [rows * LABEL_ROW + 8, 12, 0, 0],
        cursor: { y: false, drag: { x: true, y: false }, points: { size: 7 } },
        scales: {
          x: { time: false, range: (u, low, high) => (zoom ? [low, high] : whole) },
          y: { distr: mode === "log" ? 3 : 1, range },
        },
        axes: [
          { stroke: ink, grid, ticks: grid, font: FONT, size: 44, label: "step", labelFont: FONT, labelSize: 18, labelGap: 0,
            splits: (u, axis, low, high) => (u.ticks = roundSteps(low, high, Math.max(2, u.bbox.width / unit() / 84))).map(([x]) => x),
            values: (u, splits) => splits.map((x) => count((u.ticks.find(([place]) => place === x) || [x, x])[1])) },
          { stroke: ink, grid, ticks: grid, font: FONT, size: 66, filter: (u, splits) => splits,
            splits: (u, axis, low, high) => (mode === "log" ? decades : roundTimes)(low, high, Math.max(3, u.bbox.height / unit() / 44)),
            values: (u, splits) => splits.map(tick) },
        ],
        series: [
          {},
          { stroke: "transparent", points: { show: false } },
          { stroke: "transparent", points: { show: false } },
          { stroke: colour("curve"), width: 1.75, points: { show: columns[0].length < 60, size: 5, fill: colour("curve") } },
        ],
        bands: [{ series: [1, 2], fill: colour("spread") }],
        hooks: { drawClear: [behind], draw: [before], setCursor: [(u) => read(u, u.cursor.left < 0 ? null : u.cursor.idx)],
          setSelect: [(u) => { zoom = u.select.width > 0 ? true : zoom; }] },
      };
    }

    function shown() {
      // A logarithm has no place for 0; a cut curve ends at the edge.
      const fit = (s) => (s === null ? null : mode === "log" ? (s > 0 ? s : null) : s);
      return [columns[0], ...columns.slice(1).map((list) => list.map(fit))];
    }

    function draw() {
      const kept = plot && zoom ? [plot.scales.x.min, plot.scales.x.max] : null;
      if (plot) plot.destroy();
      plot = new uPlot(options(), shown(), box);
      if (kept) { zoom = true; plot.setScale("x", { min: kept[0], max: kept[1] }); }
      plot.over.addEventListener("dblclick", () => { zoom = null; });
      plot.over.style.touchAction = "pan-y";
      plot.over.addEventListener("pointermove", (event) => {
        if (event.pointerType !== "mouse") plot.setCursor({ left: event.offsetX, top: event.offsetY });
      });
      legend();
      read(plot, null);
    }

    function look(low, high) {
      if (high - low < 2) return;
      zoom = low > whole[0] || high < whole[1] ? true : null;
      plot.setScale("x", { min: Math.max(low, whole[0]), max: Math.min(high, whole[1]) });
    }

    function go(to) {
      const last = columns[0].length - 1;
      let i = Math.min(Math.max(to, 0), last);
      if (at[i] === null) i += index !== null && i < index ? -1 : 1;
      const x = columns[0][i], { min, max } = plot.scales.x, half = (max - min) / 2;
      if (x < min || x > max) look(x - half, x + half);
      plot.setCursor({ left: plot.valToPos(x, "x"), top: plot.over.clientHeight / 2 });
    }

    box.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.altKey || event.metaKey) return;
      const { min, max } = plot.scales.x, far = event.shiftKey ? 10 : 1;
      const middle = index === null ? (min + max) / 2 : columns[0][index];
      const shift = (factor) => look(middle - (middle - min) * factor, middle + (max - middle) * factor);
      const keys = {
        ArrowRight: () => go(index === null ? 0 : index + far), ArrowLeft: () => go(index === null ? columns[0].length - 1 : index - far),
        Home: () => go(0), End: () => go(columns[0].length - 1),
        "+": () => shift(0.5), "=": () => shift(0.5), "-": () => shift(2), 0: () => look(...whole),
        Escape: () => plot.setCursor({ left: -10, top: -10 }),
      };
      if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
    });
    controls();
    draw();
    redraws.push([box, draw]);
  }

  // The heat map -------------------------------------------------------------------------------------------

  function canvas(width, height) {
    const made = make("canvas"), k = devicePixelRatio || 1;
    made.width = Math.round(width * k); made.height = Math.round(height * k);
    made.style.width = width + "px"; made.style.height = height + "px";
    made.getContext("2d").setTransform(k, 0, 0, k, 0, 0);
    return made;
  }

  function rgb(name) {
    const probe = canvas(1, 1).getContext("2d", { willReadFrequently: true });
    probe.fillStyle = colour(name); probe.fillRect(0, 0, 1, 1);
    return [...probe.getImageData(0, 0, 1, 1).data.slice(0, 3)];
  }

  function palette() {
    const [cold, even, hot] = ["cold", "even", "hot"].map(rgb), colours = new Uint8ClampedArray(257 * 3);
    for (let i = 0; i <= 256; i++) {
      const t = (i - 128) / 128, end = t < 0 ? cold : hot;
      for (let c = 0; c < 3; c++) colours[i * 3 + c] = even[c] + (end[c] - even[c]) * Math.abs(t);
    }
    return colours;
  }

  function drawHeat() {
    const box = by("heat");
    if (!box) return;
    const raw = Uint8Array.from(atob(heat.ratios), (letter) => letter.charCodeAt(0));
    const view = new DataView(raw.buffer), rowsAll = heat.ranks.length, columnsAll = heat.steps.length;
    const ratios = Uint16Array.from({ length: rowsAll * columnsAll }, (_, i) => view.getUint16(i * 2, true));
    const marked = heat.marked.map((rank) => heat.ranks.indexOf(rank)).filter((row) => row >= 0);
    const colourOf = (value) => {
      const t = Math.log(value / heat.scale) / Math.log(heat.reach);
      return Math.round(128 + 128 * Math.max(-1, Math.min(1, t)));
    };
    let place = null, here = null, over = null;

    // Of the cells that share one point of the screen the one farthest from its peers: a slow rank is never lost.
    function strongest(row0, row1, col0, col1) {
      let best = 0, far = -1, where = [row0, col0];
      for (let row = row0; row < row1; row++)
        for (let col = col0; col < col1; col++) {
          const value = ratios[row * columnsAll + col];
          if (!value) continue;
          const off = value >= heat.scale ? value / heat.scale : (heat.scale / value) * 0.999;
          if (off > far) { far = off; best = value; where = [row, col]; }
        }
      return [best, ...where];
    }

    const cut = (i, parts, all) => Math.floor((i * all) / parts);

    function draw() {
      const k = devicePixelRatio || 1, pen0 = canvas(1, 1).getContext("2d");
      pen0.font = FONT;
      const left = Math.ceil(Math.max(pen0.measureText("rank").width, ...heat.ranks.slice(-1).map((r) => pen0.measureText(count(r)).width))) + 14;
      const wide = box.clientWidth - left - 16, tall = Math.round(Math.min(Math.max(rowsAll * 18, 72), 640)), upper = 22;
      const sheet = canvas(box.clientWidth, upper + tall + 40), pen = sheet.getContext("2d");
      const columns = Math.min(columnsAll, Math.floor(wide * k)), rows = Math.min(rowsAll, Math.floor(tall * k));
      const picture = make("canvas"), colours = palette(), none = rgb("none");
      picture.width = columns; picture.height = rows;
      const paint = picture.getContext("2d"), image = paint.createImageData(columns, rows);
      for (let row = 0; row < rows; row++)
        for (let col = 0; col < columns; col++) {
          const [value] = strongest(cut(row, rows, rowsAll), cut(row + 1, rows, rowsAll), cut(col, columns, columnsAll), cut(col + 1, columns, columnsAll));
          const to = (row * columns + col) * 4, from = value ? colourOf(value) * 3 : 0;
          for (let c = 0; c < 3; c++) image.data[to + c] = value ? colours[from + c] : none[c];
          image.data[to + 3] = 255;
        }
      paint.putImageData(image, 0, 0);
      pen.imageSmoothingEnabled = false;
      pen.drawImage(picture, left, upper, wide, tall);
      pen.strokeStyle = colour("line"); pen.strokeRect(left - 0.5, upper - 0.5, wide + 1, tall + 1);
      place = { left, upper, wide, tall, rows, columns };
      axes(pen);
      over = canvas(box.clientWidth, upper + tall + 40);
      over.style.position = "absolute"; over.style.left = "0"; over.style.top = "0"; over.style.pointerEvents = "none";
      box.replaceChildren(sheet, over);
      legend();
      point(here);
    }

    // Round steps at their places, from 0 to 1 of the width; the columns' own where steps do not only grow.
    function columnTicks(most) {
      const grows = heat.steps.every((step, i) => i === 0 || step > heat.steps[i - 1]), found = [];
      const jump = Math.max(1, Math.ceil(columnsAll / most));
      if (!grows || columnsAll < 3) {
        for (let col = 0; col < columnsAll; col += jump) found.push([(col + 0.5) / columnsAll, heat.steps[col]]);
        return found;
      }
      const wanted = (heat.steps[columnsAll - 1] - heat.steps[0]) / most, ten = 10 ** Math.floor(Math.log10(Math.max(wanted, 1)));
      const every = Math.max(1, [1, 2, 5, 10].map((m) => m * ten).find((size) => size >= wanted * (1 - 1e-9)) || ten);
      let step = Math.ceil(heat.steps[0] / every) * every;
      for (let col = 0; col + 1 < columnsAll; col++)
        for (; step < heat.steps[col + 1]; step += every)
          found.push([(col + (step - heat.steps[col]) / (heat.steps[col + 1] - heat.steps[col])) / columnsAll, step]);
      return found;
    }

    function axes(pen) {
      const { left, upper, wide, tall } = place;
      pen.font = FONT; pen.fillStyle = colour("quiet"); pen.textBaseline = "middle"; pen.textAlign = "right";
      pen.fillText("rank", left - GUTTER, 8);
      const size = tall / rowsAll, every = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096].find((n) => n * size >= 15) || rowsAll;
      for (let row = 0; row < rowsAll; row += every) pen.fillText(count(heat.ranks[row]), left - GUTTER, upper + (row + 0.5) * size);
      pen.textBaseline = "top"; pen.textAlign = "center";
      let free = -Infinity;
      for (const [part, step] of columnTicks(Math.max(2, Math.floor(wide / 84)))) {
        const text = count(step), half = pen.measureText(text).width / 2;
        const at = Math.min(Math.max(left + part * wide, half), left + wide + 16 - half);
        if (at - half < free) continue;
        pen.fillText(text, at, upper + tall + 5); free = at + half + 10;
      }
      pen.fillText("step", left + wide / 2, upper + tall + 22);
      pen.fillStyle = colour("slow"); pen.textAlign = "left"; pen.textBaseline = "middle";
      for (const row of marked) pen.fillText("◂", left + wide + 3, upper + (row + 0.5) * size);
    }

    function legend() {
      const bar = canvas(160, 12), pen = bar.getContext("2d"), colours = palette();
      for (let i = 0; i <= 256; i++) { pen.fillStyle = `rgb(${colours[i * 3]},${colours[i * 3 + 1]},${colours[i * 3 + 2]})`; pen.fillRect((i * 159) / 256, 0, 1, 12); }
      const blank = canvas(18, 12), ink = blank.getContext("2d");
      ink.fillStyle = colour("none"); ink.fillRect(0, 0, 18, 12);
      const scale = make("span"), gap = make("span");
      scale.append((1 / heat.reach).toFixed(2) + "× or faster", bar, heat.reach.toFixed(2) + "× or slower");
      gap.append(blank, "no value");
      by("heat-legend").replaceChildren(scale, gap);
      if (marked.length) by("heat-legend").append(make("span", "◂ named as slow"));
      if (place.rows < rowsAll) by("heat-legend").append(make("span", "Where ranks share a line, the one farthest from its peers is shown."));
    }

    function point(cell) {
      here = cell;
      const pen = over.getContext("2d"), line = by("read-heat");
      pen.clearRect(0, 0, over.width, over.height);
      line.classList.toggle("hint", !cell);
      if (!cell) { line.textContent = "Point at a cell for its numbers. With the map in focus: arrow keys move."; return; }
      const { left, upper, wide, tall, rows, columns } = place;
      const [value, row, col] = strongest(cut(cell.row, rows, rowsAll), cut(cell.row + 1, rows, rowsAll), cut(cell.col, columns, columnsAll), cut(cell.col + 1, columns, columnsAll));
      pen.strokeStyle = colour("text"); pen.lineWidth = 1.5;
      pen.strokeRect(left + (cell.col * wide) / columns - 1, upper + (cell.row * tall) / rows - 1, wide / columns + 2, tall / rows + 2);
      const last = col + 1 < columnsAll ? heat.steps[col + 1] - 1 : null, middle = heat.middle_s[col];
      const when = last === null || last < heat.steps[col] ? "from step " + count(heat.steps[col]) : steps(heat.steps[col], last);
      const who = "rank " + count(heat.ranks[row]) + ", " + when;
      line.textContent = !value ? who + ": no value"
        : who + ": " + duration((middle * value) / heat.scale) + ", " + (value / heat.scale).toFixed(3) + "× the median of all ranks, " + duration(middle);
    }

    box.addEventListener("pointermove", (event) => {
      const area = box.getBoundingClientRect(), { left, upper, wide, tall, rows, columns } = place;
      const x = event.clientX - area.left - left, y = event.clientY - area.top - upper;
      const inside = x >= 0 && y >= 0 && x < wide && y < tall;
      point(inside ? { row: Math.floor((y / tall) * rows), col: Math.floor((x / wide) * columns) } : null);
    });
    box.addEventListener("pointerleave", () => point(null));
    box.addEventListener("keydown", (event) => {
      const far = event.shiftKey ? 10 : 1;
      const move = { ArrowUp: [-far, 0], ArrowDown: [far, 0], ArrowLeft: [0, -far], ArrowRight: [0, far] }[event.key];
      if (!move || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      const from = here || { row: 0, col: 0 }, clamp = (n, most) => Math.min(Math.max(n, 0), most - 1);
      point(here ? { row: clamp(from.row + move[0], place.rows), col: clamp(from.col + move[1], place.columns) } : from);
    });
    draw();
    redraws.push([box, draw]);
  }

  // Once, and whenever width or colours change --------------------------------------------------------------

  const redraws = [];
  drawCurve();
  drawHeat();
  const widths = new Map(redraws.map(([box]) => [box, box.clientWidth]));
  const watch = new ResizeObserver(() => {
    for (const [box, draw] of redraws)
      if (box.clientWidth !== widths.get(box)) { widths.set(box, box.clientWidth); draw(); }
  });
  for (const [box] of redraws) watch.observe(box);
  dark.addEventListener("change", () => redraws.forEach(([, draw]) => draw()));
  addEventListener("beforeprint", () => redraws.forEach(([, draw]) => draw()));
})();
