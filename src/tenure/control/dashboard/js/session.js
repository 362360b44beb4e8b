// Who we are here, and what we may do: buttons that would be refused are not shown.
import { keepToken, read, wantsToken } from "./api.js";
import { batch, signal } from "./view.js";

export const me = signal(null);
export const trouble = signal(null); // why we do not know yet

export const may = (operation) => me.value !== null && me.value.may.includes(operation);
export const isGate = () => me.value !== null && me.value.node === "gate";

export async function begin() {
  for (;;) {
    try {
      me.value = await read("me");
      trouble.value = null;
      wantsToken.value = false;
      return;
    } catch (error) {
      trouble.value = error;
      if (error.status === 401) return;
      await new Promise((done) => setTimeout(done, 1000 * Math.max(1, error.retryAfter || 0)));
    }
  }
}

// Resolves to an empty text, or to what is wrong with it.
export async function enter(token) {
  keepToken(token);
  try {
    me.value = await read("me");
    wantsToken.value = false;
    trouble.value = null;
    return "";
  } catch (error) {
    keepToken("");
    return error.status === 401 ? "This token is not known here." : `${error.message}. ${error.remedy}`;
  }
}

export function leave() {
  keepToken("");
  batch(() => {
    wantsToken.value = true;
    me.value = null;
  });
}
