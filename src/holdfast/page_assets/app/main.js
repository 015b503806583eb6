// Starts the page: chooses the view of the address, draws it, and keeps focus, scroll and title right when it changes.

import { html, render, useEffect, useLayoutEffect, useRef, useState, useStore } from "./ui.js";
import { choose, language, t, useLanguage } from "./language.js";
import { route, startRouting } from "./route.js";
import { assets } from "./boot.js";
import { loadAsset, loadMe, me } from "./load.js";
import { startKeys } from "./keys.js";
import { Frame } from "./frame.js";
import { Empty, Link, Pending, Title } from "./parts/pieces.js";
import { JobsPage } from "./views/jobs.js";
import { JobPage } from "./views/job.js";
import { IncidentPage } from "./views/incident.js";
import { OutputPage } from "./views/output.js";
import { NodesPage } from "./views/nodes.js";
import { NodePage } from "./views/node.js";
import { LoginPage } from "./views/login.js";

function Missing({ path }) {
  return html`<${Title} class="headline">${t("There is no view at {path}.", { path })}<//><${Empty}><${Link} to="/">${t("All jobs")}<//><//>`;
}

// Its script comes with the view: most readers never open a terminal.
function TerminalPage(props) {
  const [View, set] = useState(null), [error, setError] = useState(null);
  useEffect(() => {
    loadAsset(assets + "terminal.js").then(() => set(() => globalThis.holdfastModules["app/views/terminal.js"].TerminalView), setError);
  }, []);
  return View ? html`<${View} ...${props} />` : html`<${Pending} what=${t("Terminal")} error=${error} />`;
}

const VIEWS = {
  jobs: JobsPage, job: JobPage, incident: IncidentPage, output: OutputPage, nodes: NodesPage, node: NodePage,
  terminal: TerminalPage, login: LoginPage, missing: Missing,
};
const TITLES = { jobs: "Jobs", nodes: "Nodes", terminal: "Terminal", login: "Log in", missing: "Not found" };

function titleOf({ view, args }) {
  const name = TITLES[view] ? t(TITLES[view]) : view === "incident" ? `${args[0]} #${args[1]}` : view === "output" ? `${args[0]} ${t("Output")}` : args[0];
  return `${name} · Holdfast`;
}

function App() {
  const here = useStore(route), first = useRef(true);
  useLanguage();
  useStore(me);
  useEffect(() => {
    document.title = titleOf(here);
  }, [here, language()]);
  useLayoutEffect(() => {
    if (first.current) {
      first.current = false;
      return;
    }
    // A view that was left is read on where it was; a new one from its first line.
    scrollTo(0, here.back ?? 0);
  }, [here.moved]);
  const View = VIEWS[here.view];
  return html`<${Frame}><${View} key=${here.path} ...${here} /><//>`;
}

choose(language());
startRouting();
startKeys();
if (!me.get()) loadMe();
render(html`<${App} />`, document.getElementById("app"));
