// Who does the work, how they are, and what runs where with how much time left.
import { drain, undrain } from "../acts.js";
import { Asking, page } from "../asking.js";
import { icon } from "../icons.js";
import { Command, Empty, Freshness, JobLink, Missing, Progress, Section, Since, Verdict, Waiting } from "../parts.js";
import { route } from "../route.js";
import { Grants, TimeLeft } from "../timeleft.js";
import { html } from "../view.js";
import { brief, count, moment, some } from "../words.js";

export const Workers = page(
  () => ({ nodes: new Asking("nodes", { attempts: true }) }),
  ({ nodes }) => {
    const found = nodes.answer.value;
    if (!found) return html`<${Waiting} asking=${nodes} what="the workers" />`;
    const only = route.value.parts[0];
    const shown = only ? found.workers.filter((one) => one.name === only) : found.workers;
    return html`<div class="stack">
      <h1>${only ? `Worker ${only}` : "Workers"}</h1>
      <${Freshness} asking=${nodes} /><${Missing} missing=${found.missing} />
      ${only && html`<p><a href="#/workers">All ${some(found.workers.length, "worker")}</a></p>`}
      ${shown.length
        ? shown.map((one) => html`<${Worker} key=${one.name + (one.datacenter || "")} one=${one} />`)
        : html`<div class="card"><${Empty} title=${only ? `${only} is not here.` : "No worker is here."}>
            ${only ? "It left, or was forgotten after its eviction." : "One that serves your module:"} <${Command} text="tenure worker app.py --managed --engine URL" /><//></div>`}
    </div>`;
  },
);

function Worker({ one }) {
  const here = one.incarnation !== "";
  const title = html`${one.name} ${one.datacenter ? html`<span class="quiet">in ${one.datacenter}</span>` : null}`;
  const aside = html`<span class="actions">${one.drained ? undrain(one) : here ? drain(one) : null}</span>`;
  return html`<${Section} title=${title} aside=${aside}>
    <div class="workflow">
      <div class="line">
        <${Verdict} verdict=${one.verdict} />
        ${one.drained && html`<span class="flag">${icon("cancelled")} drained by an operator</span>`}
        ${one.running ? html`<span class="quiet" title="Work since its attempts last saved: it would be done again if they ended now">${brief(one.loss_s)} not saved</span>` : null}
        ${one.moved ? html`<span class="quiet">${count(one.moved)} left, ${brief(one.lost_s)} of work lost</span>` : null}
        ${one.health && html`<span>class <strong>${one.health}</strong></span>`}
        ${here && html`<span>${one.slots - one.free} of ${some(one.slots, "slot")} busy</span>`}
        ${here && html`<span class="quiet">last proof ${brief(one.heard_s_ago)} ago</span>`}
        ${one.since ? html`<span class="quiet">so for <${Since} at=${one.since} full /> (${moment(one.since)})</span>` : null}
        ${here && one.grants.map((grant) => html`<${TimeLeft} key=${grant.kind} grant=${grant} />`)}
      </div>
      ${one.reason && one.verdict !== "route" ? html`<div>${one.reason}</div>` : null}
      <div class="facts">
        ${one.lanes.length ? html`<span>serves <b>${one.lanes.join(", ")}</b></span>` : null}
        ${here && html`<span>extensions left <b>${one.extensions_left}</b></span>`}
        ${one.version && html`<span>version <b>${one.version}</b></span>`}
        ${here && Math.abs(one.skew_s) >= 0.5 ? html`<span>clock <b>${one.skew_s.toFixed(1)} s</b> ahead (harmless)</span>` : null}
        ${one.gossip && html`<span>by gossip <b>${one.gossip}</b></span>`}
        ${one.incarnation && html`<span>start <b>${one.incarnation}</b></span>`}
      </div>
    </div>
    ${one.attempts.map((run) => html`<div class="workflow" key=${run.job_id + run.workflow}>
      <div class="line"><${JobLink} id=${run.job_id} /> <span class="quiet">${run.workflow}, attempt ${run.attempt}</span> <${Progress} fraction=${run.fraction} steps=${run.steps} /> <${Grants} grants=${run.grants} /></div>
      ${run.note && html`<div class="quiet">${run.note}</div>`}
    </div>`)}
    ${here && !one.attempts.length ? html`<p class="quiet">It runs nothing.</p>` : null}
  <//>`;
}
