// Shows one node: whether it may be used and why, its numbers, its devices by serial number, and what happened on it.

import { html } from "../ui.js";
import { t, tn } from "../language.js";
import { count, percent } from "../format.js";
import { change, incidentPath, jobPath, nodePath } from "../route.js";
import { useDocument } from "../load.js";
import { Empty, Facts, Link, Pending, Section, Table, Time, Title, Trouble, Waiting } from "../parts/pieces.js";
import { ActionButton } from "../parts/actions.js";
import { Checks, IncidentLinks } from "./incident.js";
import { NodeState } from "./nodes.js";

function headline(row) {
  if (row.isolated) return t("{node} is isolated: {why}", { node: row.node, why: row.isolated_for || t("no reason was given") });
  if (row.lemon) return t("{node} is a lemon: it fails more often than its peers.", { node: row.node });
  return row.incidents ? tn(row.incidents, "{node} is in order; {n} incident is on record.", "{node} is in order; {n} incidents are on record.", { node: row.node }) : t("{node} is in order; nothing is on record against it.", { node: row.node });
}

function Actions({ row, after }) {
  const path = nodePath(row.node), field = { name: "reason", label: t("Reason (recorded in the node book)"), required: true }, body = ({ reason }) => ({ reason });
  const isolate = { title: t("Isolate {node}?", { node: row.node }), verb: t("Isolate"), path: path + "/isolate", fields: [field], body, after,
    says: t("No job of this state folder is placed on {node} until it is released. What runs there continues.", { node: row.node }) };
  const release = { title: t("Release {node}?", { node: row.node }), verb: t("Release"), path: path + "/release", fields: [field], body, after,
    says: t("Jobs can be placed on {node} again, including those that wait for a node now.", { node: row.node }) };
  return html`<div class="buttons"><${ActionButton} action=${row.isolated ? release : isolate} /></div>`;
}

function Passport({ serial, first }) {
  const { doc, error, reload } = useDocument(serial ? "/devices/" + encodeURIComponent(serial) : null);
  if (!serial) return null;
  const device = doc ?? first;
  if (!device) return error ? html`<${Trouble} error=${error} retry=${reload} />` : html`<${Waiting} what=${serial} />`;
  return html`<div class="passport"><h3>${t("Passport of {serial}", { serial })}</h3><${Facts} label=${serial} items=${[[t("model"), device.model], [t("now"), [device.node, device.device].filter(Boolean).join(", ")]]} />
    <ol class="plain-list">${(device.nodes ?? []).map(([node, since]) => html`<li><span class="num quiet"><${Time} at=${since} exact /></span> <${Link} to=${nodePath(node)}>${node}<//></li>`)}</ol></div>`;
}

function Devices({ rows, serial }) {
  const columns = [[t("device"), ""], [t("model"), ""], [t("serial number"), ""], [t("here since"), "number"]];
  const toggle = (one) => change({ serial: one === serial ? null : one });
  return html`<${Section} id="devices" title=${t("Devices")} aside=${rows.length ? String(rows.length) : ""}>
    <${Table} label=${t("Devices")} columns=${columns} empty=${t("Devices appear here after a check of this node (holdfast check).")} rows=${rows.map((row) => [
      row.device || "", row.model || "", html`<button type="button" class="plain mono" aria-expanded=${row.serial === serial} onClick=${() => toggle(row.serial)}>${row.serial}</button>`, row.nodes?.[0] ? html`<${Time} at=${row.nodes[0][1]} />` : ""])} />
    <${Passport} serial=${serial} first=${rows.find((row) => row.serial === serial)} /><//>`;
}

function Book({ lines }) {
  if (!lines.length) return html`<${Empty}>${t("Incidents, checks, isolations and releases of this node appear here.")}<//>`;
  return html`<ol class="rows log">${lines.map((line) => html`<li class="row"><span class="when num"><${Time} at=${line.at_s} /></span><span class="kind quiet">${t(line.kind)}</span>
    <span class="text">${line.text} <span class="quiet">${[line.device, line.serial, line.by].filter(Boolean).join(" · ")}</span>
      ${line.job ? html` <${Link} class="quiet" to=${line.incident ? incidentPath(line.job, line.incident) : jobPath(line.job)}>${line.job}<//>` : null}</span></li>`)}</ol>`;
}

export function NodeView({ doc, serial, trouble, after }) {
  const { row } = doc;
  return html`<article><div class="head">
      <p class="path"><${Link} to="/nodes">‹ ${t("Nodes")}<//> <strong class="break">${row.node}</strong> <span class="condition"><${NodeState} row=${row} /></span></p>
      <${Title} class="headline">${headline(row)}<//></div>
    ${trouble}
    <div class="columns"><div class="main-column">
        <${IncidentLinks} id="incidents" title=${t("Incidents")} rows=${doc.incidents} empty=${t("No incident names this node.")} />
        <${Section} id="book" title=${t("Node book")}><${Book} lines=${doc.lines ?? []} /><//>
        <${Devices} rows=${doc.devices ?? []} serial=${serial} />
        <${Checks} rows=${doc.checks} />
      </div><div class="side-column">
        <${Section} id="numbers" title=${t("Numbers")}><${Facts} label=${t("Numbers")} items=${[
          [t("isolated"), row.isolated ? html`<${Time} at=${row.isolated_at_s} exact />` : null],
          [t("lemon score"), row.lemon_score === undefined ? null : percent(row.lemon_score, 0), row.lemon ? t("a lemon") : t("not a lemon")],
          ...Object.entries(row.numbers ?? {}).map(([name, value]) => [t(name), Number.isInteger(value) ? count(value) : value.toPrecision(3)]),
          [t("jobs"), doc.jobs?.length ? doc.jobs.map((id, i) => html`${i ? ", " : ""}<${Link} to=${jobPath(id)}>${id}<//>`) : null],
        ]} /><${Actions} row=${row} after=${after} /><//>
      </div></div></article>`;
}

export function NodePage({ args: [name], query }) {
  const { doc, error, reload } = useDocument(nodePath(name));
  if (!doc) return html`<${Pending} what=${name} error=${error} retry=${reload} />`;
  return html`<${NodeView} doc=${doc} serial=${query.get("serial")} after=${reload} trouble=${html`<${Trouble} error=${error} retry=${reload} />`} />`;
}
