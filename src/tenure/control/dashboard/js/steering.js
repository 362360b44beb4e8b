// What can be done to one job while it runs. Each wants a reason: whoever looks tomorrow reads it in the story.
import { BY, button, outcome } from "./acts.js";
import { write } from "./api.js";

const reason = { field: "Why (kept in its history)", required: true };

const pause = (id) =>
  button("pause_job", "Pause", {
    ...reason,
    title: "Pause this job?",
    text: "Nothing more of it starts. What runs is asked to end with its checkpoint, and goes on from there when you resume it. None of its clocks runs meanwhile.",
    button: "Pause the job",
    act: async (why, told) => outcome(await write("pause_job", { job_id: id, reason: why, by: BY }, told), `${id} is paused.`),
  });

const resume = (id) =>
  button("resume_job", "Resume", {
    ...reason,
    title: "Let this job go on?",
    text: "It goes on from its checkpoints. Its deadline moves by the time of the pause.",
    button: "Resume the job",
    act: async (why, told) => outcome(await write("resume_job", { job_id: id, reason: why, by: BY }, told), `${id} goes on.`),
  });

const extend = (id) =>
  button("retime_job", "Give it time", {
    ...reason,
    title: "Give this job more time?",
    text: "Its deadline moves by so much. What it earns by itself comes on top.",
    button: "Give it time",
    amount: { label: "Minutes more", least: 0.1, value: 30 },
    act: async (why, told, minutes) => outcome(await write("retime_job", { job_id: id, add_s: Number(minutes) * 60, reason: why, by: BY }, told), `${id} has ${minutes} minutes more.`),
  });

const unlimit = (id) =>
  button("retime_job", "No deadline", {
    ...reason,
    title: "Take its deadline away?",
    text: "It may then take as long as it advances.",
    button: "Take it away",
    act: async (why, told) => outcome(await write("retime_job", { job_id: id, timeout_seconds: null, reason: why, by: BY }, told), `${id} has no deadline any more.`),
  });

const move = (id) =>
  button("move_job", "Move", {
    ...reason,
    title: "Move what runs to another worker?",
    text: "It is asked to end with its checkpoint, and goes on from there on another worker. It is not charged as an attempt.",
    button: "Move it",
    act: async (why, told) => outcome(await write("move_job", { job_id: id, reason: why, by: BY }, told), `${id} leaves its worker.`),
  });

// Only what would change something is offered.
export function steer(job) {
  const running = job.workflows.some((one) => one.state === "running");
  const id = job.job_id;
  return [job.pause ? resume(id) : pause(id), job.deadline !== null ? extend(id) : null, job.deadline !== null ? unlimit(id) : null, running && !job.pause ? move(id) : null];
}
