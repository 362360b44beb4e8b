// What can be done from the page: each asks first, and says what became of it.
import { write } from "./api.js";
import { confirm } from "./dialog.js";
import { go, to } from "./route.js";
import { may } from "./session.js";
import { html } from "./view.js";

export const BY = "dashboard";

// A button that is there only for those whose press would count.
export function button(operation, label, ask, kind = "") {
  return may(operation) ? html`<button type="button" class=${kind} data-act=${operation} onClick=${() => confirm(ask)}>${label}</button>` : null;
}

// With an outcome other than `accepted` nothing was changed, and the reason says why.
export function outcome(reply, words) {
  return reply.outcome === "accepted" || reply.outcome === undefined ? words : `Nothing was changed: ${reply.reason || reply.outcome}.`;
}

export const cancelJob = (id) =>
  button(
    "cancel",
    "Cancel",
    {
      title: "Cancel this job?",
      text: `${id} ends now: what runs of it is stopped, what waits is not started. This cannot be undone; it can be retried as a new job.`,
      button: "Cancel the job",
      danger: true,
      field: "Why (kept in its history)",
      act: async (reason, told) => outcome(await write("cancel", { job_id: id, reason, by: BY }, told), `${id} is cancelled.`),
    },
    "danger",
  );

export const retryJob = (id) =>
  button("retry", "Retry", {
    title: "Run this job once more?",
    text: `A new job with the same workflows and arguments as ${id} is submitted, and names it. The old one stays as it is.`,
    button: "Retry",
    act: async (_, told) => {
      const reply = await write("retry", { job_id: id, by: BY }, told);
      go(to("job", [reply.job_id]));
      return outcome(reply, `${reply.job_id} is submitted.`);
    },
  });

// At a gate, what belongs to one datacenter is asked of that one; a manager means itself.
const at = ({ datacenter }) => (datacenter ? { datacenter } : {});

export const drain = (one, { name } = one) =>
  button("drain", "Drain", {
    title: `Drain ${name}?`,
    text: "It gets no more work; what it runs goes on. This holds, also over restarts of the worker, until it is undone.",
    button: "Drain",
    field: "Why (shown to others)",
    act: async (reason, told) => outcome(await write("drain", { node: name, reason, by: BY, ...at(one) }, told), `${name} gets no more work.`),
  });

export const undrain = (one, { name } = one) =>
  button("undrain", "Take work again", {
    title: `Let ${name} take work again?`,
    text: "It gets work from now on, as soon as it is there and well.",
    button: "Take work again",
    act: async (_, told) => outcome(await write("undrain", { node: name, by: BY, ...at(one) }, told), `${name} may take work again.`),
  });

export const pause = (one, { name: queue } = one) =>
  button("pause", "Pause", {
    title: `Pause ${queue}?`,
    text: "Nothing more of it starts; what runs goes on, and submissions wait.",
    button: "Pause",
    act: async (_, told) => outcome(await write("pause", { queue, by: BY, ...at(one) }, told), `${queue} is paused.`),
  });

export const resume = (one, { name: queue } = one) =>
  button("resume", "Resume", {
    title: `Resume ${queue}?`,
    text: "What waits in it starts, within its limits.",
    button: "Resume",
    act: async (_, told) => outcome(await write("resume", { queue, by: BY, ...at(one) }, told), `${queue} goes on.`),
  });

export const replay = (letter, done) =>
  button("replay", "Replay", {
    title: "Put it back into its mailbox?",
    text: `${letter.key || letter.id} is delivered again, from ${letter.mailbox}. It is refused where a newer message has its key, or its job has ended.`,
    button: "Replay",
    act: async (_, told) => {
      const reply = await write("replay", { mailbox: letter.mailbox, id: letter.id, by: BY, ...at(letter) }, told);
      done();
      return outcome(reply, "It is back in its mailbox.");
    },
  });

export const discard = (letter, done) =>
  button(
    "discard",
    "Discard",
    {
      title: "Forget it for good?",
      text: `${letter.key || letter.id} is removed, with its body. This cannot be undone.`,
      button: "Discard for good",
      danger: true,
      act: async (_, told) => {
        const reply = await write("discard", { mailbox: letter.mailbox, id: letter.id, by: BY, ...at(letter) }, told);
        done();
        return outcome(reply, "It is gone.");
      },
    },
    "danger",
  );

export const trigger = (one, { name } = one.schedule) =>
  button("trigger_schedule", "Run now", {
    title: `Run ${name} now?`,
    text: "Its job is submitted once, beside the runs of its instants.",
    button: "Run now",
    act: async (_, told) => {
      const id = `${name}/by-hand-${Date.now().toString(36)}`;
      const reply = await write("trigger_schedule", { name, job_id: id, by: BY, ...at(one) }, told);
      return outcome(reply, `${reply.job_id} is submitted.`);
    },
  });

export const dropSchedule = (one, { name } = one.schedule) =>
  button(
    "drop_schedule",
    "Remove",
    {
      title: `Remove the schedule ${name}?`,
      text: "Nothing more of it fires; what runs goes on.",
      button: "Remove",
      danger: true,
      act: async (_, told) => outcome(await write("drop_schedule", { name, by: BY, ...at(one) }, told), `${name} is removed.`),
    },
    "danger",
  );
