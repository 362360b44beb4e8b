// What workers serve, and a form to start one of them.
import { BY } from "../acts.js";
import { write } from "../api.js";
import { Asking, page } from "../asking.js";
import { say } from "../dialog.js";
import { about, argumentsOf, Field, fieldsOf, focusField } from "../fields.js";
import { icon } from "../icons.js";
import { Command, Empty, Freshness, Missing, Section, Waiting } from "../parts.js";
import { go, route, to } from "../route.js";
import { may } from "../session.js";
import { html, live, signal } from "../view.js";
import { brief, count, moment, some } from "../words.js";

const OTHER = { name: "name", kind: "string", required: true };
const WHOLE = { name: "arguments", kind: "json", required: false };

const refused = signal({ field: "", text: "", busy: false });

export const Workflows = page(
  () => ({ workflows: new Asking("workflows", {}, { every: 5 }) }),
  ({ workflows }) => {
    const found = workflows.answer.value;
    const [name] = route.value.parts;
    return html`<div class="stack"><h1>${name ? `Start ${name}` : route.value.fields.get("new") ? "Start another workflow" : "Workflows"}</h1>
      <${Freshness} asking=${workflows} /><${Missing} missing=${found?.missing} />
      ${found ? html`<${Body} found=${found.workflows} name=${name} />` : html`<${Waiting} asking=${workflows} what="the workflows" />`}</div>`;
  },
);

function Body({ found, name }) {
  const fields = route.value.fields;
  if (!name && !fields.get("new")) return html`<${Section} title="What workers serve" aside=${another()}><${Table} found=${found} /><//>`;
  const back = html`<p><a href=${to("workflows")}>All workflows</a></p>`;
  if (!name) return html`${back}<${Section} title="A workflow that no worker has registered yet"><${Form} key="new" /><//>`;
  const one = found.find((entry) => entry.served.name === name && entry.served.version === fields.get("version") && (entry.datacenter || "") === (fields.get("datacenter") || ""));
  if (!one) return html`${back}<div class="card"><${Empty} title=${`Nobody has registered ${name} within 7 days.`}>Start a worker that has it, or take another one.<//></div>`;
  return html`${back}<${Section} title=${title(one)}><${About} one=${one} /><${Form} key=${name + one.served.version + one.datacenter} one=${one} /><//>`;
}

const another = () => (may("submit") ? html`<a class="button" href=${to("workflows", [], { new: "1" })}>Start another name</a>` : null);
const start = ({ served, datacenter }) => to("workflows", [served.name], { version: served.version, datacenter });
const title = ({ served, datacenter }) => html`${served.name} <span class="quiet">version ${served.version}${datacenter ? ` in ${datacenter}` : ""}</span>`;

function Table({ found }) {
  if (!found.length) return html`<${Empty} title="No worker has registered a workflow yet.">One that serves your module: <${Command} text="tenure worker app.py --managed --engine URL" /><//>`;
  return html`<div class="scroll"><table>
    <thead><tr><th>workflow</th><th>version</th><th>served by</th><th>queues</th><th class="num">waiting for a worker</th><th class="num">usually takes</th><th><span class="sr">actions</span></th></tr></thead>
    <tbody>${found.map((one) => html`<tr key=${one.served.name + one.served.version + (one.datacenter || "")} data-workflow=${one.served.name}>
      <td><strong>${one.served.name}</strong> ${one.datacenter ? html`<span class="quiet">in ${one.datacenter}</span>` : null}<div class="quiet">${one.served.description || one.served.source}</div></td>
      <td>${one.served.version}</td>
      <td>${one.workers.length ? html`<span title=${one.workers.join(", ")}>${some(one.workers.length, "worker")}</span>` : html`<span class="flag">${icon("look")} nobody${one.gone_at ? ` since ${moment(one.gone_at)}` : ""}</span>`}</td>
      <td class="quiet">${one.queues.join(", ") || "–"}</td>
      <td class="num">${count(one.parked)}</td>
      <td class="num">${one.usual_s ? brief(one.usual_s) : "–"}</td>
      <td class="end">${may("submit") ? html`<a class="button" data-act="submit" href=${start(one)}>Start …</a>` : null}</td>
    </tr>`)}</tbody></table></div>`;
}

function About({ one: { served, workers, queues } }) {
  const facts = [
    ["queue", served.queue || (queues.length === 1 ? queues[0] : "")],
    ["attempts", served.retry?.max_attempts],
    ["stall", served.stall && brief(served.stall)],
    ["job timeout", served.job_timeout && brief(served.job_timeout)],
    ["result", served.result],
    ["code", served.source],
  ];
  return html`${served.description && html`<p>${served.description}</p>`}
    ${workers.length ? null : html`<p class="flag">${icon("look")} No worker serves it now: what you start waits for one.</p>`}
    <div class="facts">${facts.filter(([, value]) => value).map(([name, value]) => html`<span>${name} <b>${value}</b></span>`)}</div>`;
}

const Form = live(({ one }) => {
  if (!may("submit")) return html`<p class="quiet">This token may look, and start nothing.</p>`;
  const { field, text, busy } = refused.value;
  const fields = formFields(one);
  return html`<form class="start" noValidate onSubmit=${(event) => submit(event, one)} ref=${begin}>
    ${fields.length ? fields.map((each) => html`<${Field} key=${each.name} field=${each} wrong=${each.name === field ? text : ""} />`) : html`<p class="quiet">It takes no arguments.</p>`}
    <div class="field"><label for="start-queue">queue</label><input id="start-queue" name="queue" autocomplete="off" spellcheck=${false} /><span class="quiet">left empty: that of its function, or of its workers</span></div>
    <div class="field"><label class="check"><input type="checkbox" name="park" aria-describedby="park-hint" /> park</label><span class="quiet" id="park-hint">accept it also when no worker has registered it: it waits for one that serves it</span></div>
    <p class="wrong" role="alert">${field ? "" : text}</p>
    <div class="actions"><a class="button" href=${to("workflows")}>Leave it</a><button type="submit" class="primary" disabled=${busy}>Start</button></div>
  </form>`;
});

const formFields = (one) => (one ? fieldsOf(one.served.arguments) || [WHOLE] : [OTHER, WHOLE]);

// A new form has nothing wrong with it yet, and its first field is where people begin to write.
function begin(form) {
  if (!form || form.dataset.begun) return;
  form.dataset.begun = "yes";
  refused.value = { field: "", text: "", busy: false };
  form.querySelector("input, select, textarea")?.focus();
}

// Sent again it is the same job: the id is made once for each press.
function submission(form, one, written) {
  const name = one ? one.served.name : written.name;
  const whole = one && fieldsOf(one.served.arguments);
  const random = crypto.getRandomValues(new Uint32Array(3));
  const spec = { name, arguments: whole ? written : written.arguments || {}, ...(one ? { version: one.served.version } : {}) };
  return {
    job_id: `${name}-${[...random].map((part) => part.toString(36)).join("")}`,
    workflows: [spec],
    queue: form.elements.queue.value.trim(),
    park: form.elements.park.checked,
    submitted_by: BY,
    ...(one?.datacenter ? { target_datacenters: [one.datacenter] } : {}),
  };
}

async function submit(event, one) {
  event.preventDefault();
  const form = event.currentTarget;
  const fields = formFields(one);
  refused.value = { field: "", text: "", busy: true };
  try {
    const told = (error) => (refused.value = { field: "", text: `${error.message}. Trying again …`, busy: true });
    const reply = await write("submit", { submission: submission(form, one, argumentsOf(fields, form)) }, told);
    refused.value = { field: "", text: "", busy: false };
    go(to("job", [reply.job_id]));
    say(`${reply.job_id} is submitted.`);
  } catch (error) {
    const whole = `${error.message}. ${error.remedy || ""}`.trim();
    const { field, text } = error.field ? { field: error.field, text: error.message } : about(error.message, fields);
    refused.value = { field, text: text || whole, busy: false };
    if (field) requestAnimationFrame(() => focusField(field));
  }
}
