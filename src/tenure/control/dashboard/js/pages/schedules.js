// Jobs that come again: when next, what became of the last, and what keeps one from firing.
import { dropSchedule, trigger } from "../acts.js";
import { Asking, page } from "../asking.js";
import { icon } from "../icons.js";
import { Command, Empty, Freshness, JobLink, Missing, Section, Waiting } from "../parts.js";
import { TimeLeft } from "../timeleft.js";
import { html } from "../view.js";
import { count, moment, span } from "../words.js";

export const Schedules = page(
  () => ({ schedules: new Asking("schedules", {}, { every: 5 }) }),
  ({ schedules }) => {
    const found = schedules.answer.value;
    return html`<div class="stack"><h1>Schedules</h1><${Freshness} asking=${schedules} /><${Missing} missing=${found?.missing} />
      <${Section} title="Jobs that come again">${found ? html`<${Table} schedules=${found.schedules} />` : html`<${Waiting} asking=${schedules} what="schedules" />`}<//></div>`;
  },
);

function Table({ schedules }) {
  if (!schedules.length) return html`<${Empty} title="Nothing is scheduled."><${Command} text="tenure schedule add nightly WORKFLOW --cron '0 3 * * *'" /><//>`;
  return html`<div class="scroll"><table>
    <thead><tr><th>schedule</th><th>when</th><th>next</th><th>last</th><th class="num">fired</th><th class="num">skipped</th><th><span class="sr">actions</span></th></tr></thead>
    <tbody>${schedules.map((one) => html`<${Row} key=${one.schedule.name + (one.datacenter || "")} one=${one} />`)}</tbody></table></div>`;
}

function Row({ one }) {
  const { name, cron, every_s, zone, paused } = one.schedule;
  return html`<tr>
    <td><strong>${name}</strong> ${one.datacenter ? html`<span class="quiet">in ${one.datacenter}</span>` : null} ${paused && html`<span class="flag">${icon("cancelled")} paused</span>`}</td>
    <td>${cron ? html`<code>${cron}</code> <span class="quiet">${zone}</span>` : `every ${span(every_s)}`}</td>
    <td>${one.problem ? html`<span class="bad">${one.problem}</span>` : one.next_at ? html`<${TimeLeft} key=${one.next_at} grant=${{ kind: "rest", until: one.next_at, span_s: every_s || 0, note: moment(one.next_at) }} label="in" />` : "never"}</td>
    <td>${one.last_job ? html`<${JobLink} id=${one.last_job} name=${moment(one.last_instant) || one.last_job} />` : "–"}</td>
    <td class="num">${count(one.fired)}</td>
    <td class="num" title=${one.last_skipped}>${count(one.skipped)}</td>
    <td class="end">${trigger(one)} ${dropSchedule(one)}</td>
  </tr>`;
}
