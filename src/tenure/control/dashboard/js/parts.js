// What several pages show in the same way.
import { now, second } from "./clock.js";
import { icon } from "./icons.js";
import { to } from "./route.js";
import { Ticking } from "./ticking.js";
import { Component, html, live } from "./view.js";
import { brief, moment, percent, some, span } from "./words.js";

const STATES = {
  pending: ["waiting", "pending"],
  waiting: ["waiting", "waiting"],
  queued: ["waiting", "queued"],
  running: ["running", "running"],
  completed: ["done", "completed"],
  failed: ["failed", "failed"],
  cancelled: ["cancelled", "cancelled"],
  timed_out: ["late", "timed out"],
};
export const TERMINAL = new Set(["completed", "failed", "cancelled", "timed_out"]);

export function State({ state }) {
  const [drawing, words] = STATES[state] || ["note", state];
  return html`<span class="state ${state}">${icon(drawing)} ${words}</span>`;
}

export function Verdict({ verdict }) {
  const drawing = { route: "done", investigate: "look", drain: "cancelled", evict: "wrong" }[verdict] || "note";
  const words = { route: "takes work", investigate: "one at a time", drain: "no new work", evict: "evicted" };
  return html`<span class="verdict ${verdict}">${icon(drawing)} ${words[verdict] || verdict}</span>`;
}

export function Progress({ fraction, steps = null, ended = false }) {
  if (fraction === null || fraction === undefined) {
    return steps ? html`<span class="progress"><span class="number">${some(steps, "step")}</span></span>` : html`<span class="quiet">–</span>`;
  }
  const width = `scaleX(${Math.max(0, Math.min(1, fraction)).toFixed(4)})`;
  return html`<span class="progress ${ended ? "ended" : ""}" role="img" aria-label=${percent(fraction)}>
    <span class="track"><span class="fill" style=${{ transform: width }}></span></span>
    <span class="number">${percent(fraction)}</span>
  </span>`;
}

// "4 min" since a time, ticking.
export class Since extends Ticking {
  write() {
    const { at, full } = this.props;
    const said = (full ? span : brief)(now() - at);
    if (this.root.textContent !== said) this.root.textContent = said;
  }
  render({ at }) {
    return html`<time title=${moment(at)} ref=${this.found}></time>`;
  }
}

export function JobLink({ id, name = "" }) {
  return html`<a class="job-link" href=${to("job", [id])}>${name || id}</a>`;
}

// A command that helps, ready to be taken along.
export function Command({ text }) {
  const copy = (event) => {
    const button = event.currentTarget;
    navigator.clipboard?.writeText(text).then(() => {
      button.classList.add("copied");
      setTimeout(() => button.classList.remove("copied"), 1200);
    });
  };
  return html`<span class="command"><code>${text}</code><button type="button" class="plain" title="Copy" aria-label=${`Copy: ${text}`} onClick=${copy}>${icon("copy")}</button></span>`;
}

export function Empty({ title, children }) {
  return html`<div class="empty"><strong>${title}</strong><div>${children}</div></div>`;
}

// While there is no answer yet, or none can be had, that is what is said.
export const Waiting = live(({ asking, what }) => {
  const problem = asking.problem.value;
  if (problem) return html`<${Problem} problem=${problem} what=${what} />`;
  return html`<p class="quiet loading">Reading ${what} …</p>`;
});

export function Problem({ problem, what = "" }) {
  return html`<div class="problem" role="alert">${icon("look")} <span>${what ? `${what}: ` : ""}${problem.message}. ${problem.remedy} <${ErrorPage} page=${problem.page} /></span></div>`;
}

// Where to read about an error: a link where the operator has a site of the documentation (TENURE_DOCS), else the place in the repository.
export function ErrorPage({ page = "" }) {
  if (!page) return null;
  return /^https?:\/\//.test(page) ? html`<a href=${page} target="_blank" rel="noreferrer">What this means</a>` : html`<span class="quiet">See ${page}</span>`;
}

// An answer that was not renewed for a while is marked, although the connection may seem to be there.
export const Freshness = live(({ asking }) => {
  second.value;
  const problem = asking.problem.value;
  if (!problem || !asking.answer.value) return null;
  return html`<div class="problem" role="status">${icon("look")} <span>This is from before: ${problem.message}. ${problem.remedy}</span></div>`;
});

export function Section({ title, children, aside = null, id = "" }) {
  return html`<section class="card" id=${id || undefined}><header><h2>${title}</h2>${aside}</header>${children}</section>`;
}

// A mistake of ours in one page must not leave a picture that looks alive.
export class Guard extends Component {
  componentDidCatch(error) {
    console.error(error);
    this.setState({ error });
  }
  render({ children }, { error }) {
    if (!error) return children;
    return html`<div class="problem" role="alert">${icon("wrong")} <span>This page failed: ${error.message}. <button type="button" onClick=${() => location.reload()}>Load it again</button></span></div>`;
  }
}

// Where a gate answers: datacenters whose part is not there.
export function Missing({ missing }) {
  return (missing || []).map((one) => html`<div class="problem" role="status">${icon("look")} <span>${one.datacenter} is not in this: ${one.reason}</span></div>`);
}
