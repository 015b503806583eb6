// Shows one job: its sentence and numbers, what happened when, how fast it ran, what the lost time went to, its output.

import { classes, html, makeStore, useMemo, useState } from "../ui.js";
import { say, t, tn } from "../language.js";
import { count, duration, moment, percent, ranges, span, whoName } from "../format.js";
import { saved } from "../boot.js";
import { change, incidentPath, jobPath, nodePath } from "../route.js";
import { hasDocument, may, useDocument } from "../load.js";
import { useLive, useThrottled } from "../live.js";
import { Empty, Facts, Link, Long, Pending, Section, Since, Table, Time, Title, Trouble, Waiting } from "../parts/pieces.js";
import { StateMark, ToneMark } from "../parts/marks.js";
import { ActionButton } from "../parts/actions.js";
import { Timeline } from "../parts/timeline.js";
import { StepChart } from "../parts/chart.js";
import { HeatChart } from "../parts/heat.js";
import { CostBlock } from "../parts/cost.js";
import { FaultLog } from "../parts/faultlog.js";
import { KEPT, Tail } from "../parts/tail.js";

const ENDED = new Set(["succeeded", "failed", "stopped", "preempted", "dead"]);

function stepFact(row) {
  if (row.step === undefined || row.step === null) return t("none yet");
  return row.total_steps ? t("{step} of {total}", { step: count(row.step), total: count(row.total_steps) }) : count(row.step);
}

// Where the job is, in one line below its sentence.
function Progress({ row }) {
  const ended = ENDED.has(row.state), known = (value) => value !== undefined && value !== null;
  const parts = [
    [t("step"), stepFact(row)],
    [t("a step"), row.step_s ? duration(row.step_s) : null],
    [t("goodput"), known(row.goodput) ? percent(row.goodput) : null],
    [ended ? t("ended") : t("ends in about"), ended ? html`<${Time} at=${row.ended_at_s} exact />` : row.eta_s ? span(row.eta_s) : null],
  ];
  return html`<ul class="progress num">${parts.filter(([, value]) => value !== null).map(([name, value]) => html`<li><span class="quiet">${name}</span> ${value}</li>`)}</ul>`;
}

function facts(doc) {
  const row = doc.row;
  return [
    [t("ranks"), row.ranks ? count(row.ranks) : null, tn(row.workers ?? 0, "on {n} worker", "on {n} workers")],
    [t("restarts"), doc.counters.max_restarts === null ? t("{n}, automatic restarts are off", { n: doc.counters.restarts }) : t("{n} of {max}", { n: doc.counters.restarts, max: doc.counters.max_restarts })],
    [t("caused by hardware"), doc.counters.hardware_reschedules ? count(doc.counters.hardware_reschedules) : null, t("reschedules")],
    [t("replaced workers"), doc.counters.replacements ? count(doc.counters.replacements) : null],
    [t("submitted"), html`<${Time} at=${row.submitted_at_s} />`, [row.user, row.engine].filter(Boolean).join(" · ")],
    [t("isolated nodes"), doc.isolated?.length ? doc.isolated.map((node, i) => html`${i ? ", " : ""}<${Link} to=${nodePath(node)}>${node}<//>`) : null],
    [t("lost nodes"), doc.lost?.length ? doc.lost.join(", ") : null],
  ];
}

function Actions({ doc }) {
  const path = jobPath(doc.row.id), name = doc.row.name;
  if (ENDED.has(doc.row.state) || !may("operator")) return null;
  const reason = { name: "reason", label: t("Reason (recorded in the journal)"), long: true };
  return html`<${Section} id="actions" title=${t("Actions")}><div class="buttons">
    <${ActionButton} action=${{ title: t("Restart {name}?", { name }), verb: t("Restart"), path: path + "/restart", fields: [reason], body: ({ reason: why }) => ({ reason: why }),
      says: t("All {n} ranks are stopped and started again in the same workers from the last checkpoint. It counts as a restart.", { n: doc.row.ranks ?? 0 }) }} />
    <${ActionButton} action=${{ title: t("Stop {name}?", { name }), verb: t("Stop"), harsh: true, path: path + "/stop", body: ({ force, reason: why }) => ({ force: Boolean(force), reason: why }),
      fields: [reason, { name: "force", kind: "check", label: t("immediately, without time to save a checkpoint") }],
      says: t("All {n} ranks get SIGTERM, then SIGKILL if they do not end. The job is not started again.", { n: doc.row.ranks ?? 0 }) }} />
    <${Link} class="button" to="/terminal" query=${{ job: doc.row.id }}>${t("Terminal")}<//>
  </div><//>`;
}

export function IncidentList({ rows, job }) {
  if (!rows?.length) return html`<${Empty}>${t("No incident so far. Each failure and hang that stops the job gets a line here.")}<//>`;
  return html`<ol class="rows incidents">${[...rows].reverse().map((row) => html`<li key=${row.number} class="row">
    <span class="when num"><${Time} at=${row.found_at_s} /></span>
    <span class="tone"><${ToneMark} tone=${row.sentence.tone ?? "neutral"} mute=${!row.sentence.to_do} /></span>
    <span class="sentence"><${Link} to=${incidentPath(job, row.number)} data-row="">${say(row.sentence.text)}<//></span>
    <span class="cost num quiet">${row.cost ? span(row.cost.lost_s) : ""}</span>
  </li>`)}</ol>`;
}

function Workers({ doc }) {
  const rows = (doc.workers ?? []).map((worker) => [
    String(worker.worker),
    worker.node ? html`<${Link} to=${nodePath(worker.node)}>${worker.node}<//>` : "",
    ranges(worker.ranks ?? []),
    count(worker.step),
    worker.step_s ? duration(worker.step_s) : "",
    html`<${Link} to=${jobPath(doc.row.id) + "/output"} query=${{ worker: worker.worker }}>${t("output")}<//>${may("operator") && !ENDED.has(doc.row.state) ? html` · <${Link} to="/terminal" query=${{ job: doc.row.id, worker: worker.worker }}>${t("shell")}<//>` : null}`,
  ]);
  const columns = [[t("worker"), "number"], [t("node"), ""], [t("ranks"), ""], [t("step"), "number"], [t("a step"), "number"], ["", ""]];
  const faulty = (doc.ranks ?? []).filter((rank) => rank.at_fault || (rank.ended && rank.code));
  return html`${faulty.length ? html`<p>${faulty.slice(0, 8).map((rank, i) => html`${i ? "; " : ""}${whoName({ rank: rank.rank, node: rank.node })}${rank.ended ? " " + t("ended with code {code}", { code: rank.code ?? "?" }) : ""}`)}${faulty.length > 8 ? " …" : ""}</p>` : null}
    <${Table} label=${t("Workers")} columns=${columns} rows=${rows} empty=${t("Workers appear here when the first attempt starts.")} />`;
}

function About({ doc }) {
  const policy = Object.entries(doc.policy ?? {}), labels = Object.entries(doc.row.labels ?? {});
  return html`<${Section} id="about" title=${t("About")}>
    <${Facts} label=${t("About")} items=${[
      [t("command"), doc.row.command ? html`<code><${Long} text=${doc.row.command} most=${240} /></code>` : null],
      [t("labels"), labels.map(([name, value]) => `${name}:${value}`).join(" ")],
      [t("supervisor"), doc.supervisor], [t("folder"), doc.folder ? html`<code>${doc.folder}</code>` : null],
      [t("version"), doc.version], [t("from"), doc.row.source],
    ]} />
    ${policy.length ? html`<details><summary>${t("recovery limits")}</summary><${Facts} label=${t("recovery limits")} items=${policy.map(([name, value]) => [name, typeof value === "object" ? JSON.stringify(value) : String(value)])} /></details>` : null}
  <//>`;
}

function Head({ doc }) {
  const { row } = doc, { sentence } = row;
  return html`<div class="head">
    <p class="path">${saved && !hasDocument("/") ? null : html`<${Link} to="/">‹ ${t("Jobs")}<//> `}<strong class="break">${row.name}</strong>
      <span class="condition"><${StateMark} state=${row.state} /> <${Since} at=${row.state_since_s} /></span></p>
    <${Title} class=${classes("headline", sentence.to_do && sentence.tone)}>${say(sentence.text)}<//>
    <${Progress} row=${row} />
    ${(doc.warnings ?? []).map((text) => html`<p class="trouble">▲ ${text}</p>`)}
  </div>`;
}

// `series`, `heat`, `log`, `tail`: what belongs to them, or null while it is not there. `onRange`: see StepChart.
export function JobView({ doc, series, heat, log, onRange, range, tail, trouble }) {
  const lacks = (part) => !hasDocument(jobPath(doc.row.id) + part); // of a saved page
  return html`<article class="job-view">
    <${Head} doc=${doc} />
    ${trouble}
    <div class="columns">
      <div class="main-column">
        <${Section} id="timeline" title=${t("Timeline")}><${Timeline} doc=${doc} marks=${series?.marks} /><//>
        <${Section} id="incidents" title=${t("Incidents")} aside=${doc.incidents?.length ? String(doc.incidents.length) : ""}><${IncidentList} rows=${doc.incidents} job=${doc.row.id} /><//>
        ${lacks("/steps") ? null : html`<${Section} id="steps" title=${t("Time of a step")} aside=${range}>
          ${series ? html`<${StepChart} series=${series} onRange=${onRange} />` : html`<${Waiting} what=${t("step times")} />`}<//>`}
        ${heat ? html`<${Section} id="ranks" title=${t("Ranks over time")} aside=${heat.metric}><${HeatChart} heat=${heat} /><//>` : null}
        ${lacks("/output") ? null : html`<${Section} id="output" title=${t("Output")} aside=${html`<${Link} to=${jobPath(doc.row.id) + "/output"}>${t("all of it ›")}<//>`}>${tail}<//>`}
        <${Section} id="workers" title=${t("Workers and ranks")}><${Workers} doc=${doc} /><//>
        ${lacks("/log") ? null : html`<${Section} id="log" title=${t("Fault-tolerance log")}>${log ? html`<${FaultLog} lines=${log.lines} job=${doc.row.id} />` : html`<${Waiting} what=${t("the log")} />`}<//>`}
      </div>
      <div class="side-column">
        <${Section} id="numbers" title=${t("Numbers")}><${Facts} label=${t("Numbers")} items=${facts(doc)} /><//>
        <${Section} id="lost" title=${t("Lost time by cause")}><${CostBlock} cost=${doc.cost} /><//>
        ${doc.findings?.length ? html`<${Section} id="findings" title=${t("Findings that did not stop the job")}><ul class="plain-list">${doc.findings.map((line) => html`<li><span class="num quiet">${moment(line.at_s)}</span> ${line.text}</li>`)}</ul><//>` : null}
        <${About} doc=${doc} />
        <${Actions} doc=${doc} />
      </div>
    </div>
  </article>`;
}

function RangeChoice({ query, series }) {
  if (saved || !series?.buckets.length) return null;
  const zoomed = query.get("from_s") !== null;
  const now = series.to_s ?? series.buckets[series.buckets.length - 1][0];
  const last = (seconds) => change({ from_s: Math.floor(now - seconds), to_s: Math.ceil(now) });
  return html`<span class="ranges">${[["last hour", 3600], ["last 24 hours", 86400]].map(([name, seconds]) => html`<button type="button" class="plain" onClick=${() => last(seconds)}>${t(name)}</button> `)}
    ${zoomed ? html`<button type="button" class="plain" onClick=${() => change({ from_s: null, to_s: null })}>${t("whole job")}</button>` : html`<span>${t("whole job")}</span>`}</span>`;
}

const LOG_LINES = 500;

export function JobPage({ args: [id], query }) {
  const path = jobPath(id), { doc, error, reload } = useDocument(path);
  const part = { from_s: query.get("from_s"), to_s: query.get("to_s"), points: 600 };
  const steps = useDocument(path + "/steps", part);
  const heat = useDocument(path + "/heat", { metric: query.get("metric") ?? "utilisation", columns: 200 });
  const log = useDocument(path + "/log", { limit: LOG_LINES });
  const [last, setLast] = useState(null);
  const rank = query.get("rank") ?? "", incoming = useMemo(() => makeStore([]), [id, rank]), newer = useMemo(() => makeStore(false), [id, rank]);
  const again = useThrottled(() => {
    reload();
    log.reload();
    if (!part.from_s) steps.reload();
  }, 2);
  useLive({ job: id, rank }, (kind, data) => {
    if (kind === "output") incoming.set([...incoming.get(), data.line].slice(-KEPT));
    else again();
    if (kind === "job" && !rank) newer.set(true);
  });
  if (!doc) return html`<${Pending} what=${id} error=${error} retry=${reload} />`;
  const shown = steps.doc ?? last;
  if (steps.doc && steps.doc !== last) setLast(steps.doc);
  const onRange = saved ? null : (from, to) => change({ from_s: from === null ? null : Math.floor(from), to_s: to === null ? null : Math.ceil(to) });
  return html`<${JobView} doc=${doc} series=${shown} heat=${heat.doc?.ranks?.length ? heat.doc : null} log=${log.doc} onRange=${onRange}
    range=${html`<${RangeChoice} query=${query} series=${shown} />`} tail=${html`<${Tail} job=${id} doc=${doc} rank=${rank} incoming=${incoming} newer=${newer} />`} trouble=${html`<${Trouble} error=${error} retry=${reload} />`} />`;
}
