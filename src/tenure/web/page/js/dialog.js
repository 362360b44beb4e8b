// Asks before something is done, and says what became of it.
import { html, live, signal } from "./view.js";

const asked = signal(null);
export const said = signal(null);
let clearing = 0;

// `act` resolves to words for people, or throws a refusal.
export function confirm({ title, text, button, act, danger = false, field = "" }) {
  asked.value = { title, text, button, act, danger, field, back: document.activeElement };
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

async function go(event) {
  event.preventDefault();
  const { act } = asked.value;
  const form = event.currentTarget;
  const words = form.elements.reason?.value.trim() || "";
  form.querySelector("button.act").disabled = true;
  try {
    say(await act(words));
    close();
  } catch (error) {
    say(`${error.message}. ${error.remedy || ""}`, "bad");
    close();
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
        ${one.field && html`<label>${one.field}<input name="reason" autocomplete="off" maxlength="200" /></label>`}
        <div class="actions">
          <button type="button" onClick=${close} autofocus>Leave it</button>
          <button type="submit" class="act ${one.danger ? "danger" : "primary"}">${one.button}</button>
        </div>
      </form>
    </dialog>`}`;
});
