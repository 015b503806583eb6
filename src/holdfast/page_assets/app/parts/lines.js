// Shows lines of output: time and rank quietly beside the text. What is copied is what was written, byte for byte.

import { classes, html, useState } from "../ui.js";
import { t } from "../language.js";
import { bytes, instant, wholeMoment } from "../format.js";
import { address, jobPath } from "../route.js";
import { Ansi } from "./ansi.js";

const WHOLE_MAX = 200000;

export function lineKey(line) {
  return `${line.place.file}:${line.place.offset}`;
}

function Line({ line, job, several, target }) {
  const [whole, set] = useState(false), { place } = line, long = line.text.length > 4000;
  const to = address(jobPath(job) + "/output", { file: place.file, offset: place.offset });
  const who = place.rank === undefined || place.rank === null ? t("launcher") : String(place.rank);
  return html`<div class=${classes("out", line.first_error && "first", line.matched && "matched", target && "target")} data-key=${lineKey(line)}>
    <a class="when num quiet" href=${to} title=${`${wholeMoment(line.at_s)} ${place.file}, ${bytes(place.offset)}`}>${line.at_s ? instant(line.at_s) : "·"}</a>
    ${several ? html`<span class="rank num quiet" title=${t("rank {ranks}", { ranks: who })}>${who}</span>` : null}
    <span class="text mono">${line.first_error ? html`<span class="first-word">${t("first error")}</span> ` : null}<${Ansi} line=${line.text} most=${whole ? WHOLE_MAX : undefined} />
      ${long ? html` <button type="button" class="plain" onClick=${() => set(!whole)}>${whole ? t("less") : t("all {n} characters", { n: line.text.length.toLocaleString("en-US") })}</button>` : null}
      ${line.cut_bytes ? html` <span class="quiet note">${t("{size} left out", { size: bytes(line.cut_bytes) })}</span>` : null}</span>
  </div>`;
}

// The lines that the selection covers, as they were written; part of a line: what was selected of it.
export function onCopy(event, lines) {
  const selection = getSelection(), known = new Map(lines.map((line) => [lineKey(line), line]));
  if (!selection.rangeCount || selection.isCollapsed) return;
  const range = selection.getRangeAt(0), covered = [];
  for (const element of event.currentTarget.querySelectorAll(".out")) if (range.intersectsNode(element)) covered.push(element);
  if (covered.length < 2) return; // within one line the browser copies what is marked
  const text = covered.map((element, i) => {
    const edge = i === 0 ? "start" : i === covered.length - 1 ? "end" : "";
    const line = known.get(element.dataset.key);
    if (!edge || !line) return line?.text ?? "";
    const part = range.cloneRange(), body = element.querySelector(".text");
    if (edge === "start") part.setEndAfter(body.lastChild ?? body);
    else part.setStartBefore(body.firstChild ?? body);
    const whole = document.createRange();
    whole.selectNodeContents(body);
    return part.toString().trim() === whole.toString().trim() ? line.text : part.toString();
  }).join("\n");
  event.clipboardData.setData("text/plain", text);
  event.preventDefault();
}

export function Lines({ lines, job, several, target }) {
  return html`<div class="lines" onCopy=${(event) => onCopy(event, lines)}>${lines.map((line) => html`<${Line} key=${lineKey(line)} line=${line} job=${job} several=${several} target=${target === lineKey(line)} />`)}</div>`;
}
