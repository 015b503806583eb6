// Shows one incident: what happened to whom, what was done, what it cost, what to do; then the proof.

import { classes, html, useState } from "../ui.js";
import { language, say, t, tn } from "../language.js";
import { count, percent, ranks, span, whoName } from "../format.js";
import { root, saved } from "../boot.js";
import { incidentPath, jobPath, nodePath } from "../route.js";
import { getText, hasDocument, useDocument } from "../load.js";
import { useLive, useThrottled } from "../live.js";
import { CopyButton, Empty, Facts, Link, Pending, Section, Shares, Table, Time, Title, Trouble } from "../parts/pieces.js";
import { CheckMark, ToneMark } from "../parts/marks.js";
import { ActionButton } from "../parts/actions.js";
import { Evidence } from "../parts/evidence.js";
import { Ansi } from "../parts/ansi.js";
import { WaitGraph } from "../parts/graph.js";
import { costText, partName } from "../parts/cost.js";

const KERNEL_FEW = 6;

function Who({ who }) {
  return who.map((one, i) => html`${i ? ", " : ""}${one.node && hasDocument(nodePath(one.node)) ? html`<${Link} to=${nodePath(one.node)}>${whoName(one)}<//>` : whoName(one)}`);
}

function resumed(doc) {
  const { row } = doc;
  if (row.recovered_at_s) return html`<${Time} at=${row.recovered_at_s} exact />`;
  return row.over ? t("never; the job ended") : t("not yet");
}

function verdict(doc) {
  const { row } = doc;
  const sure = row.confidence === undefined || row.confidence === null ? "" : t("{part} sure", { part: percent(row.confidence, 0) });
  return [
    [t("cause"), say(doc.title), [row.category, row.class_, sure].filter(Boolean).join(" · ")],
    [t("who"), row.who?.length ? html`<${Who} who=${row.who} />` : t("not known")],
    [t("found"), html`<${Time} at=${row.found_at_s} exact />`, t("attempt {n}", { n: row.attempt })],
    [t("done"), row.rung ? rungName(row.rung) : t("nothing yet")],
    [t("training again"), resumed(doc), row.recovered_at_s ? t("after {time}", { time: span(row.recovered_at_s - row.found_at_s) }) : ""],
    [t("checkpoint"), say(doc.checkpoint) || null],
    [t("losses after the restart"), say(doc.resume) || null],
    [t("cost"), costText(doc.cost ?? row.cost) || null, doc.cost?.steps_repeated ? tn(doc.cost.steps_repeated, "{n} step repeated", "{n} steps repeated") : ""],
    [t("what to do"), say(doc.advice) || (row.sentence.to_do ? null : t("nothing")), doc.action && doc.action !== "none" ? doc.action : ""],
    [t("acknowledged by"), row.acknowledged_by || null],
  ];
}

const RUNGS = {
  "in-place": "restart in the same workers", "hang-restart": "restart after a hang", "replace-worker": "replace the worker",
  "reschedule-isolated": "reschedule, nodes isolated", "reschedule-unconditional": "reschedule", "wait-for-node": "wait for a node",
  fail: "end the job", notify: "notify only",
};

export function rungName(rung) {
  return RUNGS[rung] ? t(RUNGS[rung]) : rung;
}

function Parts({ doc }) {
  const parts = (doc.timeline ?? []).map(([name, seconds]) => [partName(name), seconds]);
  if (!parts.length) return null;
  const steps = doc.step_before === undefined ? null : doc.step_resumed === undefined || doc.step_resumed === null
    ? t("from step {a}", { a: count(doc.step_before) }) : t("from step {a}, again at step {b}", { a: count(doc.step_before), b: count(doc.step_resumed) });
  return html`<${Section} id="parts" title=${t("Recovery")} aside=${span(parts.reduce((sum, [, seconds]) => sum + seconds, 0))}>
    <${Shares} parts=${parts} label=${parts.map(([name, seconds]) => `${name} ${span(seconds)}`).join(", ")} />
    <ol class="parts">${parts.map(([name, seconds], i) => html`<li><span class=${"key share" + (i % 4)} aria-hidden="true" />${name} <span class="num">${span(seconds)}</span></li>`)}</ol>
    ${steps ? html`<p class="quiet">${steps}</p>` : null}
  <//>`;
}

function Rungs({ rungs }) {
  if (!rungs?.length) return null;
  return html`<${Section} id="rungs" title=${t("What was done, and why")}>
    <ol class="plain-list rungs">${rungs.map((one) => html`<li class=${one.chosen === false ? "quiet" : ""}>
      <p>${one.at_s ? html`<span class="num quiet"><${Time} at=${one.at_s} /></span> ` : null}<strong>${rungName(one.rung)}</strong>
        ${one.chosen === false ? ` · ${t("not chosen")}` : one.shadow ? ` · ${t("not carried out (shadow mode)")}` : ""}</p>
      <p>${one.why}</p></li>`)}</ol>
  <//>`;
}

function Also({ also }) {
  const rows = Object.entries(also ?? {}).sort((a, b) => b[1] - a[1]);
  if (!rows.length) return null;
  return html`<${Section} id="also" title=${t("Also considered")}><dl class="facts tight">${rows.map(([name, part]) => html`<div><dt>${name}</dt><dd class="num">${percent(part, 0)}</dd></div>`)}</dl><//>`;
}

function Stacks({ stacks }) {
  if (!stacks?.length) return null;
  const sorted = [...stacks].sort((a, b) => a.ranks.length - b.ranks.length);
  return html`<${Section} id="stacks" title=${t("Stacks")} aside=${tn(stacks.length, "{n} group", "{n} different groups")}>
    ${sorted.map((group, i) => html`<details open=${i === 0}><summary>${ranks(group.ranks)} <span class="quiet">${group.ranks.length > 1 ? `(${count(group.ranks.length)}) ` : ""}${group.waits_in ? t("in {what}", { what: group.waits_in }) : ""}</span></summary>
      <ol class="mono frames">${group.frames.map((frame) => html`<li><${Ansi} line=${frame} most=${300} /></li>`)}</ol></details>`)}
  <//>`;
}

function Kernel({ rows, job }) {
  const [all, set] = useState(false);
  if (!rows?.length) return null;
  return html`<${Section} id="kernel" title=${t("Kernel log")} aside=${tn(rows.length, "{n} line", "{n} lines")}>
    <${Evidence} rows=${all ? rows : rows.slice(0, KERNEL_FEW)} job=${job} />
    ${rows.length > KERNEL_FEW ? html`<button type="button" class="plain" onClick=${() => set(!all)}>${all ? t("less") : tn(rows.length - KERNEL_FEW, "{n} more line", "{n} more lines")}</button>` : null}<//>`;
}

export function Checks({ rows, id = "checks" }) {
  if (!rows?.length) return null;
  const columns = [[t("node"), ""], [t("check"), ""], [t("result"), ""], [t("finding"), "wide"]];
  return html`<${Section} id=${id} title=${t("Checks")}><${Table} label=${t("Checks")} columns=${columns} rows=${rows.map((row) => [
    [row.node, row.device].filter(Boolean).join(" "), row.check, html`<${CheckMark} status=${row.status} />`, html`${row.text}${row.advice ? html` <span class="quiet">${row.advice}</span>` : null}`])} /><//>`;
}

export function IncidentLinks({ id, title, rows, empty }) {
  return html`<${Section} id=${id} title=${title} aside=${rows?.length ? String(rows.length) : ""}>${rows?.length
    ? html`<ul class="plain-list">${rows.map((row) => html`<li><p class="quiet"><span class="num"><${Time} at=${row.at_s} /></span> ${row.job}</p>
        <p><${Link} to=${incidentPath(row.job, row.incident)}>${say(row.sentence.text)}<//></p></li>`)}</ul>`
    : html`<${Empty}>${empty}<//>`}<//>`;
}

function Corrections({ rows }) {
  if (!rows?.length) return null;
  return html`<${Section} id="corrections" title=${t("Corrections of the verdict")}><ul class="plain-list">${rows.map((row) => html`<li>
    <p><strong>${row.category}</strong> <span class="quiet">${row.by}, <${Time} at=${row.at_s} /></span></p><p>${row.text}</p></li>`)}</ul><//>`;
}

function actionsOf(doc, after) {
  const path = incidentPath(doc.job, doc.row.number), nodes = [...new Set((doc.row.who ?? []).map((one) => one.node).filter(Boolean))];
  const categories = [doc.row.category, ...Object.keys(doc.also ?? {})].filter(Boolean);
  return {
    wrong: { title: t("Is the verdict wrong?"), verb: t("Send the correction"), path: path + "/correct", after, body: ({ category, text }) => ({ category, text }),
      says: t("Both verdicts are kept, yours with your name. The answer contains a test line for a new signature."),
      fields: [{ name: "category", label: t("The right category, for example gpu_oom"), required: true, options: categories, pattern: "[a-z0-9_\\-]+" }, { name: "text", label: t("How do you know? (may be empty)"), long: true }] },
    seen: { title: t("Acknowledge this incident?"), verb: t("Acknowledge"), path: path + "/acknowledge", after, body: ({ text }) => ({ text }),
      says: t("Your name is shown with the incident, and no more reminders of it are sent."), fields: [{ name: "text", label: t("A note (may be empty)"), long: true }] },
    restart: { title: t("Restart {name}?", { name: doc.job }), verb: t("Restart the job"), path: jobPath(doc.job) + "/restart", after, body: ({ reason }) => ({ reason }),
      says: t("All ranks are stopped and started again in the same workers from the last checkpoint. It counts as a restart."), fields: [{ name: "reason", label: t("Reason (recorded in the journal)"), long: true }] },
    isolate: nodes.map((node) => ({ title: t("Isolate {node}?", { node }), verb: t("Isolate {node}", { node }), path: nodePath(node) + "/isolate", after, body: ({ reason }) => ({ reason }),
      says: t("No job of this state folder is placed on {node} until it is released. What runs there continues.", { node }),
      fields: [{ name: "reason", label: t("Reason (recorded in the node book)"), required: true, value: say(doc.title) }] })),
  };
}

function Actions({ doc, after }) {
  if (saved && !hasDocument(incidentPath(doc.job, doc.row.number) + "/markdown")) return null;
  const path = incidentPath(doc.job, doc.row.number), actions = actionsOf(doc, after);
  return html`<${Section} id="actions" title=${t("Actions")}><div class="buttons">
    ${hasDocument(path + "/markdown") ? html`<${CopyButton} label=${t("Copy as Markdown")} text=${() => getText(path + "/markdown", { lang: language() })} />` : null}
    ${doc.has_bundle && !saved ? html`<a class="button" data-plain download href=${root + "/api/v1" + path + "/bundle"}>${t("Download the bundle")}</a>` : null}
    ${doc.row.acknowledged_by ? null : html`<${ActionButton} action=${actions.seen} />`}
    <${ActionButton} action=${actions.restart} />
    ${actions.isolate.map((action) => html`<${ActionButton} action=${action} />`)}
    <${ActionButton} action=${actions.wrong} label=${t("Wrong verdict?")} />
  </div><//>`;
}

function EvidenceSection({ doc }) {
  const rows = doc.evidence ?? [], total = Math.max(doc.evidence_total ?? 0, rows.length);
  return html`<${Section} id="evidence" title=${t("Evidence")} aside=${total > rows.length ? t("{n} of {total}", { n: rows.length, total: count(total) }) : rows.length ? String(rows.length) : ""}>
    ${rows.length ? html`<${Evidence} rows=${rows} job=${doc.job} />` : html`<${Empty}>${t("No evidence was found besides the end itself. Log lines, exits, stacks and kernel messages appear here.")}<//>`}<//>`;
}

export function IncidentView({ doc, trouble, after }) {
  const { sentence } = doc.row;
  return html`<article class="incident-view">
    <div class="head">
      <p class="path"><${Link} to=${jobPath(doc.job)}>‹ ${doc.job}<//> <span>${t("incident {n}", { n: doc.row.number })}</span> <span class="condition"><${ToneMark} tone=${sentence.tone ?? "neutral"} /></span></p>
      <${Title} class=${classes("headline", sentence.to_do && sentence.tone)}>${say(sentence.text)}<//>
    </div>
    ${trouble}
    <div class="columns">
      <div class="main-column">
        <section aria-label=${t("Verdict")}><${Facts} label=${t("Verdict")} items=${verdict(doc)} />
          ${doc.explanation ? html`<p class="explanation">${say(doc.explanation)}</p>` : null}
        </section>
        <${EvidenceSection} doc=${doc} />
        ${doc.waits?.length ? html`<${Section} id="waits" title=${t("Who waits for whom")}><${WaitGraph} edges=${doc.waits} /><//>` : null}
        <${Stacks} stacks=${doc.stacks} />
        <${Kernel} rows=${doc.kernel} job=${doc.job} />
        <${Checks} rows=${doc.checks} />
      </div>
      <div class="side-column">
        <${Parts} doc=${doc} />
        <${Rungs} rungs=${doc.rungs} />
        <${Also} also=${doc.also} />
        ${saved && !doc.similar?.length ? null : html`<${IncidentLinks} id="similar" title=${t("Similar incidents")} rows=${doc.similar} empty=${t("No other incident of this cause is known here.")} />`}
        <${Corrections} rows=${doc.corrections} />
        <${Actions} doc=${doc} after=${after} />
      </div>
    </div>
  </article>`;
}

export function IncidentPage({ args: [id, number] }) {
  const { doc, error, reload } = useDocument(incidentPath(id, number)), again = useThrottled(reload, 2);
  useLive({ job: id }, (kind) => (kind === "incident" || kind === "job" || kind === "reset") && again());
  if (!doc) return html`<${Pending} what=${t("incident {n}", { n: number })} error=${error} retry=${reload} />`;
  return html`<${IncidentView} doc=${doc} after=${reload} trouble=${html`<${Trouble} error=${error} retry=${reload} />`} />`;
}

