// Shows the node book: which nodes are isolated, which are lemons and by what numbers, what happened on each last.

import { html } from "../ui.js";
import { t, tn } from "../language.js";
import { count, percent } from "../format.js";
import { jobPath, nodePath } from "../route.js";
import { useDocument } from "../load.js";
import { useLive, useThrottled } from "../live.js";
import { Empty, Link, Pending, Time, Title, Trouble } from "../parts/pieces.js";
import { Shape } from "../parts/marks.js";
import { useKept, useSearch } from "../parts/search.js";

export function NodeState({ row }) {
  if (row.isolated) return html`<span class="state trouble"><${Shape} name="square" tone="trouble" /> ${t("isolated")}</span>`;
  if (row.lemon) return html`<span class="state trouble"><${Shape} name="triangle" tone="trouble" /> ${t("lemon")}</span>`;
  return html`<span class="state neutral"><${Shape} name="ring" tone="neutral" /> ${row.jobs?.length ? t("in use") : t("free")}</span>`;
}

export function numbersText(numbers) {
  return Object.entries(numbers ?? {}).map(([name, value]) => `${t(name)} ${Number.isInteger(value) ? count(value) : value.toPrecision(3)}`).join(" · ");
}

function headline(rows, total) {
  const isolated = rows.filter((row) => row.isolated), lemons = rows.filter((row) => row.lemon && !row.isolated);
  if (!rows.length) return t("No node is known yet.");
  if (!isolated.length && !lemons.length) return tn(total, "The one node is in order.", "All {n} nodes are in order.");
  const named = (some) => some.slice(0, 3).map((row) => row.node).join(", ") + (some.length > 3 ? ", …" : "");
  return [
    isolated.length ? tn(isolated.length, "{n} of {total} nodes is isolated: {names}", "{n} of {total} nodes are isolated: {names}", { total: count(total), names: named(isolated) }) : "",
    lemons.length ? tn(lemons.length, "{n} is a lemon: {names}", "{n} are lemons: {names}", { names: named(lemons) }) : "",
  ].filter(Boolean).join("; ") + t(".");
}

function Row({ row }) {
  return html`<div role="row" class="row node">
    <span role="cell" class="name"><${Link} to=${nodePath(row.node)} data-row="">${row.node}<//></span>
    <span role="cell" class="condition"><${NodeState} row=${row} /></span>
    <span role="cell" class="score num">${row.lemon_score === undefined ? "" : html`<span class="word quiet">${t("lemon score")} </span>${percent(row.lemon_score, 0)}`}</span>
    <span role="cell" class="good num">${count(row.incidents ?? 0)}<span class="word quiet"> ${tn(row.incidents ?? 0, "incident", "incidents")}</span></span>
    <span role="cell" class="users">${(row.jobs ?? []).slice(0, 3).map((id, i) => html`${i ? ", " : ""}<${Link} to=${jobPath(id)}>${id}<//>`)}</span>
    <span role="cell" class="sentence">${row.isolated_for ? html`${row.isolated_for} <span class="quiet num"><${Time} at=${row.isolated_at_s} /></span>` : row.last ? html`${row.last} <span class="quiet num"><${Time} at=${row.last_at_s} /></span>` : ""}
      ${row.lemon_score > 0 && row.numbers ? html` <span class="quiet">${numbersText(row.numbers)}</span>` : null}</span>
  </div>`;
}

export function NodesView({ doc }) {
  const head = [["name", t("node")], ["condition", t("state")], ["score num", t("lemon score")], ["good num", t("incidents")], ["users", t("jobs")], ["sentence", t("last event")]];
  return html`<div role="table" class="rows nodes" aria-label=${t("Nodes")}>
    <div role="rowgroup"><div role="row" class="row head quiet">${head.map(([kind, name]) => html`<span role="columnheader" class=${kind}>${name}</span>`)}</div></div>
    <div role="rowgroup">${doc.nodes.map((row) => html`<${Row} key=${row.node} row=${row} />`)}</div>
  </div>`;
}

function Search({ search }) {
  const { text, type } = useSearch(search);
  return html`<form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
    <label class="grow"><span class="unseen">${t("Search nodes")}</span><input id="search" type="search" autocomplete="off" value=${text} placeholder=${t("name of a node, or a serial number")} onInput=${(event) => type(event.target.value)} /></label>
  </form>`;
}

export function NodesPage({ query }) {
  const search = query.get("search") ?? "", { doc, error, reload } = useDocument("/nodes", { search, cursor: query.get("cursor"), limit: 200 });
  const again = useThrottled(reload, 10), field = useKept(doc) ? html`<${Search} search=${search} />` : null;
  useLive({}, (kind) => (kind === "incident" || kind === "reset") && again());
  if (!doc) return html`<${Pending} what=${t("the list of nodes")} error=${error} retry=${reload} />${field}`;
  return html`<${Title} class="headline">${headline(doc.nodes, doc.total || doc.nodes.length)}<//>${field}
    <${Trouble} error=${error} retry=${reload} />
    ${doc.nodes.length ? html`<${NodesView} doc=${doc} />` : html`<${Empty}>${search ? t("No node fits {search}.", { search }) : t("Nodes appear here when a job has run on them, or after")} ${search ? null : html`<code>holdfast check --book</code>`}<//>`}
    <p class="pages quiet">${query.get("cursor") ? html`<${Link} to="/nodes" query=${{ search }}>${t("first page")}<//> · ` : null}${doc.next ? html`<${Link} to="/nodes" query=${{ search, cursor: doc.next }}>${t("more ›")}<//>` : null}</p>`;
}
