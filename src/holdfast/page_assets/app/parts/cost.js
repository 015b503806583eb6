// Shows what was lost: seconds of a wall clock, of devices, and what they went to.

import { html } from "../ui.js";
import { t, tn } from "../language.js";
import { count, percent, span } from "../format.js";
import { Empty, Shares } from "./pieces.js";

export const PARTS = {
  detection: "detection", diagnosis: "diagnosis", stopping: "stopping", placing: "placing", starting: "starting",
  checking: "checking", waiting: "waiting", "repeated-steps": "repeated steps", "loading-checkpoint": "loading the checkpoint",
};

export function partName(name) {
  return t(PARTS[name] ?? name);
}

// "41 s × 64 devices = 0.7 device-hours"
export function costText(cost) {
  if (!cost) return "";
  if (!cost.devices) return span(cost.lost_s);
  const hours = (cost.lost_s * cost.devices) / 3600;
  return tn(cost.devices, "{time} × {n} device = {hours} device-hours", "{time} × {n} devices = {hours} device-hours", { time: span(cost.lost_s), hours: hours < 10 ? hours.toFixed(1) : count(hours) });
}

export function CostBlock({ cost }) {
  if (!cost || !cost.lost_s) return html`<${Empty}>${t("No time was lost.")}<//>`;
  const parts = Object.entries(cost.by_cause ?? {}).sort((a, b) => b[1] - a[1]).map(([name, seconds]) => [partName(name), seconds]);
  return html`<p>${costText(cost)}${cost.steps_repeated ? html`<br />${tn(cost.steps_repeated, "{n} step repeated", "{n} steps repeated")}` : null}</p>
    <${Shares} parts=${parts} label=${parts.map(([name, seconds]) => `${name} ${span(seconds)}`).join(", ")} />
    <dl class="facts tight">${parts.map(([name, seconds]) => html`<div><dt>${name}</dt><dd class="num">${span(seconds)} <span class="quiet">${percent(seconds / cost.lost_s, 0)}</span></dd></div>`)}</dl>`;
}
