// Small parts that all views share: times, facts, sections, tables, what is missing and what went wrong.

import { classes, clock, html, speak, useLayoutEffect, useRef, useState, useStore } from "../ui.js";
import { t } from "../language.js";
import { moment, span, wholeMoment } from "../format.js";
import { address, arrival } from "../route.js";
import { hasDocument } from "../load.js";

export function Time({ at, exact }) {
  const now = useStore(clock);
  if (at === null || at === undefined) return null;
  return html`<time datetime=${new Date(at * 1000).toISOString()} title=${wholeMoment(at)}>${moment(at, now, exact)}</time>`;
}

// "since 03:12:07 (2 min)"
export function Since({ at }) {
  const now = useStore(clock);
  if (at === null || at === undefined) return null;
  const [before, after] = t("since {time}").split("{time}");
  return html`<span class="quiet">${before}<${Time} at=${at} />${after} (${span(Math.max(0, now - at))})</span>`;
}

// A link to another view; text alone where a saved page does not have that view.
export function Link({ to, query, children, ...rest }) {
  if (!hasDocument(to)) return html`<span class=${rest.class}>${children}</span>`;
  return html`<a href=${address(to, query)} ...${rest}>${children}</a>`;
}

// The first line of a view. It takes the focus when the view was arrived at.
export function Title({ class: kind, children }) {
  const element = useRef(null);
  useLayoutEffect(() => {
    if (arrival.due) element.current.focus({ preventScroll: true });
  }, []);
  return html`<h1 tabindex="-1" ref=${element} class=${kind}>${children}</h1>`;
}

// Pairs of a name and a value; those without a value are left out.
export function Facts({ items, label }) {
  const shown = items.filter((item) => item && item[1] !== null && item[1] !== undefined && item[1] !== "");
  if (!shown.length) return null;
  return html`<dl class="facts" aria-label=${label}>
    ${shown.map(([name, value, more]) => html`<div><dt>${name}</dt><dd>${value}${more ? html` <span class="quiet">${more}</span>` : null}</dd></div>`)}
  </dl>`;
}

export function Section({ id, title, aside, children, ...rest }) {
  return html`<section aria-labelledby=${id} class=${rest.class}>
    <h2 id=${id}>${title}${aside ? html`<span class="aside">${aside}</span>` : null}</h2>
    ${children}
  </section>`;
}

// What would be here, and how to get it.
export function Empty({ children }) {
  return html`<p class="empty">${children}</p>`;
}

export function Trouble({ error, retry }) {
  if (!error) return null;
  return html`<div class="trouble-box" role="alert">
    <p>${error.message}</p>
    ${error.near?.length ? html`<p class="quiet">${t("Similar: {names}", { names: error.near.join(", ") })}</p>` : null}
    ${retry ? html`<button type="button" onClick=${retry}>${t("Try again")}</button>` : null}
  </div>`;
}

export function Waiting({ what }) {
  return html`<p class="quiet" role="status">${t("Loading {what} …", { what })}</p>`;
}

// A view whose document is not there: not yet, or not at all.
export function Pending({ what, error, retry }) {
  return html`<${Title} class="headline">${what}<//>${error ? html`<${Trouble} error=${error} retry=${retry} />` : html`<${Waiting} what=${what} />`}`;
}

// `columns`: [title, kind]; kind: number, wide or nothing. A table becomes a list of blocks where it is narrow.
export function Table({ label, columns, rows, empty }) {
  if (!rows.length) return html`<${Empty}>${empty}<//>`;
  const cell = (value, column) => html`<td class=${columns[column][1]} data-name=${columns[column][0]}>${value}</td>`;
  return html`<div class="table" role="region" aria-label=${label} tabindex="0"><table>
    <thead><tr>${columns.map(([title, kind]) => html`<th scope="col" class=${kind}>${title}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${row.map(cell)}</tr>`)}</tbody>
  </table></div>`;
}

// Copies, and says so in its own words.
export function CopyButton({ text, label }) {
  const [done, set] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(typeof text === "function" ? await text() : text);
      set(t("copied"));
    } catch (error) {
      set(error.status === undefined ? t("the browser does not allow it") : error.message);
    }
    speak(t("copied"));
  };
  return html`<button type="button" onClick=${copy}>${label}${done ? html` <span class="quiet">· ${done}</span>` : null}</button>`;
}

// Text that can be long: the first lines, and the rest when asked for.
export function Long({ text, most = 600, class: kind }) {
  const [whole, set] = useState(false);
  if (text.length <= most) return html`<span class=${kind}>${text}</span>`;
  return html`<span class=${kind}>${whole ? text : text.slice(0, most) + "…"}
    ${" "}<button type="button" class="plain" onClick=${() => set(!whole)}>${whole ? t("less") : t("all")}</button></span>`;
}

// One bar for shares of a whole: one hue, widths say how much; the words beside it say the same.
export function Shares({ parts, label }) {
  const whole = parts.reduce((sum, [, value]) => sum + value, 0);
  if (!(whole > 0)) return null;
  const width = (value) => ({ width: (100 * value) / whole + "%" });
  return html`<div class="shares" role="img" aria-label=${label}>
    ${parts.map(([name, value], i) => html`<span class=${classes("share", "share" + (i % 4))} style=${width(value)} title=${name} />`)}
  </div>`;
}
