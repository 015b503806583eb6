// Shows the last lines of a job's output; of a live job new ones are offered, or follow when that is wished.

import { html, useEffect, useMemo, useRef, useState, useStore } from "../ui.js";
import { t, tn } from "../language.js";
import { saved } from "../boot.js";
import { change, jobPath } from "../route.js";
import { useDocument } from "../load.js";
import { Empty, Trouble, Waiting } from "./pieces.js";
import { lineKey, Lines } from "./lines.js";

const SHOWN = 40;
export const KEPT = 400;

// Lines that came after the document, each once.
export function joined(lines, more) {
  const known = new Set(lines.map(lineKey));
  return [...lines, ...more.filter((line) => !known.has(lineKey(line)))];
}

// `incoming`: a store of the lines that arrived since the page was opened, of one rank. `newer`: whether there may be more, of all.
export function Tail({ job, doc, rank, incoming, newer }) {
  const ranks = (doc.ranks ?? []).map((row) => row.rank);
  const { doc: page, error, reload } = useDocument(jobPath(job) + "/output", { rank, limit: SHOWN });
  const more = useStore(incoming), [follow, setFollow] = useState(false), [shown, setShown] = useState(0);
  const box = useRef(null);
  const stale = useStore(newer);
  const again = () => {
    newer.set(false);
    reload();
  };
  useEffect(() => setShown(0), [incoming]);
  useEffect(() => {
    if (stale && follow) again();
  }, [stale, follow]);
  const lines = useMemo(() => joined(page?.lines ?? [], more.slice(0, follow ? undefined : shown)).slice(-KEPT), [page, more, follow, shown]);
  const fresh = follow ? 0 : more.length - shown;
  useEffect(() => {
    if (box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [page, follow && more.length, shown]);
  if (!page) return error ? html`<${Trouble} error=${error} retry=${reload} />` : html`<${Waiting} what=${t("the output")} />`;
  return html`<div class="tail">
    ${saved ? null : html`<p class="quiet tail-choice"><label>${t("of")} <select value=${rank} onChange=${(event) => change({ rank: event.target.value }, true)}><option value="">${t("all ranks")}</option>
        ${ranks.map((one) => html`<option value=${one}>${t("rank {ranks}", { ranks: one })}</option>`)}</select></label>
      ${doc.row.ended_at_s ? null : html` <label class="check"><input type="checkbox" checked=${follow} onChange=${(event) => setFollow(event.target.checked)} /> ${t("follow")}</label>`}</p>`}
    ${lines.length ? html`<div class="scroll" ref=${box} tabindex="0" role="region" aria-label=${t("Last lines of the output")}><${Lines} lines=${lines} job=${job} several=${rank === ""} /></div>`
      : html`<${Empty}>${t("The output of the ranks appears here.")}<//>`}
    ${stale && !follow ? html`<p class="offer"><button type="button" onClick=${again}>${t("Show newer lines ↓")}</button></p>` : null}
    ${fresh > 0 ? html`<p class="offer"><button type="button" onClick=${() => setShown(more.length)}>${tn(fresh, "{n} new line ↓", "{n} new lines ↓")}</button></p>` : null}
  </div>`;
}
