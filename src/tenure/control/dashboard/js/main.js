// The frame around every page: where one can go, whether we are connected, who we are.
import { token, wantsToken } from "./api.js";
import { second, steady } from "./clock.js";
import { Dialogs } from "./dialog.js";
import { icon } from "./icons.js";
import { Datacenters } from "./pages/datacenters.js";
import { Job } from "./pages/job.js";
import { Jobs } from "./pages/jobs.js";
import { Login } from "./pages/login.js";
import { Overview } from "./pages/overview.js";
import { Queues } from "./pages/queues.js";
import { Schedules } from "./pages/schedules.js";
import { Workers } from "./pages/workers.js";
import { Workflows } from "./pages/workflows.js";
import { Guard } from "./parts.js";
import { route, to } from "./route.js";
import { begin, isGate, leave, me, trouble } from "./session.js";
import { follow, line } from "./stream.js";
import { effect, html, live, render } from "./view.js";
import { some, span, time } from "./words.js";

const PAGES = {
  overview: ["Overview", Overview],
  jobs: ["Jobs", Jobs],
  job: ["Job", Job],
  workers: ["Workers", Workers],
  workflows: ["Workflows", Workflows],
  queues: ["Queues", Queues],
  schedules: ["Schedules", Schedules],
  datacenters: ["Datacenters", Datacenters],
};

const places = () =>
  isGate() ? ["datacenters", "jobs", "workflows", "workers", "queues", "schedules"] : ["overview", "jobs", "workflows", "workers", "queues", "schedules"];

// Said to everybody, at once, and for as long as it is so: what is shown is not what is.
const Connection = live(() => {
  second.value;
  const { up, since, reason, retryAt } = line.value;
  if (up) return html`<span class="connection up" title=${`since ${time(since / 1000)}`}>${icon("done")} live</span>`;
  if (!since) return html`<span class="connection">connecting …</span>`;
  const wait = Math.max(0, Math.ceil(retryAt - steady()));
  return html`<span class="connection down">${icon("wrong")} not connected</span>
    <div class="banner" role="alert">${icon("wrong")} <strong>Not connected since ${time(since / 1000)}</strong>
      (${span((Date.now() - since) / 1000)}): ${reason}. ${wait ? `Retrying in ${some(wait, "second")}.` : "Retrying …"} What you see is from before.</div>`;
});

const Frame = live(() => {
  if (!me.value) return null; // we are being shown out
  const asked = route.value.page;
  const page = !PAGES[asked] || (isGate() && asked === "overview") ? places()[0] : asked;
  const here = page === "job" ? "jobs" : page;
  const [title, Page] = PAGES[page];
  document.title = `${title} · ${me.value.datacenter || "Tenure"}`;
  return html`<div class="frame">
    <a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <header class="top">
      <a class="brand" href=${to(places()[0])}>Tenure</a>
      <nav aria-label="Pages">${places().map((name) => html`<a href=${to(name)} aria-current=${name === here ? "page" : undefined}>${PAGES[name][0]}</a>`)}</nav>
      <span class="where" title=${`This page is from the ${me.value.node} ${me.value.node_name}, version ${me.value.version}`}>${me.value.datacenter || me.value.node}</span>
      <${Connection} />
      ${me.value.name && html`<span class="who">${me.value.name}</span>`}
      ${token() && html`<button type="button" class="plain" onClick=${leave}>Forget token</button>`}
    </header>
    <main id="main" tabindex="-1"><${Guard} key=${page}><${Page} /><//></main>
    <${Dialogs} />
  </div>`;
});

function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

const App = live(() => {
  if (wantsToken.value) return html`<${Login} />`;
  if (me.value) return html`<${Frame} />`;
  const why = trouble.value;
  return html`<main class="first">${why ? html`<p role="alert">${why.message}. ${why.remedy} Trying again …</p>` : html`<p>Connecting …</p>`}</main>`;
});

effect(() => document.documentElement.classList.toggle("stale", !line.value.up && line.value.since > 0));

render(html`<${App} />`, document.getElementById("app"));
begin();
follow();
