// Draws a job's life on one line: attempts as bars, what lies between them as gaps, incidents as marks that lead to them.

import { classes, clock, html, useStore } from "../ui.js";
import { t, say } from "../language.js";
import { moment, span, wholeMoment } from "../format.js";
import { incidentPath } from "../route.js";
import { Shape } from "./marks.js";
import { Link, Table, Time } from "./pieces.js";

const TONE_SHAPES = { neutral: "ring", trouble: "triangle", lost: "cross", recovered: "check" };
const PAUSES = new Set(["checkpoint", "evaluation", "pause"]);

function steps(attempt) {
  if (attempt.first_step === undefined || attempt.first_step === null) return t("no step");
  return `${attempt.first_step.toLocaleString("en-US")}–${(attempt.last_step ?? attempt.first_step).toLocaleString("en-US")}`;
}

function Attempts({ doc, end }) {
  const rows = [...(doc.attempts ?? [])].reverse().map((attempt) => [
    String(attempt.number),
    html`<${Time} at=${attempt.started_at_s} exact />`,
    span((attempt.ended_at_s ?? end) - attempt.started_at_s),
    steps(attempt),
    (attempt.nodes ?? []).join(", "),
  ]);
  const columns = [[t("attempt"), "number"], [t("started"), ""], [t("ran for"), "number"], [t("steps"), ""], [t("nodes"), "wide"]];
  return html`<details><summary>${t("attempts as a table")}</summary><${Table} label=${t("Attempts")} columns=${columns} rows=${rows} /></details>`;
}

export function Timeline({ doc, marks }) {
  const now = useStore(clock), attempts = doc.attempts ?? [], incidents = doc.incidents ?? [];
  const start = Math.min(doc.row.submitted_at_s ?? Infinity, attempts[0]?.started_at_s ?? Infinity);
  const end = doc.row.ended_at_s ?? Math.max(now, doc.row.seen_at_s ?? 0);
  if (!Number.isFinite(start) || end <= start) return null;
  const at = (moment_s) => Math.min(100, Math.max(0, (100 * (moment_s - start)) / (end - start)));
  const bar = (from, to) => ({ left: at(from) + "%", width: `max(2px, ${at(to) - at(from)}%)` });
  return html`<div class="timeline">
    <div class="strip">
      ${attempts.map((one) => html`<span class="attempt" style=${bar(one.started_at_s, one.ended_at_s ?? end)}
        title=${`${t("attempt")} ${one.number}: ${wholeMoment(one.started_at_s)}, ${steps(one)}`} />`)}
      ${(marks ?? []).filter((mark) => PAUSES.has(mark.kind)).map((mark) => html`<span class="pause" style=${bar(mark.at_s, mark.until_s ?? mark.at_s)} title=${mark.text} />`)}
      ${incidents.map((one) => html`<${Link} key=${one.number} class=${classes("spot", one.sentence.tone)} to=${incidentPath(doc.row.id, one.number)}
        style=${{ left: at(one.found_at_s) + "%" }} title=${say(one.sentence.text)}>
          <${Shape} name=${TONE_SHAPES[one.sentence.tone] ?? "ring"} tone=${one.sentence.tone ?? "neutral"} /><span class="unseen">${t("incident {n}", { n: one.number })}</span><//>`)}
    </div>
    <div class="ends quiet num"><span>${moment(start, now)}</span><span>${doc.row.ended_at_s ? moment(end, now) : t("now")}</span></div>
    <${Attempts} doc=${doc} end=${end} />
  </div>`;
}
