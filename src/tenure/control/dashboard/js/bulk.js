// What is done to all jobs that fit the filters: looked up when it is asked for, named in the question, then done one after the other.
import { BY } from "./acts.js";
import { read, write } from "./api.js";
import { confirm, say } from "./dialog.js";
import { TERMINAL } from "./parts.js";
import { may } from "./session.js";
import { html } from "./view.js";
import { count, some } from "./words.js";

const NAMED = 12;
const PAGE = 1000;
const MOST = 10_000;

const OPERATIONS = {
  retry: {
    fits: ({ state }) => ["failed", "timed_out", "cancelled"].includes(state),
    label: "Retry",
    title: (jobs) => `Run ${jobs} once more?`,
    text: "Each is submitted again as a new job that names the old one",
    button: "Retry them",
    send: (id, _, told) => write("retry", { job_id: id, by: BY }, told),
  },
  cancel: {
    fits: ({ state }) => !TERMINAL.has(state),
    label: "Cancel",
    title: (jobs) => `Cancel ${jobs}?`,
    text: "They end now, and this cannot be undone",
    button: "Cancel them",
    danger: true,
    field: "Why (kept in their histories)",
    send: (id, reason, told) => write("cancel", { job_id: id, reason, by: BY }, told),
  },
};

// Every job that fits the filters and the operation, page by page; the rows that are shown, where they are all.
async function every(asked, found, fits) {
  if (!asked.after && !found.next) return found.jobs.filter(fits);
  const rows = [];
  for (let after = ""; ; ) {
    const page = await read("jobs", { ...asked, after, limit: PAGE });
    rows.push(...page.jobs.filter(fits));
    after = page.next;
    if (!after || rows.length >= MOST) return rows.slice(0, MOST);
  }
}

// The question names what it is about, so that nobody has to guess what a filter caught: it is the dry run.
const named = (rows) => rows.slice(0, NAMED).map((one) => one.job_id).join(", ") + (rows.length > NAMED ? ` and ${count(rows.length - NAMED)} more` : "");

async function each(rows, send, told) {
  const failed = [];
  for (const [index, row] of rows.entries()) {
    if (index % 50 === 49) told({ message: `${count(index + 1)} of ${count(rows.length)} are done` });
    try {
      await send(row.job_id);
    } catch (error) {
      failed.push(`${row.job_id}: ${error.message}`);
    }
  }
  return failed.length ? `${some(rows.length - failed.length, "job")} done, ${failed.length} refused; the first: ${failed[0]}` : `${some(rows.length, "job")} done.`;
}

async function ask({ title, text, send, fits, ...how }, asked, found) {
  try {
    const rows = await every(asked, found, fits);
    if (!rows.length) return say("No job that fits can be changed so.", "bad");
    confirm({ ...how, title: title(some(rows.length, "job")), text: `${text}: ${named(rows)}.`, act: (reason, told) => each(rows, (id) => send(id, reason, told), told) });
  } catch (error) {
    say(`${error.message}. ${error.remedy || ""}`, "bad");
  }
}

// Offered where it would change at least two jobs; of what is on other pages nobody knows yet.
export function bulk(found, asked) {
  const more = Boolean(asked.after || found.next);
  return Object.entries(OPERATIONS).map(([name, one]) => {
    const here = found.jobs.filter(one.fits).length;
    if (!may(name) || (more ? here < 1 : here < 2)) return null;
    const label = more ? `${one.label} all that fit …` : `${one.label} these ${here}`;
    return html`<button type="button" class=${one.danger ? "danger" : ""} data-act=${name} onClick=${() => ask(one, asked, found)}>${label}</button>`;
  });
}
