// What a tired person needs first: is anything wrong, what, since when, and what helps.
import { pause, resume, undrain } from "../acts.js";
import { Asking, page } from "../asking.js";
import { Chart } from "../chart.js";
import { icon } from "../icons.js";
import { Command, Empty, Freshness, JobLink, Progress, Section, Since, Verdict, Waiting } from "../parts.js";
import { to } from "../route.js";
import { TimeLeft, nextToEnd } from "../timeleft.js";
import { html } from "../view.js";
import { brief, count, moment, some } from "../words.js";
import { now } from "../clock.js";

const SHOWN = 8;

export const Overview = page(
  () => ({
    overview: new Asking("overview"),
    nodes: new Asking("nodes", {}, { every: 4 }),
    running: new Asking("jobs", { state: "running", limit: 200 }),
  }),
  ({ overview, nodes, running }) => {
    const found = overview.answer.value;
    if (!found) return html`<${Waiting} asking=${overview} what="the datacenter" />`;
    return html`<div class="overview">
      <h1 class="sr">Overview</h1>
      <${Freshness} asking=${overview} />
      <${Troubles} troubles=${found.troubles} />
      <${Numbers} found=${found} />
      <div class="columns">
        <${Section} title="Time left, the shortest first" aside=${html`<a href=${to("jobs", [], { state: "running" })}>all that run</a>`}>
          <${Soonest} jobs=${running.answer.value?.jobs} quiet=${!Object.values(found.jobs).some(Boolean)} />
        <//>
        <${Section} title="The last ten minutes"><${Pulse} pulse=${found.pulse} /><//>
      </div>
      <div class="columns">
        <${Section} title="Workers" aside=${html`<a href=${to("workers")}>all</a>`}><${Workers} nodes=${nodes.answer.value} /><//>
        <${Section} title="Queues" aside=${html`<a href=${to("queues")}>all</a>`}><${Queues} queues=${found.queues} /><//>
      </div>
      <${Section} title="Managers"><${Managers} nodes=${nodes.answer.value} found=${found} /><//>
    </div>`;
  },
);

const HEADS = { wrong: "Wrong", look: "Look", note: "Note" };

function Troubles({ troubles }) {
  const urgent = troubles.filter((one) => one.severity !== "note");
  const worst = urgent[0]?.severity || "well";
  const head = urgent.length ? `${some(urgent.length, "thing needs", "things need")} ${worst === "wrong" ? "you" : "a look"}` : "All is well";
  return html`<section class="health ${worst}" aria-labelledby="health">
    <h2 id="health" aria-live="polite">${icon({ wrong: "wrong", look: "look", well: "done" }[worst])} ${head}</h2>
    <ul>${troubles.map((one) => html`<li class=${one.severity} key=${one.kind + one.subject}>
      <span class="severity">${icon(one.severity)} ${HEADS[one.severity]}</span>
      <span class="text">${one.text}${one.since ? html` <span class="quiet">for <${Since} at=${one.since} full />, since ${moment(one.since)}</span>` : null}</span>
      <span class="remedy">${remedy(one)}</span>
    </li>`)}</ul>
  </section>`;
}

function remedy({ kind, subject, remedy }) {
  const button = { drained: undrain, paused: resume }[kind]?.({ name: subject });
  if (["ended_badly", "retrying", "past_its_beat", "paused_jobs"].includes(kind)) return html`<a class="button" href=${to("job", [subject])}>See why</a> <${Command} text=${remedy} />`;
  if (kind === "dead_letters") return html`<a class="button" href=${to("queues")}>Look</a> <${Command} text=${remedy} />`;
  const begin = remedy.search(/tenure [a-z]/);
  const [words, command] = begin < 0 ? [remedy, ""] : [remedy.slice(0, begin), remedy.slice(begin).replace(/`.*$| \(.*\)$/, "")];
  return html`${button} ${words && html`<span class="quiet">${words.replace(/[:`\s]+$/, "")}</span>`} ${command && html`<${Command} text=${command} />`}`;
}

function Numbers({ found }) {
  const tile = (label, value, state) => html`<a class="tile ${state} ${value ? "some" : ""}" href=${to("jobs", [], { state })}><strong>${count(value || 0)}</strong> <span>${label}</span></a>`;
  const { jobs, attempts } = found;
  const waiting = attempts.queued + attempts.held;
  return html`<div class="tiles">
    ${tile("running", jobs.running, "running")} ${tile("pending", jobs.pending, "pending")} ${tile("completed", jobs.completed, "completed")}
    ${tile("failed", jobs.failed, "failed")} ${tile("timed out", jobs.timed_out, "timed_out")} ${tile("cancelled", jobs.cancelled, "cancelled")}
    <a class="tile" href=${to("workers")}><strong>${count(found.slots - found.free)}<small> of ${count(found.slots)}</small></strong> <span>slots busy</span></a>
    <a class="tile" href=${to("queues")}><strong>${count(waiting)}</strong> <span>attempts wait</span></a>
  </div>`;
}

// Of each running job the grant that ends next, by the time that is left and by nothing else.
function Soonest({ jobs, quiet }) {
  if (!jobs) return html`<p class="quiet">Reading what runs …</p>`;
  const at = now();
  const rows = jobs
    .map((job) => ({ job, grant: nextToEnd(job.grants, at) }))
    .filter(({ grant }) => grant && grant.kind !== "rest")
    .sort((one, other) => one.grant.until - other.grant.until)
    .slice(0, SHOWN);
  if (!rows.length) {
    return html`<${Empty} title="Nothing runs.">${quiet ? html`The first job: <${Command} text="tenure run WORKFLOW name=value" />` : "What runs is listed here, with the time that it has left."}<//>`;
  }
  return html`<ul class="soonest">${rows.map(({ job, grant }) => html`<li key=${job.job_id}>
    <${JobLink} id=${job.job_id} name=${job.name} /> <${Progress} fraction=${job.progress} /> <${TimeLeft} key=${grant.kind} grant=${grant} />
  </li>`)}</ul>`;
}

function Pulse({ pulse }) {
  const size = pulse.completed.length;
  const at = pulse.completed.map((_, index) => pulse.until - (size - 1 - index) * pulse.step_s);
  const minute = (counts) => counts.map((one) => (one * 60) / pulse.step_s);
  const rates = [at, minute(pulse.submitted), minute(pulse.completed), minute(pulse.failed)];
  return html`<${Chart} title="A minute" data=${rates} until=${pulse.until} series=${[
      { name: "jobs submitted", tone: "--quiet", dash: [4, 4] },
      { name: "attempts completed", tone: "--good" },
      { name: "failed", tone: "--bad" },
    ]} least=${12} />
    <${Chart} title="At once" data=${[at, pulse.running, pulse.waiting]} until=${pulse.until} series=${[
      { name: "running", tone: "--accent" },
      { name: "waiting", tone: "--warn", dash: [2, 3] },
    ]} />`;
}

function Workers({ nodes }) {
  if (!nodes) return html`<p class="quiet">Reading the workers …</p>`;
  if (!nodes.workers.length) {
    return html`<${Empty} title="No worker is here.">Start one: <${Command} text="tenure worker app.py --managed --engine URL" /><//>`;
  }
  const rank = { evict: 0, drain: 1, investigate: 2 };
  const worst = [...nodes.workers].sort((one, other) => (rank[one.verdict] ?? 3) - (rank[other.verdict] ?? 3)).slice(0, SHOWN);
  return html`<div class="scroll"><table><thead><tr><th>worker</th><th>told</th><th>class</th><th>busy</th><th>time left to prove</th></tr></thead>
    <tbody>${worst.map((one) => html`<tr key=${one.name}>
      <td><a href=${to("workers", [one.name])}>${one.name}</a></td>
      <td><${Verdict} verdict=${one.verdict} /></td>
      <td>${one.health || "–"}</td>
      <td>${one.slots - one.free} of ${one.slots}</td>
      <td>${one.grants[0] && one.incarnation ? html`<${TimeLeft} grant=${one.grants[0]} label="worker" />` : "–"}</td>
    </tr>`)}</tbody></table></div>`;
}

function Queues({ queues }) {
  if (!queues.length) return html`<${Empty} title="No queue holds anything.">Queues come with the first job: <${Command} text="tenure submit WORKFLOW name=value" /><//>`;
  const deepest = [...queues].sort((one, other) => other.queued + other.held - one.queued - one.held).slice(0, SHOWN);
  return html`<div class="scroll"><table><thead><tr><th>queue</th><th class="num">waiting</th><th class="num">oldest</th><th class="num">running</th><th><span class="sr">actions</span></th></tr></thead>
    <tbody>${deepest.map((one) => html`<tr key=${one.name}>
      <td>${one.name} ${one.paused && html`<span class="flag">${icon("cancelled")} paused</span>`}</td>
      <td class="num">${count(one.queued + one.held)}</td>
      <td class="num">${one.oldest_s ? brief(one.oldest_s) : "–"}</td>
      <td class="num">${count(one.running)}</td>
      <td class="end">${one.paused ? resume(one) : pause(one)}</td>
    </tr>`)}</tbody></table></div>`;
}

function Managers({ nodes, found }) {
  if (!nodes) return html`<p class="quiet">Reading the managers …</p>`;
  return html`<div class="scroll"><table><thead><tr><th>manager</th><th><span class="sr">leads</span></th><th>address</th><th class="num">heard</th><th class="num">clock</th><th>version</th></tr></thead>
    <tbody>${nodes.managers.map((one) => html`<tr key=${one.name}>
      <td>${one.name}</td>
      <td>${one.leads ? html`<strong>leads</strong> <span class="quiet">for <${Since} at=${found.elected_at} full />, epoch ${found.epoch}</span>` : "stands by"}</td>
      <td><code>${one.address}</code></td>
      <td class="num">${brief(one.heard_s_ago)} ago</td>
      <td class="num">${Math.abs(one.skew_s) < 0.5 ? "right" : `${one.skew_s > 0 ? "+" : ""}${one.skew_s.toFixed(1)} s`}</td>
      <td>${one.version}</td>
    </tr>`)}</tbody></table></div>`;
}
