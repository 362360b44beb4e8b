// Asks before something is done, and says what became of it.
import { html, live, signal } from "./view.js";

const asked = signal(null);
const problem = signal({ text: "", busy: false });
export const said = signal(null);
let clearing = 0;

// `act` resolves to words for people, or throws a refusal.
export function confirm({ title, text, button, act, danger = false, field = "", required = false, amount = null }) {
  problem.value = { text: "", busy: false };
  asked.value = { title, text, button, act, danger, field, required, amount, back: document.activeElement };
}

export function say(text, kind = "good") {
  said.value = { text, kind };
  clearTimeout(clearing);
  clearing = setTimeout(() => (said.value = null), kind === "bad" ? 15_000 : 6_000);
}

function close() {
  asked.value?.back?.focus?.();
  asked.value = null;
}

// It stays open until it is done or given up: what went wrong is said where it was asked for.
async function go(event) {
  event.preventDefault();
  const { act } = asked.value;
  const words = event.currentTarget.elements.reason?.value.trim() || "";
  const amount = event.currentTarget.elements.amount?.value.trim() || "";
  problem.value = { text: "", busy: true };
  try {
    say(await act(words, (error) => (problem.value = { text: error.retryAfter === undefined ? error.message : `${error.message}. Trying again …`, busy: true }), amount));
    close();
  } catch (error) {
    problem.value = { text: `${error.message}. ${error.remedy || ""}`, busy: false };
  }
}

function open(element) {
  if (element && !element.open) element.showModal();
}

export const Dialogs = live(() => {
  const one = asked.value;
  return html`<div class="said" role="status" aria-live="polite">${said.value && html`<p class=${said.value.kind}>${said.value.text} <button type="button" class="plain" onClick=${() => (said.value = null)}>Dismiss</button></p>`}</div>
    ${one &&
    html`<dialog ref=${open} onCancel=${close} aria-labelledby="ask-title">
      <form onSubmit=${go}>
        <h2 id="ask-title">${one.title}</h2>
        <p>${one.text}</p>
        ${one.amount && html`<label>${one.amount.label}<input name="amount" type="number" min=${one.amount.least} step="any" value=${one.amount.value} required autocomplete="off" /></label>`}
        ${one.field && html`<label>${one.field}<input name="reason" autocomplete="off" maxlength="200" required=${one.required} /></label>`}
        <p class="wrong" role="alert">${problem.value.text}</p>
        <div class="actions">
          <button type="button" onClick=${close} autofocus>Leave it</button>
          <button type="submit" class="act ${one.danger ? "danger" : "primary"}" disabled=${problem.value.busy}>${one.button}</button>
        </div>
      </form>
    </dialog>`}`;
});
