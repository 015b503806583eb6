// Lists what was seen: when, who, in words, and the line itself with a way to its place in the output.

import { classes, html } from "../ui.js";
import { say, t, tn } from "../language.js";
import { instant, wholeMoment, whoName } from "../format.js";
import { jobPath } from "../route.js";
import { Ansi } from "./ansi.js";
import { Link } from "./pieces.js";

function Around({ lines }) {
  return lines.map((line) => html`<div class="line quiet"><${Ansi} line=${line} /></div>`);
}

function kindWord(row) {
  return { kernel: t("kernel"), exit: t("exit"), stack: t("stack"), check: t("check"), sample: t("sample"), alert: t("alert"), metrics: t("device metrics") }[row.kind] ?? "";
}

function Row({ row, job }) {
  const who = [whoName(row.who), kindWord(row)].filter(Boolean).join(" ");
  const said = say(row.says);
  return html`<li id=${"e" + row.id} class=${classes("seen", row.first_error && "first")}>
    <div class="when num" title=${wholeMoment(row.at_s)}>${instant(row.at_s)}</div>
    <div class="who">${row.first_error ? html`<span class="first-word">${t("first error")}</span>` : null}${row.first_error && who ? " · " : ""}${who}
      ${row.count > 1 ? html` <span class="quiet">${tn(row.count, "once", "{n} times")}</span>` : null}</div>
    <div class="what">
      ${said ? html`<p>${said}</p>` : null}
      <div class="mono">
        ${row.before ? html`<${Around} lines=${row.before} />` : null}
        <div class="line"><${Ansi} line=${row.text} most=${2000} /></div>
        ${row.after ? html`<${Around} lines=${row.after} />` : null}
      </div>
      ${row.place ? html`<${Link} class="quiet" to=${jobPath(job) + "/output"} query=${{ file: row.place.file, offset: row.place.offset, at_s: row.place.offset === undefined ? row.at_s : null }}>${t("in the output: {place}", { place: placeName(row.place) })}<//>` : null}
    </div>
  </li>`;
}

export function placeName(place) {
  const line = place.line ?? null;
  return line === null ? place.file : `${place.file}:${line.toLocaleString("en-US")}`;
}

export function Evidence({ rows, job }) {
  return html`<ol class="evidence">${rows.map((row) => html`<${Row} key=${row.id} row=${row} job=${job} />`)}</ol>`;
}
