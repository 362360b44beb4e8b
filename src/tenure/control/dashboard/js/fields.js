// A form from a JSON Schema: one field for each argument, and what was written there as the arguments of a submission.
// Only what cannot be sent at all is refused here (a JSON text that is none). Everything else is the door's to say, for every way to submit.
import { html } from "./view.js";

const JSON_KINDS = ["array", "object"];

// What a schema says of one value: its kind, its choices, and whether it may be null.
function described(schema, defs) {
  const own = schema.$ref ? { ...defs[schema.$ref.split("/").pop()], ...schema } : schema;
  const choices = own.anyOf?.map((one) => described(one, defs)) || [];
  const real = choices.filter((one) => one.kind !== "null");
  if (real.length === 1) return { ...real[0], nullable: real.length < choices.length, secret: real[0].secret || Boolean(own.writeOnly) };
  const kind = own.enum ? "enum" : choices.length || !own.type || JSON_KINDS.includes(own.type) ? "json" : own.type;
  return { kind, own, choices: own.enum || [], nullable: false, secret: Boolean(own.writeOnly) };
}

// The arguments in the order of the function: [{ name, required, kind, … }]. Null where the schema says nothing of them.
export function fieldsOf(schema) {
  if (!schema) return null;
  const defs = schema.$defs || {};
  const top = schema.$ref ? defs[schema.$ref.split("/").pop()] || {} : schema;
  const required = new Set(top.required || []);
  return Object.entries(top.properties || {}).map(([name, one]) => ({ name, required: required.has(name), ...described(one, defs) }));
}

// A page may have several forms: `place` keeps their fields apart.
const idOf = ({ name, place = "" }) => `argument-${place}${name}`;

function hint({ kind, required, nullable, secret, own }) {
  const words = { string: "text", integer: "whole number", number: "number", boolean: "yes or no", enum: "one of these", json: "JSON" }[kind] || kind;
  const bounds = [own?.minimum !== undefined && `at least ${own.minimum}`, own?.maximum !== undefined && `at most ${own.maximum}`].filter(Boolean);
  return [words, ...bounds, secret ? "shown to nobody" : "", required ? "required" : "left empty: its default", nullable && kind === "json" ? "null is allowed" : ""].filter(Boolean).join(", ");
}

function control(field, wrong) {
  const shared = { id: idOf(field), name: idOf(field), "aria-invalid": wrong ? "true" : undefined, "aria-required": field.required ? "true" : undefined, "aria-describedby": `${idOf(field)}-hint ${idOf(field)}-wrong` };
  if (field.kind === "boolean" || field.kind === "enum") {
    const choices = field.kind === "boolean" ? [true, false] : field.choices;
    return html`<select ...${shared}><option value="">${field.required ? "choose …" : "its default"}</option>
      ${choices.map((one) => html`<option value=${JSON.stringify(one)}>${one === true ? "yes" : one === false ? "no" : String(one)}</option>`)}</select>`;
  }
  if (field.kind === "json") return html`<textarea ...${shared} rows="3" spellcheck=${false} placeholder=${field.own?.type === "array" ? "[]" : "{}"}></textarea>`;
  const kind = field.secret ? "password" : "text";
  return html`<input ...${shared} type=${kind} inputmode=${{ integer: "numeric", number: "decimal" }[field.kind]} autocomplete="off" spellcheck=${false} />`;
}

// Marks and words beside the field that was refused: people who do not see the page are told the same.
export function Field({ field, wrong }) {
  return html`<div class="field ${wrong ? "refused" : ""}" data-field=${field.name}>
    <label for=${idOf(field)}>${field.name}</label>
    ${control(field, wrong)}
    <span class="quiet" id=${`${idOf(field)}-hint`}>${hint(field)}</span>
    <span class="wrong" id=${`${idOf(field)}-wrong`} role="alert">${wrong}</span>
  </div>`;
}

export class FieldError extends Error {
  constructor(name, message) {
    super(message);
    this.field = name;
  }
}

function parsed(name, text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new FieldError(name, `This is no JSON: ${error.message}`);
  }
}

// A number that is none is sent as it was written: the door says what is wrong with it, in the same words to everybody.
function numberOf(text) {
  const value = Number(text);
  return Number.isFinite(value) && text.trim() !== "" ? value : text;
}

function valueOf({ name, kind, required }, text) {
  if (text === "" && !(required && kind === "string")) return undefined;
  if (kind === "json" || kind === "enum" || kind === "boolean") return parsed(name, text);
  return kind === "integer" || kind === "number" ? numberOf(text) : text;
}

// What was written, as arguments. Empty fields are left out; an empty text counts where an argument must be given.
export function argumentsOf(fields, form) {
  const found = fields.map((field) => [field.name, valueOf(field, form.elements[idOf(field)].value)]);
  return Object.fromEntries(found.filter(([, value]) => value !== undefined));
}

// The field that a refusal is about, and what it says of it: "argument 'size.width' is 'x', and should be an integer" is about `size`.
// A signal's say "field 'payload.by' …": there `inside` is what stands before the name.
export function about(fact, fields, inside = "") {
  const [said, place] = /(?:argument|field) '([^']+)'.*/s.exec(fact) || ["", ""];
  const field = (place.startsWith(inside) ? place.slice(inside.length) : place).split(/[.[]/)[0];
  return fields.some((one) => one.name === field) ? { field, text: said } : { field: "", text: "" };
}

export function focusField(name, place = "") {
  document.getElementById(idOf({ name, place }))?.focus();
}
