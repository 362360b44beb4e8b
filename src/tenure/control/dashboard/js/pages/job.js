// One job: where it is, the time that it has left, what brought it there, and what it said.
import { cancelJob, retryJob } from "../acts.js";
import { read } from "../api.js";
import { Asking, page } from "../asking.js";
import { Command, Freshness, Problem, Progress, Section, Since, State, TERMINAL, Waiting } from "../parts.js";
import { Flow } from "../flow.js";
import { route, to } from "../route.js";
import { SignalForm } from "../signal.js";
import { steer } from "../steering.js";
import { listen } from "../stream.js";
import { Grants } from "../timeleft.js";
import { Timeline } from "../timeline.js";
import { Component, html, live } from "../view.js";
import { count, exact, moment, pretty, span, time } from "../words.js";

const id = () => (route.value.page === "job" ? route.value.parts[0] || "" : "");
const mine = (name, event) => event.job_id === id() || (event.jobs || []).includes(id());
const options = { minds: mine, when: () => id() !== "" };

export const Job = page(
  () => ({
    job: new Asking("job", () => ({ job_id: id() }), { ...options, every: 1.5 }),
    why: new Asking("why", () => ({ job_id: id() }), { ...options, every: 10 }),
  }),
  ({ job, why }) => {
    const key = id();
    if (job.key !== undefined && job.key !== key) queueMicrotask(() => [job, why].forEach((one) => one.change()));
    job.key = key;
    const found = job.answer.value;
    if (!found || found.job_id !== key) return html`<${Waiting} asking=${job} what=${`job ${key}`} />`;
    return html`<div class="stack">
      <${Freshness} asking=${job} />
      <${Head} job=${found} />
      <${Answer} why=${why.answer.value?.why} job=${found} />
      <${Section} title=${found.workflows.length === 1 ? "Its workflow" : `Its ${count(found.workflows.length)} workflows`}>
        <${Flow} workflows=${found.workflows} />
        <${Timeline} runs=${why.answer.value?.why.job_id === key ? why.answer.value.why.runs : null} ended=${TERMINAL.has(found.state) ? found.ended_at : 0} />
        ${found.workflows.map((one) => html`<${Workflow} key=${one.name} one=${one} job=${found} />`)}
      <//>
      <div class="columns">
        <${Section} title="Why it is so"><${Chain} why=${why.answer.value} asking=${why} /><//>
        <${Section} title="What it said"><${Said} key=${key} job=${found} /><//>
      </div>
      <${Section} title="Decided while you look"><${Events} key=${key} /><//>
    </div>`;
  },
);

function Head({ job }) {
  const ended = TERMINAL.has(job.state);
  const labels = Object.entries(job.labels);
  const again = job.labels["tenure.retry_of"];
  return html`<section class="card">
    <div class="title">
      <h1>${job.name || job.job_id}</h1> <${State} state=${job.state} />
      ${job.pause && html`<span class="flag" title=${job.pause.reason}>paused by ${job.pause.by || "somebody"} at ${moment(job.pause.at)}</span>`}
      <span class="actions">${ended ? retryJob(job.job_id) : [...steer(job), cancelJob(job.job_id)]}</span>
    </div>
    ${job.reason && html`<p>${job.reason}</p>`}
    ${!ended && html`<p><${Grants} grants=${job.grants} /></p>`}
    <div class="facts">
      <span>id <b>${job.job_id}</b></span> <span>queue <b>${job.queue}</b></span>
      <span>submitted <b>${moment(job.submitted_at)}</b>${job.submitted_by ? html` by <b>${job.submitted_by}</b>` : null}</span>
      ${ended ? html`<span>ended <b>${moment(job.ended_at)}</b>, after <b>${span(job.ended_at - job.submitted_at)}</b></span>` : html`<span>for <b><${Since} at=${job.submitted_at} full /></b></span>`}
      ${again && html`<span>once more <a href=${to("job", [again])}>${again}</a></span>`}
      ${labels.filter(([key]) => key !== "tenure.retry_of").map(([key, value]) => html`<span class="label">${key}=${value}</span>`)}
      ${job.datacenters.map((one) => html`<span>${one.name} <b>${one.state}</b>${one.answers ? null : " (does not answer)"}</span>`)}
    </div>
  </section>`;
}

// Who ended it, or what it waits for, and what to do: before everything else.
function Answer({ why, job }) {
  if (!why || why.job_id !== job.job_id || !why.answer) return null;
  const [words, command] = split(why.next_step);
  return html`<section class="card answer ${TERMINAL.has(job.state) && job.state !== "completed" ? "ended-badly" : ""}" aria-label="Who ended it, and what to do">
    <p class="headline"><strong>${why.answer}.</strong></p>
    <p class="step">${words} ${command && html`<${Command} text=${command} />`}</p>
    ${why.found.map((one) => html`<${Found} key=${`${one.workflow}/${one.attempt}`} one=${one} />`)}
  </section>`;
}

// "Mend it, then: tenure retry x" is words and a command to take along.
function split(step) {
  const at = step.lastIndexOf(": tenure ");
  return at < 0 ? [`${step}.`, ""] : [`${step.slice(0, at)}:`, step.slice(at + 2)];
}

const SHOWN_LINES = 12;

// What is read first of a long stack: a traceback ends with the error, and a dump of stacks begins with the innermost call.
function folded(text, endsWithError) {
  const lines = text.trimEnd().split("\n");
  const over = lines.length - SHOWN_LINES;
  if (over <= 0) return "";
  const keep = endsWithError ? 3 : SHOWN_LINES - 1;
  return [...lines.slice(0, keep), `  ... ${over + 1} lines ...`, ...lines.slice(keep + over + 1)].join("\n");
}

function Stack({ text, endsWithError }) {
  if (!text) return null;
  const short = folded(text, endsWithError);
  return html`<pre class="stack-text" tabindex="0" aria-label="Where it was">${short || text}</pre>
    ${short && html`<details><summary>All of its ${count(text.trimEnd().split("\n").length)} lines</summary><pre class="stack-text" tabindex="0" aria-label="All of it">${text}</pre></details>`}`;
}

function Found({ one }) {
  const stack = one.traceback || one.stacks.split("\n\n")[0];
  const [took, beats] = one.beats[one.beats.length - 1] || [];
  const words = [
    one.beats.length ? `${count(beats)} beats in ${exact(took)}${one.silent_s === null ? "" : `, the last ${exact(one.silent_s)} before its end`}` : "",
    one.note ? `last note: ${one.note}` : "",
    ...Object.entries(one.facts).filter(([, value]) => !value.includes("\n")).map(([key, value]) => `${key.replaceAll("_", " ")}: ${value}`),
  ].filter(Boolean);
  return html`<div class="found">
    <p class="quiet">${one.workflow}, attempt ${one.attempt}${one.worker ? `, on ${one.worker}` : ""}${words.length ? `: ${words.join("; ")}` : ""}</p>
    <${Stack} text=${stack} endsWithError=${Boolean(one.traceback)} />
    ${one.log.length ? html`<pre class="log" tabindex="0" aria-label="The end of its log">${one.log.slice(-8).join("\n")}</pre>` : null}
  </div>`;
}

function Workflow({ one, job }) {
  const ended = ["completed", "failed", "cancelled"].includes(one.state);
  return html`<div class="workflow">
    <div class="line">
      <strong>${one.name}</strong>${one.function !== one.name ? html`<span class="quiet">${one.function}</span>` : null}
      <${State} state=${one.state} /> <${Progress} fraction=${one.fraction} steps=${one.steps} ended=${ended} />
      <span class="quiet">${one.taken_from ? html`not run again: its result is that of <a href=${to("job", [one.taken_from])}>${one.taken_from}</a>` : `attempt ${one.attempt} of ${one.max_attempts}`}</span>
      ${one.eta && html`<span class="quiet" title="When it is done, by the rate of its progress and by earlier runs: the estimate, and its band">eta ${span(one.eta.left_s)} (${span(one.eta.soonest_s)} to ${one.eta.latest_s === null ? "open" : span(one.eta.latest_s)})</span>`}
      ${one.worker && html`<span class="quiet">${one.state === "running" ? "on" : "last on"} <a href=${to("workers", [one.worker])}>${one.worker}</a></span>`}
      ${one.started_at && !ended ? html`<span class="quiet">for <${Since} at=${one.started_at} full /></span>` : null}
    </div>
    ${Object.keys(one.arguments).length ? html`<div class="quiet arguments" title="Its arguments; secrets are masked">${Object.entries(one.arguments).map(([key, value]) => `${key}=${JSON.stringify(value)}`).join(", ")}</div>` : null}
    ${one.waits_for && html`<div class="waits">${one.state === "suspended" ? "suspended" : "parked"}: it waits for ${one.waits_for}${one.version && one.state === "suspended" ? html`<span class="quiet">, in version ${one.version}</span>` : null}</div>`}
    <${SignalForm} one=${one} job=${job} />
    ${Object.keys(one.exposed).length ? html`<dl class="exposed" title="What its code shows">${Object.entries(one.exposed).map(([key, value]) => html`<dt>${key}</dt><dd>${typeof value === "string" ? value : JSON.stringify(value)}</dd>`)}</dl>` : null}
    ${one.note && html`<div class="quiet">${one.note}</div>`}
    ${one.proof && html`<div class="quiet">${one.proof}</div>`}
    ${one.grants.length ? html`<${Grants} grants=${one.grants} />` : null}
    ${one.error && html`<pre class="bad">${/^[a-z_]+: /.test(one.error) || !one.cause ? one.error : `${one.cause}: ${one.error}`}</pre>`}
    ${one.state === "completed" && html`<details open=${job.workflows.length === 1}><summary>Result</summary><pre class="result">${job.results_expired ? "Its results were kept for as long as it asked, and are gone." : pretty(one.result)}</pre></details>`}
  </div>`;
}

const GOOD = new Set(["WorkflowCompleted", "JobEnded"]);
const POOR = new Set(["AttemptFailed", "WorkerEvicted", "LocalTimeout", "ExtensionDenied", "ResultRefused"]);
const BEGIN = new Set(["WorkflowStarted", "Dispatched", "JobSubmitted"]);
const tone = (kind, state) => (kind === "JobEnded" && state !== "completed" ? "poor" : GOOD.has(kind) ? "good" : POOR.has(kind) ? "poor" : BEGIN.has(kind) ? "begin" : "");

function Chain({ why, asking }) {
  if (!why) return html`<${Waiting} asking=${asking} what="its history" />`;
  const { links, elided, summary } = why.why;
  return html`<p><strong>${summary}</strong></p>
    <ol class="chain">${links.map((one, index) => html`<li key=${index} class=${tone(one.kind, why.why.state)}>
      <span class="at" title=${moment(one.at)}>+ ${span(one.after)}</span>
      <span class="what">${one.what}${one.by && one.by !== "leader" && !one.what.includes(one.by) ? html` <span class="quiet">(${one.by})</span>` : null}
        ${Object.keys(one.evidence || {}).length ? html`<details><summary>evidence</summary><pre>${pretty(one.evidence)}</pre></details>` : null}</span>
    </li>`)}</ol>
    ${elided ? html`<p class="quiet">${count(elided)} lines of routine were left out.</p>` : null}`;
}

const LOG_EVERY_MS = 2000;
const MOST_LINES = 2000;

// Logs and evidence of one attempt: read on while it runs.
class Said extends Component {
  constructor(props) {
    super(props);
    const one = props.job.workflows[0];
    this.state = { workflow: one?.name || "", attempt: 0, what: "logs", lines: [], next: 0, problem: null, found: undefined, ended: false };
  }
  componentDidMount() {
    this.choose({});
    this.timer = setInterval(() => !document.hidden && this.state.what === "logs" && !this.state.ended && this.readOn(), LOG_EVERY_MS);
  }
  componentWillUnmount() {
    this.gone = true;
    clearInterval(this.timer);
  }
  choose(change) {
    this.setState({ ...change, lines: [], next: 0, ended: false, problem: null, found: undefined }, () => this.readOn());
  }
  async readOn() {
    const { workflow, attempt, what, next } = this.state;
    const { job } = this.props;
    const chosen = workflow || job.workflows[0]?.name || "";
    const place = job.workflows.find(({ name }) => name === chosen)?.datacenter || "";
    // A gate names workflows by their datacenter; there they have their own names.
    const named = place && chosen.startsWith(`${place}/`) ? chosen.slice(place.length + 1) : chosen;
    const fields = { job_id: job.job_id, workflow: named, attempt, datacenter: place };
    const same = () => !this.gone && this.state.workflow === workflow && this.state.attempt === attempt && this.state.what === what && this.state.next === next;
    try {
      if (what === "evidence") {
        const reply = await read("evidence", fields);
        if (same()) this.setState({ found: reply.found, problem: null });
        return;
      }
      const page = await read("logs", { ...fields, offset: next });
      if (!same()) return;
      const lines = [...this.state.lines, ...page.lines].slice(-MOST_LINES);
      this.setState({ lines, next: page.next, ended: page.ended && !page.more, problem: null });
      if (page.more) this.readOn();
    } catch (problem) {
      if (!this.gone) this.setState({ problem });
    }
  }
  render({ job }, { workflow, attempt, what, lines, problem, found, ended }) {
    // A gate that has just accepted a job does not know its workflows yet.
    const one = job.workflows.find(({ name }) => name === workflow) || job.workflows[0];
    const tries = Array.from({ length: one?.attempt || 0 }, (_, index) => index + 1);
    const tab = (name, label) => html`<button type="button" aria-pressed=${String(what === name)} onClick=${() => this.choose({ what: name })}>${label}</button>`;
    return html`<div class="stack">
      <div class="tabs">${tab("logs", "Logs")} ${tab("evidence", "Evidence")}
        ${job.workflows.length > 1 && html`<select aria-label="Workflow" onChange=${(event) => this.choose({ workflow: event.currentTarget.value, attempt: 0 })}>${job.workflows.map(({ name }) => html`<option value=${name} selected=${name === workflow}>${name}</option>`)}</select>`}
        ${tries.length > 1 && html`<select aria-label="Attempt" onChange=${(event) => this.choose({ attempt: Number(event.currentTarget.value) })}><option value="0">newest attempt</option>${tries.map((number) => html`<option value=${number} selected=${number === attempt}>attempt ${number}</option>`)}</select>`}
      </div>
      ${problem && html`<${Problem} problem=${problem} />`}
      ${what === "logs" ? html`<${Log} lines=${lines} ended=${ended} />` : html`<${Evidence} found=${found} />`}
    </div>`;
  }
}

function Log({ lines, ended }) {
  if (!lines.length) return html`<p class="quiet">${ended ? "It logged nothing." : "It has logged nothing yet; what it logs comes here."}</p>`;
  return html`<pre class="log" tabindex="0" aria-label="Log">${lines.map((one, index) => html`<span key=${index} class=${(one.level || "").toLowerCase()}><span class="at">${time(one.at)}</span> ${one.text}${"\n"}</span>`)}</pre>`;
}

function Evidence({ found }) {
  if (found === undefined) return html`<p class="quiet">Reading …</p>`;
  if (found === null) return html`<p class="quiet">Nothing was kept of this attempt: it ended well, still runs, or is too long ago.</p>`;
  return html`<pre tabindex="0">${pretty(found)}</pre>`;
}

const MOST_EVENTS = 200;

class Events extends Component {
  constructor(props) {
    super(props);
    this.state = { events: [] };
  }
  componentDidMount() {
    this.unlisten = listen((name, event) => {
      if (mine(name, event)) this.setState(({ events }) => ({ events: [{ name, event }, ...events].slice(0, MOST_EVENTS) }));
    });
  }
  componentWillUnmount() {
    this.unlisten();
  }
  render(_, { events }) {
    if (!events.length) return html`<p class="quiet">Nothing yet. From the beginning: the chain above, or <code>tenure watch ${id()}</code>.</p>`;
    return html`<div class="scroll"><table><tbody>${events.map(({ name, event }) => html`<tr><td class="quiet">${time(event.at)}</td><td>${name}</td><td class="quiet">${facts(event)}</td></tr>`)}</tbody></table></div>`;
  }
}

const LEFT_OUT = new Set(["type", "at", "job_id", "evidence", "result", "submission"]);

function facts(event) {
  const found = Object.entries(event).filter(([key, value]) => !LEFT_OUT.has(key) && value !== "" && typeof value !== "object");
  return found.map(([key, value]) => `${key} ${String(value).slice(0, 120)}`).join(", ");
}
