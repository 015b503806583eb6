// Shows the training's output: pages of lines by cursor, as many as fit around what is read, however large the files are.
// A place in the address is a file and an offset in bytes, or a second; ranks and a pattern narrow what is shown.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../ui.js";
import { t, tn } from "../language.js";
import { bytes, moment } from "../format.js";
import { saved } from "../boot.js";
import { change, incidentPath, jobPath, queryText } from "../route.js";
import { get, useDocument } from "../load.js";
import { useLive } from "../live.js";
import { Empty, Link, Title, Trouble, Waiting } from "../parts/pieces.js";
import { lineKey, Lines } from "../parts/lines.js";

const PAGE = 200, PAGES_MAX = 8, NEAR = 800, KEPT = 2000;
const AHEAD_S = 3600; // how far the clock of a node may be ahead, or the document of the job behind
const PLACE = ["file", "offset", "at_s"];

// What is asked of the API, from the page's own query.
function asked(query) {
  const found = { limit: PAGE };
  for (const name of ["worker", "attempt", "pattern", ...PLACE]) if (query.get(name)) found[name] = query.get(name);
  if (query.get("offset")) [found.line, found.offset] = [found.offset, null]; // so the API names it
  if (query.get("rank")) found.rank = numbers(query.get("rank"));
  return found;
}

// "0,3-5" is [0, 3, 4, 5].
export function numbers(text) {
  const found = [];
  for (const part of text.split(/[,\s]+/).filter(Boolean)) {
    const [low, high] = part.split(/[-–]/).map(Number);
    for (let rank = low; rank <= (high ?? low) && found.length < 64; rank++) if (Number.isInteger(rank)) found.push(rank);
  }
  return found;
}

// The moment of "03:12:07", "2026-11-24 03:12:07", or seconds since the epoch. A time without a date is the one nearest to the
// lines that are shown, which may be on the day before or after theirs; never one after `end_s`, the end of the output.
export function secondOf(text, near_s, end_s) {
  const plain = text.trim(), whole = /^(?:(\d{4})-(\d\d?)-(\d\d?)[ T]+)?(\d\d?):(\d\d)(?::(\d\d(?:\.\d+)?))?$/.exec(plain);
  if (/^\d{9,}(\.\d+)?$/.test(plain)) return Number(plain);
  if (!whole) return null;
  const day = new Date(near_s * 1000), [, year, month, date, hours, minutes, seconds] = whole;
  const at = (days) => {
    const one = new Date(day);
    if (year) one.setFullYear(Number(year), Number(month) - 1, Number(date));
    else one.setDate(one.getDate() + days);
    one.setHours(Number(hours), Number(minutes), 0, 0);
    return one.getTime() / 1000 + Number(seconds ?? 0);
  };
  if (year) return at(0);
  const three = [at(-1), at(0), at(1)], written = three.filter((moment_s) => moment_s <= end_s + AHEAD_S);
  const nearest = (best, moment_s) => (Math.abs(moment_s - near_s) < Math.abs(best - near_s) ? moment_s : best);
  return (written.length ? written : three).reduce(nearest);
}

function useFirstError(id, doc) {
  const last = doc?.incidents?.[doc.incidents.length - 1];
  const { doc: incident } = useDocument(last ? incidentPath(id, last.number) : null);
  const placed = (incident?.evidence ?? []).filter((row) => row.place);
  return (placed.find((row) => row.first_error) ?? placed[0])?.place;
}

// Its fields hold what the reader types: the address fills them once, and no new line or document changes them.
function Bar({ query, id, doc, near_s, end_s }) {
  const [trouble, set] = useState(""), first = useFirstError(id, doc);
  const none = Object.fromEntries(PLACE.map((name) => [name, null]));
  const send = (event) => {
    event.preventDefault();
    const data = new FormData(event.target), time = data.get("time").trim(), at_s = time ? secondOf(time, near_s, end_s) : null;
    if (time && at_s === null) return set(t("{time} is no time: write 03:12:07, or 2026-11-24 03:12:07.", { time }));
    set("");
    return change({ ...none, rank: data.get("rank").trim(), pattern: data.get("pattern"), attempt: data.get("attempt"), at_s });
  };
  const attempts = (doc?.attempts ?? []).map((one) => one.number).reverse();
  return html`<form class="filters output-bar" role="search" onSubmit=${send} key=${String(query)}>
    <label><span>${t("ranks")}</span><input name="rank" type="text" size="6" autocomplete="off" defaultValue=${query.get("rank") ?? ""} placeholder=${t("all")} /></label>
    <label><span>${t("time")}</span><input name="time" type="text" size="9" autocomplete="off" defaultValue=${query.get("at_s") ? moment(Number(query.get("at_s")), Number(query.get("at_s"))) : ""} placeholder="03:12:07" /></label>
    <label class="grow"><span>${t("pattern")}</span><input id="search" name="pattern" type="search" autocomplete="off" defaultValue=${query.get("pattern") ?? ""} placeholder=${t("regular expression")} /></label>
    ${attempts.length > 1 ? html`<label><span>${t("attempt")}</span><select name="attempt"><option value="">${t("all")}</option>${attempts.map((number) => html`<option value=${number} selected=${String(number) === query.get("attempt")}>${number}</option>`)}</select></label>` : html`<input type="hidden" name="attempt" value=${query.get("attempt") ?? ""} />`}
    <button type="submit">${t("Show")}</button>
    ${first ? html`<${Link} class="button" to=${jobPath(id) + "/output"} query=${{ file: first.file, offset: first.offset }}>${t("First error")}<//>` : null}
    <${Link} class="button" to=${jobPath(id) + "/output"} query=${{ rank: query.get("rank"), attempt: query.get("attempt") }}>${t("End")}<//>
    ${trouble ? html`<p class="lost" role="alert">${trouble}</p>` : null}
  </form>`;
}

// The pages around what is read. Those far away are dropped and read again when they are wanted.
function usePages(id, query) {
  const request = asked(query), key = jobPath(id) + queryText(request);
  const [state, set] = useState({ key: null, pages: [] });
  const busy = useRef(""), [round, setRound] = useState(0), path = jobPath(id) + "/output";
  const current = useRef(key);
  current.current = key;
  useEffect(() => {
    busy.current = "";
    get(path, request).then(
      (page) => current.current === key && set({ key, pages: [page] }),
      (error) => current.current === key && set({ key, pages: [], error }),
    );
  }, [key, round]);
  const more = async (direction) => {
    const { pages } = state, edge = direction === "before" ? pages[0] : pages[pages.length - 1], cursor = edge?.[direction];
    if (!cursor || busy.current || state.key !== key) return;
    busy.current = direction;
    try {
      const { file, line, at_s, ...rest } = request;
      const page = await get(path, { ...rest, file: request.rank ? null : file, cursor, direction });
      if (current.current !== key) return;
      set((old) => {
        const next = direction === "before" ? [page, ...old.pages] : [...old.pages, page];
        return { ...old, error: null, pages: direction === "before" ? next.slice(0, PAGES_MAX) : next.slice(-PAGES_MAX), moved: direction };
      });
    } catch (error) {
      set((old) => ({ ...old, error }));
    } finally {
      busy.current = "";
    }
  };
  return { ...(state.key === key ? state : { pages: [] }), loaded: state.key === key, more, again: () => setRound(round + 1) };
}

// Keeps the line that is read where it is, whatever is put before it or dropped.
function useAnchor(box, lines) {
  const anchor = useRef(null);
  useLayoutEffect(() => {
    const held = anchor.current && box.current?.querySelector(`[data-key="${CSS.escape(anchor.current.key)}"]`);
    if (held) box.current.scrollTop += held.getBoundingClientRect().top - box.current.getBoundingClientRect().top - anchor.current.top;
  }, [lines]);
  return () => {
    const top = box.current.getBoundingClientRect().top;
    for (const element of box.current.querySelectorAll(".out")) {
      const area = element.getBoundingClientRect();
      if (area.bottom > top + 4) {
        anchor.current = { key: element.dataset.key, top: area.top - top };
        return element.dataset.key;
      }
    }
    return null;
  };
}

function targetOf(query, lines) {
  const file = query.get("file"), offset = query.get("offset");
  const found = lines.find((one) => one.place.file === file && String(one.place.offset) === offset);
  if (found) return lineKey(found);
  const at_s = Number(query.get("at_s"));
  if (!at_s) return null;
  const after = lines.find((one) => one.at_s !== undefined && one.at_s >= at_s);
  return after ? lineKey(after) : null;
}

function Progress({ pages, pattern, more }) {
  const last = pages[pages.length - 1];
  if (!last || !pattern) return null;
  const found = pages.reduce((sum, page) => sum + page.lines.length, 0);
  const done = !last.after;
  return html`<p class="quiet" role="status">${tn(found, "{n} line fits.", "{n} lines fit.")} ${t("Searched {done} of {all}.", { done: bytes(last.scanned_bytes ?? 0), all: bytes(last.size_bytes ?? 0) })}
    ${done ? null : html` <button type="button" class="plain" onClick=${() => more("after")}>${t("search on")}</button>`}</p>`;
}

function LineBox({ id, query, pages, loaded, more, again, several, live }) {
  const box = useRef(null), [fresh, setFresh] = useState([]), [shown, setShown] = useState(0), [stale, setStale] = useState(false);
  const ranks = numbers(query.get("rank") ?? "");
  const last = pages[pages.length - 1], atEnd = last && !last.after && !query.get("pattern");
  useEffect(() => {
    setFresh([]);
    setShown(0);
    setStale(false);
  }, [String(query), pages]);
  // New lines of the ranks that are shown, or of all, come on one time axis.
  const wanted = { job: id, rank: ranks.length ? ranks : null, worker: query.get("worker"), attempt: query.get("attempt"), output: ranks.length ? null : "true" };
  useLive(live && atEnd ? wanted : null, (kind, data) => {
    if (kind === "output") setFresh((old) => [...old, data.line].slice(-KEPT));
    else if (kind === "reset") setStale(true);
  });
  const lines = useMemo(() => {
    const known = new Set(), all = [...pages.flatMap((page) => page.lines), ...(atEnd ? fresh.slice(0, shown) : [])];
    return all.filter((line) => !known.has(lineKey(line)) && known.add(lineKey(line)));
  }, [pages, shown, atEnd]);
  const hold = useAnchor(box, lines), target = useMemo(() => targetOf(query, lines), [lines, String(query)]);
  const isPlaced = PLACE.some((name) => query.get(name)) || query.get("pattern");
  useLayoutEffect(() => {
    if (!loaded || !box.current) return;
    const element = target && box.current.querySelector(`[data-key="${CSS.escape(target)}"]`);
    if (element) box.current.scrollTop = element.offsetTop - box.current.clientHeight / 3;
    else box.current.scrollTop = isPlaced ? 0 : box.current.scrollHeight;
    hold();
  }, [loaded, String(query)]);
  useLayoutEffect(() => {
    if (shown) box.current.scrollTop = box.current.scrollHeight;
  }, [shown]);
  const fill = () => {
    const { scrollTop, scrollHeight, clientHeight } = box.current;
    if (scrollTop < NEAR) more("before");
    else if (scrollHeight - scrollTop - clientHeight < NEAR) more("after");
  };
  const onScroll = () => {
    hold();
    fill();
  };
  useEffect(() => {
    if (loaded && !query.get("pattern")) fill(); // what was scrolled while a page was on its way
  }, [pages]);
  const waiting = atEnd ? fresh.length - shown : 0;
  return html`${waiting > 0 ? html`<p class="offer"><button type="button" onClick=${() => setShown(fresh.length)}>${tn(waiting, "{n} new line ↓", "{n} new lines ↓")}</button></p>` : null}
    ${stale ? html`<p class="offer"><button type="button" onClick=${again}>${t("Show newer lines ↓")}</button></p>` : null}
    <div class="scroll tall" ref=${box} tabindex="0" role="region" aria-label=${t("Lines of the output")} onScroll=${onScroll}>
      ${pages[0] && !pages[0].before ? html`<p class="edge-note quiet">${t("The output begins here.")}</p>` : html`<p class="edge-note quiet">${t("earlier lines …")}</p>`}
      <${Lines} lines=${lines} job=${id} several=${several} target=${target} />
      ${atEnd ? html`<p class="edge-note quiet">${live ? t("The output ends here, until more is written.") : t("The output ends here.")}</p>` : null}
    </div>`;
}

export function OutputPage({ args: [id], query }) {
  const { doc } = useDocument(jobPath(id)), { pages, error, loaded, more, again } = usePages(id, query);
  const lines = pages.flatMap((page) => page.lines);
  const near_s = lines.find((line) => line.at_s)?.at_s ?? doc?.row.seen_at_s ?? Date.now() / 1000;
  const end_s = doc?.row.ended_at_s ?? doc?.row.seen_at_s ?? Infinity;
  const several = new Set(lines.map((line) => line.place.rank)).size > 1, file = query.get("file");
  return html`<article class="output-view"><div class="head"><p class="path"><${Link} to=${jobPath(id)}>‹ ${doc?.row.name ?? id}<//> <strong>${t("Output")}</strong> ${file ? html`<span class="quiet break">${file}</span>` : null}</p>
      <${Title} class="unseen">${t("Output of {name}", { name: doc?.row.name ?? id })}<//></div>
    ${saved ? null : html`<${Bar} query=${query} id=${id} doc=${doc} near_s=${near_s} end_s=${end_s} />`}
    <${Trouble} error=${error} />
    <${Progress} pages=${pages} pattern=${query.get("pattern")} more=${more} />
    ${!loaded && !error ? html`<${Waiting} what=${t("the output")} />`
      : lines.length ? html`<${LineBox} id=${id} query=${query} pages=${pages} loaded=${loaded} more=${more} again=${again} several=${several} live=${doc && !doc.row.ended_at_s} />`
      : error ? null : html`<${Empty}>${query.get("pattern") ? t("No line fits this pattern so far.") : t("The output of the ranks appears here.")}<//>`}
  </article>`;
}
