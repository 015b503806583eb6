// Draws states: each has a shape, a tone and a word, so that nobody needs to see colours.

import { html } from "../ui.js";
import { t } from "../language.js";

// As paths in a box of 12 by 12.
const SHAPES = {
  disc: html`<circle cx="6" cy="6" r="4.5" fill="currentColor" />`,
  ring: html`<circle cx="6" cy="6" r="3.9" fill="none" stroke="currentColor" stroke-width="1.6" />`,
  half: html`<g><circle cx="6" cy="6" r="3.9" fill="none" stroke="currentColor" stroke-width="1.6" /><path d="M6 2a4 4 0 0 0 0 8z" fill="currentColor" /></g>`,
  triangle: html`<path d="M6 1.2 11.4 10.8H.6z" fill="currentColor" />`,
  diamond: html`<path d="M6 .8 11.2 6 6 11.2.8 6z" fill="currentColor" />`,
  "open-diamond": html`<path d="M6 1.8 10.2 6 6 10.2 1.8 6z" fill="none" stroke="currentColor" stroke-width="1.6" />`,
  square: html`<path d="M1.5 1.5h9v9h-9z" fill="currentColor" />`,
  "open-square": html`<path d="M2.2 2.2h7.6v7.6H2.2z" fill="none" stroke="currentColor" stroke-width="1.6" />`,
  cross: html`<path d="m2 2 8 8m0-8-8 8" fill="none" stroke="currentColor" stroke-width="2.4" />`,
  check: html`<path d="m1.5 6.5 3 3 6-7" fill="none" stroke="currentColor" stroke-width="2" />`,
  question: html`<path d="M3.4 4.1a2.6 2.6 0 1 1 4.2 2.1C6.5 6.9 6 7.3 6 8.2M6 9.6v1.6" fill="none" stroke="currentColor" stroke-width="1.7" />`,
};

export const STATES = {
  starting: ["half", "neutral", "starting"],
  training: ["disc", "neutral", "training"],
  recovering: ["triangle", "trouble", "recovering"],
  waiting: ["diamond", "trouble", "waiting"],
  kept: ["square", "trouble", "kept"],
  stopping: ["half", "trouble", "stopping"],
  succeeded: ["check", "neutral", "succeeded"],
  failed: ["cross", "lost", "failed"],
  stopped: ["open-square", "neutral", "stopped"],
  preempted: ["open-diamond", "neutral", "preempted"],
  unsupervised: ["triangle", "trouble", "unsupervised"],
  dead: ["cross", "lost", "dead"],
  unknown: ["question", "trouble", "unknown"],
};

const TONES = {
  neutral: ["disc", "noted"],
  trouble: ["triangle", "being handled"],
  lost: ["cross", "needs a person"],
  recovered: ["check", "recovered"],
};

export function Shape({ name, tone }) {
  return html`<svg class=${"shape " + tone} viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">${SHAPES[name]}</svg>`;
}

export function StateMark({ state }) {
  const [shape, tone, word] = STATES[state] ?? STATES.unknown;
  return html`<span class=${"state " + tone}><${Shape} name=${shape} tone=${tone} />${" "}${t(word)}</span>`;
}

export function ToneMark({ tone, mute }) {
  const [shape, word] = TONES[tone] ?? TONES.neutral;
  return html`<span class=${"state " + tone}><${Shape} name=${shape} tone=${tone} />${" "}<span class=${mute ? "unseen" : ""}>${t(word)}</span></span>`;
}

const VERDICTS = { pass: ["check", "neutral"], warn: ["triangle", "trouble"], fail: ["cross", "lost"] };

// How a check of a node ended.
export function CheckMark({ status }) {
  const [shape, tone] = VERDICTS[status.toLowerCase()] ?? ["ring", "neutral"];
  return html`<span class=${"state " + tone}><${Shape} name=${shape} tone=${tone} />${" "}${t(status.toLowerCase())}</span>`;
}
