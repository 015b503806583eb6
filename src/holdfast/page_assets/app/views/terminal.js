// Opens a shell on one worker, and runs one command on all of them with equal answers joined. For operators.

import { html, useEffect, useRef, useState } from "../ui.js";
import { t, tn } from "../language.js";
import { bytes, ranges } from "../format.js";
import { assets, root } from "../boot.js";
import { change, jobPath, queryText } from "../route.js";
import { loadAsset, may, me, post, useDocument } from "../load.js";
import { useStore } from "../ui.js";
import { Empty, Section, Title, Trouble, Waiting } from "../parts/pieces.js";
import { Ansi } from "../parts/ansi.js";
import { colour } from "../parts/colours.js";

const LIVE = ["training", "recovering", "waiting", "kept", "starting", "unsupervised"];

// The page's policy allows no inline styles. xterm.js writes <style> elements and style attributes: while a terminal
// is open, those that it makes go into style sheets of the document, which the policy allows.
function allowStyles() {
  const create = document.createElement, sheets = [];
  document.createElement = function (name, ...rest) {
    const made = create.call(document, name === "style" ? "template" : name, ...rest);
    if (name === "style") {
      const sheet = new CSSStyleSheet();
      sheets.push(sheet);
      document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
      Object.defineProperty(made, "textContent", { set: (text) => sheet.replaceSync(text), get: () => "" });
      Object.defineProperty(made, "sheet", { value: sheet });
    } else if (name === "span") {
      made.setAttribute = function (key, value) {
        if (key === "style") this.style.cssText = value;
        else Element.prototype.setAttribute.call(this, key, value);
      };
    }
    return made;
  };
  return () => {
    document.createElement = create;
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((sheet) => !sheets.includes(sheet));
  };
}

function colours() {
  const names = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"], theme = { background: colour("ground"), foreground: colour("text"), cursor: colour("text"), selectionBackground: colour("spread") };
  for (const name of names) {
    theme[name] = colour("hue-" + name);
    theme["bright" + name[0].toUpperCase() + name.slice(1)] = colour("hue-" + name);
  }
  return theme;
}

async function openTerminal(box, { job, worker, aloud }, tell) {
  await Promise.all(["xterm.js", "addon-fit.js", "xterm.css"].map((name) => loadAsset(assets + name)));
  const restore = allowStyles();
  const terminal = new globalThis.Terminal({ fontSize: 14, fontFamily: getComputedStyle(box).fontFamily, theme: colours(), scrollback: 5000, screenReaderMode: aloud, allowProposedApi: false });
  const fit = new globalThis.FitAddon.FitAddon();
  terminal.loadAddon(fit);
  terminal.open(box);
  fit.fit();
  const query = queryText({ worker, columns: terminal.cols, rows: terminal.rows });
  const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${root}/api/v1${jobPath(job)}/shell${query}`);
  socket.binaryType = "arraybuffer";
  let ended = false;
  socket.onopen = () => tell("open");
  socket.onmessage = (event) => {
    if (typeof event.data !== "string") return terminal.write(new Uint8Array(event.data));
    const said = JSON.parse(event.data);
    ended = true;
    return tell("ended", said.text || t("The shell ended with code {code}.", { code: said.ended ?? "?" }));
  };
  socket.onclose = (event) => !ended && tell("ended", event.reason || t("The connection to the shell was lost; its processes were ended."));
  const encoder = new TextEncoder(), isOpen = () => socket.readyState === WebSocket.OPEN;
  terminal.onData((text) => isOpen() && socket.send(encoder.encode(text)));
  terminal.onBinary((text) => isOpen() && socket.send(Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
  terminal.onResize(({ cols, rows }) => isOpen() && socket.send(JSON.stringify({ resize: [cols, rows] })));
  const watch = new ResizeObserver(() => fit.fit());
  watch.observe(box);
  terminal.focus();
  return () => {
    ended = true;
    watch.disconnect();
    socket.close();
    terminal.dispose();
    restore();
  };
}

function Shell({ job, worker }) {
  const box = useRef(null), close = useRef(null);
  const [state, set] = useState({ step: "closed" }), [aloud, setAloud] = useState(false);
  useEffect(() => () => close.current?.(), [job, worker]);
  const start = async () => {
    close.current?.();
    close.current = null;
    set({ step: "opening" });
    try {
      close.current = await openTerminal(box.current, { job, worker, aloud }, (step, text) => set({ step, text }));
    } catch (error) {
      set({ step: "ended", text: error.message });
    }
  };
  const says = { closed: t("A shell runs as the user of the job, in its folder. The journal records that you opened it, not what you type."), opening: t("Opening a shell on worker {n} …", { n: worker }), open: t("A shell is open on worker {n}. Close it with exit.", { n: worker }) };
  return html`<div class="buttons">${state.step === "closed" || state.step === "ended" ? html`<button type="button" class="main" onClick=${start}>${t("Open a shell on worker {n}", { n: worker })}</button>
      <label class="check"><input type="checkbox" checked=${aloud} onChange=${(event) => setAloud(event.target.checked)} /> ${t("for a screen reader")}</label>` : null}</div>
    <p class="quiet" role="status">${state.text ?? says[state.step]}</p>
    <div class=${"shell" + (state.step === "closed" ? " closed" : "")} ref=${box} />`;
}

// As a shell would cut it, without any of its other powers.
export function words(line) {
  const found = line.match(/(?:[^\s"']+|"(?:\\.|[^"\\])*"|'[^']*')+/g) ?? [];
  return found.map((word) => word.replace(/"((?:\\.|[^"\\])*)"|'([^']*)'/g, (whole, soft, hard) => hard ?? soft.replace(/\\(.)/g, "$1")));
}

function Answers({ groups }) {
  return html`<ol class="plain-list answers">${groups.map((group) => html`<li>
    <p><strong>${t(group.workers.length === 1 ? "worker {n}" : "workers {n}", { n: ranges(group.workers) })}</strong> <span class="quiet">${(group.nodes ?? []).slice(0, 6).join(", ")}${(group.nodes ?? []).length > 6 ? ", …" : ""}</span>
      ${" · "}${group.code === undefined || group.code === null ? group.outcome : t("code {code}", { code: group.code })}${group.why ? ` · ${group.why}` : ""}</p>
    <pre class="mono block" tabindex="0">${(group.output ?? "").replace(/\n$/, "").split("\n").slice(0, 200).map((line) => html`<${Ansi} line=${line} />${"\n"}`)}</pre>
    ${group.cut_bytes ? html`<p class="quiet">${t("{size} left out", { size: bytes(group.cut_bytes) })}</p>` : null}</li>`)}</ol>`;
}

function Everywhere({ job, workers }) {
  const [line, setLine] = useState(""), [state, set] = useState({}), [loose, setLoose] = useState(false);
  const send = async (event) => {
    event.preventDefault();
    if (!state.sure) return set({ sure: true });
    set({ busy: true });
    try {
      return set({ result: await post(jobPath(job) + "/exec", { command: words(line), workers: null, loose }) });
    } catch (error) {
      return set({ error });
    }
  };
  return html`<form class="filters" onSubmit=${send}>
    <label class="grow"><span>${t("command")}</span><input type="text" class="mono" required value=${line} autocomplete="off" autocapitalize="none" spellcheck="false" placeholder="nvidia-smi -L" onInput=${(event) => {
      setLine(event.target.value);
      set({});
    }} /></label>
    <label class="check"><input type="checkbox" checked=${loose} onChange=${(event) => setLoose(event.target.checked)} /> ${t("group answers that differ only in numbers")}</label>
    <button type="submit" class=${state.sure ? "harsh" : ""} disabled=${state.busy}>${state.busy ? t("Running …") : state.sure ? tn(workers, "Yes, run it on {n} worker", "Yes, run it on {n} workers") : t("Run …")}</button></form>
    ${state.sure ? html`<p role="status">${t("It runs as the user of the job on every worker, for at most 30 s, and is recorded in the journal with your name.")}</p>` : null}
    <${Trouble} error=${state.error} />
    ${state.result ? html`<${Answers} groups=${state.result.groups ?? []} />` : null}`;
}

function Choice({ jobs, job, workers, worker }) {
  return html`<form class="filters" onSubmit=${(event) => event.preventDefault()}>
    <label><span>${t("job")}</span><select value=${job} onChange=${(event) => change({ job: event.target.value, worker: null })}><option value="">${t("choose")}</option>${jobs.map((row) => html`<option value=${row.id}>${row.name}</option>`)}</select></label>
    ${job ? html`<label><span>${t("worker")}</span><select value=${worker} onChange=${(event) => change({ worker: event.target.value })}>${workers.map((one) => html`<option value=${one.worker}>${one.worker}${one.node ? ` (${one.node})` : ""}</option>`)}</select></label>` : null}</form>`;
}

export function TerminalView({ query }) {
  useStore(me);
  const job = query.get("job") ?? "", list = useDocument("/jobs", { state: LIVE, limit: 100 }), { doc, error } = useDocument(job ? jobPath(job) : null);
  const title = html`<${Title} class="headline">${job ? t("Terminal: {name}", { name: doc?.row.name ?? job }) : t("Terminal")}<//>`;
  if (!me.get()) return html`${title}<${Waiting} what=${t("your role")} />`;
  if (!may("operator")) return html`${title}<${Empty}>${t("Only operators may run commands on workers. You are logged in as {name}, {role}.", { name: me.get().name, role: t(me.get().role) })}<//>`;
  const workers = doc?.workers ?? [], worker = query.get("worker") ?? String(workers[0]?.worker ?? "");
  const jobs = list.doc?.jobs ?? [], known = job && doc && !jobs.some((row) => row.id === job) ? [doc.row, ...jobs] : jobs;
  return html`${title}<${Choice} jobs=${known} job=${job} workers=${workers} worker=${worker} /><${Trouble} error=${error ?? list.error} />
    ${!job ? html`<${Empty}>${known.length ? t("Choose a job above.") : t("No job runs now.")}<//>` : !doc ? html`<${Waiting} what=${job} />` : html`
      <${Section} id="shell" title=${t("Shell on one worker")}><${Shell} key=${job + "/" + worker} job=${job} worker=${worker} /><//>
      <${Section} id="everywhere" title=${t("One command on all workers")}><${Everywhere} key=${job} job=${job} workers=${workers.length} /><//>`}`;
}
