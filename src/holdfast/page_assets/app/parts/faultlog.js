// Lists the fault-tolerance log, the newest line first; kinds can be left out.

import { html, useState } from "../ui.js";
import { t, tn } from "../language.js";
import { wholeMoment, moment } from "../format.js";
import { incidentPath } from "../route.js";
import { Empty, Link } from "./pieces.js";

const FEW = 12;

export function FaultLog({ lines, job }) {
  const [kind, setKind] = useState(""), [all, setAll] = useState(false);
  if (!lines.length) return html`<${Empty}>${t("Starts, findings, verdicts, actions and requests appear here, one line each.")}<//>`;
  const kinds = [...new Set(lines.map((line) => line.kind))];
  const fit = lines.filter((line) => !kind || line.kind === kind).reverse(), shown = all ? fit : fit.slice(0, FEW);
  return html`<p class="quiet"><label>${t("show")} <select value=${kind} onChange=${(event) => setKind(event.target.value)}>
      <option value="">${t("all kinds")}</option>${kinds.map((name) => html`<option value=${name}>${t(name)}</option>`)}</select></label></p>
    <ol class="rows log">${shown.map((line) => html`<li key=${line.seq} class="row">
      <span class="when num" title=${wholeMoment(line.at_s)}>${moment(line.at_s)}</span>
      <span class="kind quiet">${t(line.kind)}</span>
      <span class="text">${line.text}${line.incident ? html` <${Link} class="quiet" to=${incidentPath(job, line.incident)}>${t("incident {n}", { n: line.incident })}<//>` : null}</span>
    </li>`)}</ol>
    ${fit.length > FEW ? html`<button type="button" class="plain" onClick=${() => setAll(!all)}>${all ? t("less") : tn(fit.length - FEW, "{n} more line", "{n} more lines")}</button>` : null}`;
}
