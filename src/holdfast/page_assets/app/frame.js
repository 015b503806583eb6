// The frame around every view: ways to the others, the state of the connection in words, language, light and dark, help.

import { classes, clock, html, spoken, useEffect, useRef, useStore } from "./ui.js";
import { choose, t, useLanguage } from "./language.js";
import { moment, span } from "./format.js";
import { saved, version } from "./boot.js";
import { go, route } from "./route.js";

import { may, me, post } from "./load.js";
import { connection } from "./live.js";
import { Link } from "./parts/pieces.js";
import { chooseTheme, drawnDark } from "./parts/colours.js";
import { helpOpen, KEYS } from "./keys.js";

function NavLink({ to, here, children }) {
  return html`<${Link} to=${to} aria-current=${here ? "page" : undefined}>${children}<//>`;
}

function Reader() {
  const who = useStore(me);
  if (!who || !who.name || who.by === "loopback") return null;
  const leave = async () => {
    await post("/logout");
    me.set(null);
    go("/login");
  };
  return html`<span class="reader quiet">${who.name} (${t(who.role)})${who.by === "cookie" ? html` <button type="button" class="plain" onClick=${leave}>${t("Log out")}</button>` : null}</span>`;
}

function Top({ view }) {
  const language = useLanguage(), dark = useStore(drawnDark);
  useStore(me);
  return html`<header class="top">
    <nav aria-label=${t("Views")}>${saved ? html`<strong>Holdfast</strong>` : html`
      <${NavLink} to="/" here=${["jobs", "job", "incident", "output"].includes(view)}>${t("Jobs")}<//>
      <${NavLink} to="/nodes" here=${["nodes", "node"].includes(view)}>${t("Nodes")}<//>
      ${may("operator") ? html`<${NavLink} to="/terminal" here=${view === "terminal"}>${t("Terminal")}<//>` : null}`}</nav>
    <div class="prefs">
      <button type="button" class="plain" lang=${language === "zh" ? "en" : "zh-CN"} onClick=${() => choose(language === "zh" ? "en" : "zh")}>${language === "zh" ? "English" : "中文"}</button>
      <button type="button" class="plain" onClick=${() => chooseTheme(dark ? "light" : "dark")}>${dark ? t("light") : t("dark")}</button>
      <button type="button" class="plain keys" aria-haspopup="dialog" onClick=${() => helpOpen.set(true)}>${t("keys")}</button></div>
  </header>`;
}

function Connection() {
  const { state, since_s } = useStore(connection), now = useStore(clock);
  return html`<div role="status">${state === "lost" ? html`<p class="trouble connection">▲ ${t("No connection to the server since {time} ({age}). The page shows the state of that moment and reconnects by itself.", { time: moment(since_s, now), age: span(Math.max(0, now - since_s)) })}</p>` : null}</div>`;
}

function Help() {
  const open = useStore(helpOpen), box = useRef(null);
  useEffect(() => {
    if (open && box.current && !box.current.open) box.current.showModal();
  }, [open]);
  if (!open) return null;
  return html`<dialog ref=${box} aria-labelledby="keys-title" onClose=${() => helpOpen.set(false)}><h2 id="keys-title">${t("Keys")}</h2>
    <dl class="facts tight">${KEYS.map(([key, what]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${t(what)}</dd></div>`)}</dl>
    <div class="buttons"><button type="button" onClick=${() => box.current.close()}>${t("Close")}</button></div></dialog>`;
}

function Foot() {
  return html`<footer class="quiet"><span>${saved ? t("Saved {time} by Holdfast {version}. This file loads nothing and sends nothing.", { time: moment(Number(saved), undefined, true), version }) : `Holdfast ${version}`}</span><${Reader} /></footer>`;
}

export function Frame({ children }) {
  const here = useStore(route);
  const skip = (event) => {
    event.preventDefault();
    document.getElementById("main").focus();
  };
  return html`<a class="skip" href="#main" data-plain onClick=${skip}>${t("To the content")}</a>
    <${Top} view=${here.view} /><${Connection} />
    <main id="main" tabindex="-1" class=${classes("view-" + here.view)}>${children}</main>
    <${Foot} /><${Help} /><div class="unseen" aria-live="polite"><${Spoken} /></div>`;
}

function Spoken() {
  return useStore(spoken);
}

