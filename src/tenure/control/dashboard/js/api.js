// The same HTTP API that everybody uses. Answers, or throws a Refusal that says what to do.
import { known, steady, synchronize } from "./clock.js";
import { signal } from "./view.js";

const KEPT = "tenure-token";
const PATIENCE_MS = 20_000;
const RETRY_FOR_S = 30;
const RETRY_EVERY_S = 0.5;

export const wantsToken = signal(false); // nobody knows who we are

export class Refusal extends Error {
  constructor(status, problem) {
    super(problem.fact);
    this.status = status;
    this.kind = problem.kind;
    this.remedy = problem.remedy || "";
    this.page = problem.page || "";
    this.retryAfter = problem.retry_after_s || 0;
    this.passing = status === 0 || status === 429 || status === 503; // it may well be done the next time
  }
}

// Of this tab, until it is closed: never in a cookie, an address or a longer memory.
export function token() {
  try {
    return sessionStorage.getItem(KEPT) || "";
  } catch {
    return "";
  }
}

export function keepToken(given) {
  try {
    if (given) sessionStorage.setItem(KEPT, given);
    else sessionStorage.removeItem(KEPT);
  } catch {
    // Without storage it is asked for again with each load of the page.
  }
}

export function headers(more = {}) {
  const mine = token();
  // A manager that does not lead asks the leader for us: a browser would not follow it to another host.
  return { "X-Tenure-Follow": "leader", ...(mine ? { Authorization: `Bearer ${mine}` } : {}), ...more };
}

export function read(name, fields = {}) {
  const given = Object.entries(fields).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const query = new URLSearchParams(given.map(([key, value]) => [key, String(value)])).toString();
  return call(`/v1/${name}${query ? `?${query}` : ""}`, { headers: headers({ Accept: "application/json" }) });
}

// Every request may be sent again: so what is asked for while a leader is being elected is done by the next one. `told` hears of each retry.
export async function write(name, fields, told = () => {}) {
  const more = { "Content-Type": "application/json", Accept: "application/json" };
  const until = steady() + RETRY_FOR_S;
  for (;;) {
    try {
      return await call(`/v1/${name}`, { method: "POST", headers: headers(more), body: JSON.stringify(fields) });
    } catch (error) {
      const wait = Math.max(RETRY_EVERY_S, error.retryAfter);
      if (!error.passing || steady() + wait > until) throw error;
      told(error);
      await new Promise((done) => setTimeout(done, wait * 1000));
    }
  }
}

async function call(path, options) {
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort(), PATIENCE_MS);
  const sentAt = steady();
  try {
    const answer = await fetch(path, { ...options, redirect: "manual", cache: "no-store", signal: stop.signal });
    if (answer.type === "opaqueredirect") {
      throw new Refusal(503, { kind: "unavailable", fact: "only the leader can say, and it does not answer" });
    }
    const reply = await answer.json();
    if (!answer.ok) refuse(answer.status, reply);
    if (typeof reply.now === "number") synchronize(reply.now, sentAt, steady());
    return reply;
  } catch (error) {
    if (error instanceof Refusal) throw error;
    const fact = error.name === "AbortError" ? "the manager did not answer in time" : "the manager cannot be reached";
    throw new Refusal(0, { kind: "unreachable", fact });
  } finally {
    clearTimeout(timer);
  }
}

function refuse(status, problem) {
  if (status === 401) wantsToken.value = true;
  throw new Refusal(status, problem.fact ? problem : { kind: "failed", fact: `it answered ${status}` });
}

export { known };
