// Shows all jobs: one row each, with its state, its step and the sentence of what happened last.

import { classes, html, useMemo, useState } from "../ui.js";
import { say, t, tn } from "../language.js";
import { count, duration, minute, percent, wholeMoment } from "../format.js";
import { saved } from "../boot.js";
import { change, jobPath } from "../route.js";
import { useDocument } from "../load.js";
import { useLive, useThrottled } from "../live.js";
import { Empty, Link, Pending, Title, Trouble } from "../parts/pieces.js";
import { Shape, StateMark, STATES } from "../parts/marks.js";
import { useKept, useSearch } from "../parts/search.js";
import { Spark } from "../parts/spark.js";

const SINCE = [["", "any time"], ["3600", "last hour"], ["86400", "last 24 hours"], ["604800", "last 7 days"]];
const ORDER = Object.keys(STATES);

// What the page's query asks of the API. "team:nlp" in the search is a label.
export function apiQuery(query, now_s = Date.now() / 1000) {
  const words = (query.get("search") ?? "").split(/\s+/).filter(Boolean), isLabel = (word) => /^[\w./-]+:[^/]/.test(word);
  const since = Number(query.get("since"));
  return {
    state: query.getAll("state"), category: query.get("category"), search: words.filter((word) => !isLabel(word)).join(" "),
    label: words.filter(isLabel), since_s: since ? Math.floor((now_s - since) / 60) * 60 : "", group: query.get("group") === "no" ? "" : "cause",
    cursor: query.get("cursor"), limit: 100,
  };
}

function Summary({ states, chosen }) {
  const shown = ORDER.filter((state) => states[state] || chosen.includes(state));
  if (!shown.length) return html`<${Title}>${t("No job yet.")}<//>`;
  return html`<${Title} class="states">${shown.map((state, i) => {
    const on = chosen.includes(state), [, tone, word] = STATES[state];
    return html`<span key=${state}>${i ? t(", ") : ""}<button type="button" class=${classes("plain", "filter", tone)} aria-pressed=${on}
      onClick=${() => change({ state: on ? chosen.filter((one) => one !== state) : [...chosen, state], cursor: null })}><span class="num">${count(states[state] ?? 0)}</span> ${t(word)}</button></span>`;
  })}<//>`;
}

function Filters({ query }) {
  const { text, type, write } = useSearch(query.get("search") ?? "");
  return html`<form class="filters" role="search" onSubmit=${(event) => {
    event.preventDefault();
    write(text, false);
  }}>
    <label class="grow"><span class="unseen">${t("Search jobs")}</span><input id="search" type="search" autocomplete="off" value=${text} placeholder=${t("name, node, cause, user, or label:value")} onInput=${(event) => type(event.target.value)} /></label>
    <label><span class="unseen">${t("When")}</span><select value=${query.get("since") ?? ""} onChange=${(event) => change({ since: event.target.value, cursor: null })}>
      ${SINCE.map(([value, name]) => html`<option value=${value}>${t(name)}</option>`)}</select></label>
    <label class="check"><input type="checkbox" checked=${query.get("group") !== "no"} onChange=${(event) => change({ group: event.target.checked ? null : "no", cursor: null })} /> ${t("group equal causes")}</label>
    ${query.get("category") ? html`<button type="button" onClick=${() => change({ category: null })}>${query.get("category")} ×</button>` : null}
  </form>`;
}

function stepText(row) {
  if (row.step === undefined || row.step === null) return "";
  return row.total_steps ? html`${count(row.step)}<span class="total"> / ${count(row.total_steps)}</span>` : count(row.step);
}

function Row({ row }) {
  const ended = row.ended_at_s ?? null;
  return html`<div role="row" class="row job">
    <span role="cell" class="name"><${Link} to=${jobPath(row.id)} data-row="" title=${row.name}>${row.name}<//>${row.source ? html` <span class="quiet">${row.source}</span>` : null}</span>
    <span role="cell" class="condition"><${StateMark} state=${row.state} /> <span class="quiet num when" title=${wholeMoment(ended ?? row.state_since_s)}>${minute(ended ?? row.state_since_s)}</span></span>
    <span role="cell" class="step num">${row.step === undefined || row.step === null ? "" : html`<span class="word quiet">${t("step")} </span>${stepText(row)}`}</span>
    <span role="cell" class="pace num">${row.step_s ? duration(row.step_s) : ""}</span>
    <span role="cell" class="sparks"><${Spark} values=${row.sparkline} /></span>
    <span role="cell" class="good num">${row.goodput === undefined || row.goodput === null ? "" : html`${percent(row.goodput)}<span class="word quiet"> ${t("goodput")}</span>`}</span>
    <span role="cell" class=${classes("sentence", row.sentence.to_do && (row.sentence.tone ?? "neutral"))}>${say(row.sentence.text)}</span>
  </div>`;
}

function Group({ group, rows, open, toggle }) {
  const missing = group.count - rows.length;
  return html`<div role="row" class="row group">
      <span role="cell" class="wide"><button type="button" class="plain" data-row="" aria-expanded=${open} onClick=${toggle}><span aria-hidden="true" class="turn">▸</span>
        ${" "}<${Shape} name="cross" tone=${group.sentence.tone ?? "neutral"} /> <strong>${tn(group.count, "{n} job ended of this cause", "{n} jobs ended of the same cause")}</strong></button>${t(": ")}
        ${" "}${say(group.sentence.text)} <span class="quiet num">${minute(group.since_s)} – ${minute(group.until_s)}</span></span>
    </div>
    ${open ? rows.map((row) => html`<${Row} key=${row.id} row=${row} />`) : null}
    ${open && missing > 0 ? html`<div role="row" class="row"><span role="cell" class="wide quiet">${tn(missing, "one more is on a later page", "{n} more are on later pages")}</span></div>` : null}`;
}

// Rows in the server's order; those of a group stand together, where the first of them would be.
export function arranged(jobs, groups) {
  const of = new Map();
  for (const group of groups ?? []) if (group.count > 1) for (const id of group.jobs) of.set(id, group);
  const found = [], placed = new Map();
  for (const row of jobs) {
    const group = of.get(row.id);
    if (!group) found.push({ row });
    else if (placed.has(group.cause)) placed.get(group.cause).rows.push(row);
    else {
      const entry = { group, rows: [row] };
      placed.set(group.cause, entry);
      found.push(entry);
    }
  }
  return found;
}

export function JobsView({ doc, open, toggle }) {
  const shown = useMemo(() => arranged(doc.jobs, doc.groups), [doc]);
  const head = [["name", t("job")], ["condition", t("state")], ["step num", t("step")], ["pace num", t("a step")], ["sparks", t("recent")], ["good num", t("goodput")], ["sentence", t("last event")]];
  return html`<div role="table" class="rows jobs" aria-label=${t("Jobs")}>
    <div role="rowgroup"><div role="row" class="row head quiet">${head.map(([kind, name]) => html`<span role="columnheader" class=${kind}>${name}</span>`)}</div></div>
    <div role="rowgroup">${shown.map((one) => (one.row ? html`<${Row} key=${one.row.id} row=${one.row} />`
      : html`<${Group} key=${"=" + one.group.cause} group=${one.group} rows=${one.rows} open=${open.has(one.group.cause)} toggle=${() => toggle(one.group.cause)} />`))}</div>
  </div>`;
}

function isFiltered(query) {
  return ["state", "category", "search", "since", "cursor"].some((name) => query.get(name));
}

function Nothing({ query }) {
  if (isFiltered(query)) return html`<${Empty}>${t("No job fits these filters.")} <${Link} to="/">${t("Show all")}<//><//>`;
  return html`<${Empty}>${t("Jobs appear here as soon as one is started with")} <code>holdfast run -- …</code><//>`;
}

// Rows that are read do not move: a known row changes in its place, new ones are offered.
function useRows(page) {
  const [changes, set] = useState({ rows: new Map(), news: new Set(), of: null });
  const mine = changes.of === page ? changes : { rows: new Map(), news: new Set(), of: page };
  const doc = useMemo(() => page && { ...page, jobs: page.jobs.map((row) => mine.rows.get(row.id) ?? row) }, [page, changes]);
  const onRow = (id, row) => set((old) => {
    const before = old.of === page ? old : { rows: new Map(), news: new Set(), of: page };
    if (!page || !row) return before;
    const next = { rows: new Map(before.rows), news: new Set(before.news), of: page };
    if (page.jobs.some((one) => one.id === id)) next.rows.set(id, row);
    else next.news.add(id);
    return next;
  });
  return { doc, news: mine.news.size, onRow };
}

export function JobsPage({ query }) {
  const asked = apiQuery(query), { doc: page, error, reload } = useDocument("/jobs", asked, !isFiltered(query));
  const { doc, news, onRow } = useRows(page);
  const again = useThrottled(reload, 5);
  useLive({}, (kind, data) => (kind === "job" ? onRow(data.id, data.row) : kind === "reset" ? again() : undefined));
  const open = new Set(query.getAll("open"));
  const toggle = (cause) => change({ open: open.has(cause) ? [...open].filter((one) => one !== cause) : [...open, cause] }, true);
  const filters = useKept(doc) && !saved ? html`<${Filters} query=${query} />` : null;
  if (!doc) return html`<${Pending} what=${t("the list of jobs")} error=${error} retry=${reload} />${filters}`;
  return html`<${Summary} states=${doc.states ?? {}} chosen=${query.getAll("state")} />${filters}
    <${Trouble} error=${error} retry=${reload} />
    ${news ? html`<p class="offer"><button type="button" onClick=${reload}>${tn(news, "{n} new job: show it", "{n} new jobs: show them")}</button></p>` : null}
    ${doc.jobs.length ? html`<${JobsView} doc=${doc} open=${open} toggle=${toggle} />` : html`<${Nothing} query=${query} />`}
    <p class="pages quiet">${doc.jobs.length ? tn(doc.total || doc.jobs.length, "{n} job", "{n} jobs") : null}
      ${query.get("cursor") ? html` · <${Link} to="/" query=${withoutCursor(query)}>${t("the newest")}<//>` : null}
      ${doc.next ? html` · <${Link} to="/" query=${withCursor(query, doc.next)}>${t("older ones ›")}<//>` : null}</p>`;
}

function withoutCursor(query) {
  const next = new URLSearchParams(query);
  next.delete("cursor");
  return next;
}

function withCursor(query, cursor) {
  const next = withoutCursor(query);
  next.set("cursor", cursor);
  return next;
}

