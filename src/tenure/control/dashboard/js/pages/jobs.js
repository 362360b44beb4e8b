// Every job that fits the filters, newest first, with the time left on every grant that it holds.
import { bulk } from "../bulk.js";
import { Asking, page } from "../asking.js";
import { Command, Empty, Freshness, JobLink, Progress, Since, State, TERMINAL, Waiting } from "../parts.js";
import { go, route, to } from "../route.js";
import { NextGrant } from "../timeleft.js";
import { html, kept, still } from "../view.js";
import { count, some } from "../words.js";

const STATES = ["pending", "running", "completed", "failed", "cancelled", "timed_out"];
const FIELDS = ["state", "queue", "name", "function", "label", "arg"];
const SIZES = [50, 100, 250, 1000];
const newer = []; // where the pages began that were left for older ones

function wanted() {
  const { page: here, fields } = route.value;
  if (here !== "jobs") return { limit: 100 };
  const found = Object.fromEntries(FIELDS.map((name) => [name, fields.get(name) || ""]));
  return { ...found, after: fields.get("after") || "", limit: Number(fields.get("limit")) || 100 };
}

function apply(changes) {
  newer.length = 0;
  const { limit, ...rest } = { ...wanted(), after: "", ...changes };
  go(to("jobs", [], { ...rest, limit: limit === 100 ? "" : limit }));
}

export const Jobs = page(
  () => ({ jobs: new Asking("jobs", wanted, { keep: (before, found) => ({ ...found, jobs: kept(before?.jobs, found.jobs, "job_id") }) }) }),
  ({ jobs }) => {
    const asked = wanted();
    const key = JSON.stringify(asked);
    if (jobs.key !== undefined && jobs.key !== key) queueMicrotask(() => jobs.change());
    jobs.key = key;
    return html`<div class="jobs">
      <h1>Jobs</h1>
      <${Filters} asked=${asked} />
      <${Freshness} asking=${jobs} />
      ${jobs.answer.value ? html`<${List} found=${jobs.answer.value} asked=${asked} />` : html`<${Waiting} asking=${jobs} what="jobs" />`}
    </div>`;
  },
);

function Filters({ asked }) {
  const change = (name) => (event) => apply({ [name]: event.currentTarget.value.trim() });
  const field = (name, label, hint) => html`<label>${label}<input name=${name} value=${asked[name]} placeholder=${hint} onChange=${change(name)} autocomplete="off" spellcheck=${false} /></label>`;
  return html`<form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
    <label>State<select name="state" value=${asked.state} onChange=${change("state")}>
      <option value="">any</option>${STATES.map((one) => html`<option value=${one} selected=${one === asked.state}>${one.replace("_", " ")}</option>`)}
    </select></label>
    ${field("name", "Name or id begins with", "encode")} ${field("function", "Calls", "review")} ${field("queue", "Queue", "default")} ${field("label", "Label", "key=value")} ${field("arg", "Argument", "tenant=7")}
    <label>Rows<select name="limit" onChange=${(event) => apply({ limit: Number(event.currentTarget.value) })}>
      ${SIZES.map((one) => html`<option value=${one} selected=${one === asked.limit}>${count(one)}</option>`)}
    </select></label>
    ${FIELDS.some((name) => asked[name]) && html`<button type="button" onClick=${() => apply(Object.fromEntries(FIELDS.map((name) => [name, ""])))}>Clear</button>`}
  </form>`;
}

function List({ found, asked }) {
  if (!found.jobs.length) {
    const filtered = FIELDS.some((name) => asked[name]) || asked.after;
    return html`<${Empty} title=${filtered ? "No job fits these filters." : "There is no job yet."}>
      ${filtered ? "Archived jobs are asked for by their id: tenure ps JOB." : html`The first one: <${Command} text="tenure run WORKFLOW name=value" />`}
    <//>`;
  }
  return html`<p class="quiet">${some(found.known, "job fits", "jobs fit")}; ${count(found.jobs.length)} shown, newest first. <span class="actions">${FIELDS.some((name) => asked[name]) && bulk(found, asked)}</span></p>
    <div class="rows" role="table" aria-label="Jobs">
      <div class="row head" role="row"><span role="columnheader">state</span><span role="columnheader">job</span><span role="columnheader">progress</span><span role="columnheader">time left</span><span role="columnheader" class="num">workflows</span><span role="columnheader" class="num">tries</span><span role="columnheader" class="num">age</span></div>
      ${found.jobs.map((job) => html`<${Row} key=${job.job_id} job=${job} />`)}
    </div>
    <${Pages} found=${found} asked=${asked} />`;
}

const Row = still(({ job }) => {
  const ended = TERMINAL.has(job.state);
  return html`<div class="row" role="row" data-job=${job.job_id}>
    <span role="cell"><${State} state=${job.state} />${job.paused && html` <span class="flag">paused</span>`}</span>
    <span role="cell" class="named"><${JobLink} id=${job.job_id} name=${job.name} /> <span class="quiet id">${job.job_id}${job.queue === "default" ? "" : ` · ${job.queue}`}</span></span>
    <span role="cell"><${Progress} fraction=${job.progress} ended=${ended} /></span>
    <span role="cell" class="times">${ended ? html`<span class="quiet reason">${job.reason}</span>` : html`<${NextGrant} grants=${job.grants} />`}</span>
    <span role="cell" class="num" data-label="workflows">${count(job.completed)}/${count(job.total)}${job.failed ? html` <span class="bad">${count(job.failed)} failed</span>` : null}</span>
    <span role="cell" class="num" data-label="tries">${count(job.attempts)}</span>
    <span role="cell" class="num" data-label="age"><${Since} at=${job.submitted_at} /></span>
  </div>`;
});

function Pages({ found, asked }) {
  const turn = (after) => go(to("jobs", [], { ...asked, limit: asked.limit === 100 ? "" : asked.limit, after }));
  const older = () => {
    newer.push(asked.after);
    turn(found.next);
  };
  if (!asked.after && !found.next) return null;
  return html`<nav class="pages" aria-label="Pages of jobs">
    <button type="button" disabled=${!asked.after} onClick=${() => turn(newer.pop() || "")}>Newer</button>
    <button type="button" disabled=${!found.next} onClick=${older}>Older</button>
  </nav>`;
}
