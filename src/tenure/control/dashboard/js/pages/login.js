// Where tokens are wanted: one is asked for, tried, and kept for this tab only.
import { enter } from "../session.js";
import { html, live, signal } from "../view.js";

const wrong = signal("");
const busy = signal(false);

async function submit(event) {
  event.preventDefault();
  const field = event.currentTarget.elements.token;
  busy.value = true;
  wrong.value = await enter(field.value.trim());
  busy.value = false;
  if (wrong.value) {
    field.value = "";
    field.focus();
  }
}

const focus = (element) => element && !element.value && element.focus();

export const Login = live(
  () => html`<main class="first">
    <form class="card login" onSubmit=${submit}>
      <h1>Tenure</h1>
      <p>This node wants to know who asks. Give a token; it is kept in this tab, and forgotten when you close it.</p>
      <label for="token">Token</label>
      <input id="token" name="token" type="password" autocomplete="off" spellcheck=${false} required ref=${focus} aria-describedby="wrong" />
      <p id="wrong" class="wrong" role="alert">${wrong.value}</p>
      <button class="primary" disabled=${busy.value}>Enter</button>
      <p class="quiet">An operator makes one with <code>tenure token create NAME --role reader</code>; a reader may look and change nothing.</p>
    </form>
  </main>`,
);
