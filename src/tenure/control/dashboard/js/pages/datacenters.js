// What a gate sees: its datacenters, their class, and why.
import { Asking, page } from "../asking.js";
import { icon } from "../icons.js";
import { Command, Empty, Freshness, Section, Waiting } from "../parts.js";
import { may } from "../session.js";
import { html } from "../view.js";
import { count } from "../words.js";

const DRAWING = { HEALTHY: "done", BUSY: "running", DEGRADED: "look", UNHEALTHY: "wrong", UNKNOWN: "note" };
const TONE = { HEALTHY: "route", BUSY: "route", DEGRADED: "investigate", UNHEALTHY: "evict", UNKNOWN: "" };

export const Datacenters = page(
  () => ({ gate: new Asking("gate", {}, { when: () => may("gate") }) }),
  ({ gate }) => {
    if (!may("gate")) return html`<div class="stack"><h1>Datacenters</h1><p>This token may not ask how the gate is; jobs, workers and queues of all datacenters are on their pages.</p></div>`;
    const found = gate.answer.value;
    if (!found) return html`<${Waiting} asking=${gate} what="the datacenters" />`;
    const bad = found.datacenters.filter((one) => one.health !== "HEALTHY" && one.health !== "BUSY");
    return html`<div class="stack"><h1 class="sr">Datacenters</h1><${Freshness} asking=${gate} />
      <section class="health ${bad.length ? "look" : "well"}"><h2 aria-live="polite">${icon(bad.length ? "look" : "done")} ${bad.length ? `${bad.map((one) => one.name).join(", ")}: not well` : "All datacenters are well"}</h2>
        <ul>${found.link_suspect && html`<li class="look"><span class="severity">${icon("look")} Look</span><span class="text">Several datacenters fail at once: this gate's own link is suspected, and their classes are held.</span></li>`}
          ${found.overload_state !== "healthy" && html`<li class="look"><span class="severity">${icon("look")} Look</span><span class="text">The gate is ${found.overload_state}: ${found.overload_reason}</span></li>`}</ul></section>
      <${Section} title="Datacenters">${found.datacenters.length ? html`<${Table} places=${found.datacenters} />` : html`<${Empty} title="This gate knows no datacenter.">Name them when it starts: <${Command} text="tenure gate --datacenter NAME=HOST:PORT" /><//>`}<//>
      <${Section} title="This gate"><div class="facts"><span>name <b>${found.gate_id}</b></span><span><b>${found.leads ? "leads" : "stands by"}</b>, epoch <b>${found.epoch}</b></span>
        <span>jobs tracked <b>${count(found.jobs_tracked)}</b></span><span>waiting <b>${count(found.jobs_waiting)}</b></span><span>datacenters connected <b>${found.connected_dc_count}</b></span></div><//>
    </div>`;
  },
);

function Table({ places }) {
  return html`<div class="scroll"><table><thead><tr><th>datacenter</th><th>class</th><th>why</th><th class="num">capacity</th><th class="num">round trip</th></tr></thead>
    <tbody>${places.map((one) => html`<tr key=${one.name}><td><strong>${one.name}</strong></td>
      <td><span class="verdict ${TONE[one.health] || ""}">${icon(DRAWING[one.health] || "note")} ${one.health.toLowerCase()}</span>${one.held ? html` <span class="flag">held</span>` : null}</td>
      <td>${one.reason}</td><td class="num">${count(one.capacity)}</td><td class="num">${one.latency_ms.toFixed(0)} ms</td></tr>`)}</tbody></table></div>`;
}
