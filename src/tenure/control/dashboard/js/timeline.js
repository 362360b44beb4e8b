// A gate names each worker with its datacenter before it.
// Draws which worker ran which attempt, from when to when: one row for each worker, one bar for each run, on one scale of time.
import { now } from "./clock.js";
import { to } from "./route.js";
import { html } from "./view.js";
import { moment, span } from "./words.js";

const MOST_WORKERS = 30;
const GOOD = new Set(["completed", "suspended", "paused", "moved"]);
const tone = ({ ended_at, outcome }) => (ended_at === null ? "running" : GOOD.has(outcome) ? outcome : "failed");

const name = (run) => `${run.workflow}, attempt ${run.attempt}${run.delivery > 1 ? `, delivery ${run.delivery}` : ""}`;

function words(run, end) {
  const took = span((run.ended_at ?? end) - run.started_at);
  return `${name(run)} on ${run.worker}: from ${moment(run.started_at)}, ${run.ended_at === null ? `runs for ${took}` : `${took}, ${run.outcome.replaceAll("_", " ")}`}`;
}

export function Timeline({ runs, ended }) {
  // One run tells nothing that is not said above.
  if (!runs || runs.length < 2) return null;
  const begin = Math.min(...runs.map((one) => one.started_at));
  const end = Math.max(begin + 0.001, ended || now(), ...runs.map((one) => one.ended_at ?? 0));
  const share = (at) => `${((100 * (at - begin)) / (end - begin)).toFixed(3)}%`;
  const workers = [...new Set(runs.map((one) => one.worker))];
  return html`<div class="timeline">
    <h3>Attempts over workers</h3>
    <ul>${workers.slice(0, MOST_WORKERS).map((worker) => html`<li key=${worker}>
      <a href=${to("workers", [worker.split("/").pop()])}>${worker}</a>
      <ol class="lane">${runs.filter((one) => one.worker === worker).map((run, index) => html`<li key=${index} class=${tone(run)} title=${words(run, end)} style=${{ left: share(run.started_at), width: `calc(${share((run.ended_at ?? end) - run.started_at + begin)} + 2px)` }}><span class="sr">${words(run, end)}</span><span aria-hidden="true">${run.attempt}</span></li>`)}</ol>
    </li>`)}</ul>
    <p class="quiet scale"><span>${moment(begin)}</span><span>${span(end - begin)}</span></p>
    ${workers.length > MOST_WORKERS ? html`<p class="quiet">${workers.length - MOST_WORKERS} more workers ran it, too.</p>` : null}
  </div>`;
}
