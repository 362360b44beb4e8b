// What is done to all jobs that a list shows: one after the other, each with an outcome of its own.
import { BY, button } from "./acts.js";
import { write } from "./api.js";
import { TERMINAL } from "./parts.js";
import { some } from "./words.js";

const NAMED = 12;

// The question names what it is about, so that nobody has to guess what a filter caught: it is the dry run.
const named = (rows) => rows.slice(0, NAMED).map((one) => one.job_id).join(", ") + (rows.length > NAMED ? ` and ${rows.length - NAMED} more` : "");

async function each(rows, one) {
  const failed = [];
  for (const row of rows) {
    try {
      await one(row.job_id);
    } catch (error) {
      failed.push(`${row.job_id}: ${error.message}`);
    }
  }
  return failed.length ? `${some(rows.length - failed.length, "job")} done, ${failed.length} refused; the first: ${failed[0]}` : `${some(rows.length, "job")} done.`;
}

export function bulk(jobs) {
  const live = jobs.filter((one) => !TERMINAL.has(one.state));
  const bad = jobs.filter((one) => ["failed", "timed_out", "cancelled"].includes(one.state));
  return [
    bad.length > 1 &&
      button("retry", `Retry these ${bad.length}`, {
        title: `Run ${some(bad.length, "job")} once more?`,
        text: `Each is submitted again as a new job that names the old one: ${named(bad)}.`,
        button: "Retry them",
        act: (_, told) => each(bad, (id) => write("retry", { job_id: id, by: BY }, told)),
      }),
    live.length > 1 &&
      button(
        "cancel",
        `Cancel these ${live.length}`,
        {
          title: `Cancel ${some(live.length, "job")}?`,
          text: `They end now, and this cannot be undone: ${named(live)}.`,
          button: "Cancel them",
          danger: true,
          field: "Why (kept in their histories)",
          act: (reason, told) => each(live, (id) => write("cancel", { job_id: id, reason, by: BY }, told)),
        },
        "danger",
      ),
  ];
}
