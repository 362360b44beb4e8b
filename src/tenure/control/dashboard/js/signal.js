// What a suspended workflow waits for, and a form to send it, made from the schema that its author declared.
import { BY, outcome } from "./acts.js";
import { write } from "./api.js";
import { say } from "./dialog.js";
import { about, argumentsOf, Field, fieldsOf, focusField } from "./fields.js";
import { may } from "./session.js";
import { html, live, signal } from "./view.js";

const WHOLE = { name: "payload", kind: "json", required: false };

// The refusal, and the form that it is about: a page may have several.
const refused = signal({ form: "", field: "", text: "", busy: false });

// An object is written field by field. Any other payload is one field.
function fieldsOfSignal({ name, signal_shape: shape }) {
  const [payload] = shape ? fieldsOf(shape) : [WHOLE];
  const inner = payload.own?.properties ? fieldsOf({ ...payload.own, $defs: shape.$defs }) : [];
  const fields = inner.length ? inner : [payload];
  return { fields: fields.map((field) => ({ ...field, place: `${name}-` })), whole: !inner.length };
}

export const SignalForm = live(({ one, job }) => {
  if (!one.signal || !may("signal_job")) return null;
  const form = `${job.job_id}/${one.name}/${one.signal}`;
  const { field, text, busy, form: wrong } = refused.value;
  const mine = wrong === form;
  const { fields } = fieldsOfSignal(one);
  return html`<form class="start signal" data-signal=${one.signal} noValidate aria-label=${`Send ${one.signal}`} onSubmit=${(event) => send(event, form, one, job)}>
    ${fields.map((each) => html`<${Field} key=${each.name} field=${each} wrong=${mine && each.name === field ? text : ""} />`)}
    <p class="wrong" role="alert">${mine && !field ? text : ""}</p>
    <div class="actions"><button type="submit" class="primary" data-act="signal_job" disabled=${mine && busy}>Send ${one.signal}</button></div>
  </form>`;
});

// Sent again it is the same signal: its id is made once for each press.
async function send(event, form, one, job) {
  event.preventDefault();
  const element = event.currentTarget;
  const { fields, whole } = fieldsOfSignal(one);
  const random = crypto.getRandomValues(new Uint32Array(3));
  const signalId = `${BY}-${[...random].map((part) => part.toString(36)).join("")}`;
  refused.value = { form, field: "", text: "", busy: true };
  try {
    const told = (error) => (refused.value = { form, field: "", text: `${error.message}. Trying again …`, busy: true });
    const written = argumentsOf(fields, element);
    const payload = whole ? (written.payload ?? null) : written;
    const reply = await write("signal_job", { job_id: job.job_id, name: one.signal, signal_id: signalId, payload, by: BY }, told);
    refused.value = { form, field: "", text: "", busy: false };
    element.reset();
    say(outcome(reply, `${one.signal} is sent.`));
  } catch (error) {
    const said = error.field ? { field: error.field, text: error.message } : about(error.message, fields, whole ? "" : "payload.");
    refused.value = { form, field: said.field, text: said.text || `${error.message}. ${error.remedy || ""}`.trim(), busy: false };
    if (said.field) requestAnimationFrame(() => focusField(said.field, `${one.name}-`));
  }
}
