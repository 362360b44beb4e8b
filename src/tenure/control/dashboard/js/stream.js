// What the datacenter decides, as it is decided: server-sent events over fetch, because an EventSource cannot show a token.
// It resumes after the last event that was seen, and it always says whether it is connected, since when, and when it tries again.
import { headers, wantsToken } from "./api.js";
import { steady } from "./clock.js";
import { signal } from "./view.js";

const SILENT_MS = 25_000; // a beat comes every 10 s: without one for this long, the line is dead though nobody said so
const FIRST_RETRY_S = 0.5;
const LAST_RETRY_S = 5;

export const line = signal({ up: false, since: 0, reason: "connecting", retryAt: 0, tries: 0 });
const listeners = new Set();
let last = "";

export function listen(hear) {
  listeners.add(hear);
  return () => listeners.delete(hear);
}

function tell(name, event) {
  for (const hear of listeners) hear(name, event);
}

function down(reason, retryS) {
  const { up, since, tries } = line.value;
  line.value = {
    up: false,
    since: up || !since ? Date.now() : since,
    reason,
    retryAt: steady() + retryS,
    tries: up ? 1 : tries + 1,
  };
}

export async function follow() {
  let wait = FIRST_RETRY_S;
  for (;;) {
    if (wantsToken.value) {
      await new Promise((done) => setTimeout(done, 300));
      continue;
    }
    try {
      await stay(() => {
        wait = FIRST_RETRY_S;
      });
      down("the manager ended the stream", wait);
    } catch (error) {
      down(error.message, wait);
    }
    await new Promise((done) => setTimeout(done, wait * 1000));
    wait = Math.min(LAST_RETRY_S, wait * 1.7);
  }
}

// Connected for as long as this runs.
async function stay(connected) {
  const stop = new AbortController();
  let watch = 0;
  const alive = () => {
    clearTimeout(watch);
    watch = setTimeout(() => stop.abort(), SILENT_MS);
  };
  alive();
  try {
    const more = { Accept: "text/event-stream", ...(last ? { "Last-Event-ID": last } : {}) };
    const answer = await fetch("/v1/events", { headers: headers(more), cache: "no-store", signal: stop.signal });
    if (answer.status === 401) wantsToken.value = true;
    if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).fact || `it answered ${answer.status}`);
    connected();
    line.value = { up: true, since: Date.now(), reason: "", retryAt: 0, tries: 0 };
    tell("connected", {});
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      alive();
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) take(block);
    }
  } catch (error) {
    if (stop.signal.aborted) throw new Error(`nothing was heard for ${SILENT_MS / 1000} s`);
    throw error instanceof TypeError ? new Error("the manager cannot be reached") : error;
  } finally {
    clearTimeout(watch);
    stop.abort();
  }
}

function take(block) {
  let name = "message";
  let data = "";
  for (const row of block.split("\n")) {
    if (row.startsWith("id: ")) last = row.slice(4);
    else if (row.startsWith("event: ")) name = row.slice(7);
    else if (row.startsWith("data: ")) data += row.slice(6);
  }
  if (data) tell(name, JSON.parse(data));
}
