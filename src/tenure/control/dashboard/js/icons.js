// Small drawings, so that nothing is said by colour alone.
import { html } from "./view.js";

const LINES = {
  done: "M4 10.5l4 4 8-9",
  running: "M6 4l10 6-10 6z",
  waiting: "M10 3.5a6.5 6.5 0 100 13 6.5 6.5 0 000-13z",
  failed: "M5 5l10 10M15 5L5 15",
  cancelled: "M10 3.5a6.5 6.5 0 100 13 6.5 6.5 0 000-13zM5.6 14.4l8.8-8.8",
  late: "M5 3h10M5 17h10M6 3c0 4 3 5 4 7 1-2 4-3 4-7M6 17c0-4 3-5 4-7 1 2 4 3 4 7",
  wrong: "M7 2.5h6l4.5 4.5v6L13 17.5H7L2.5 13V7zM10 6v5M10 13.8v.4",
  look: "M10 3l7.5 13.5h-15zM10 8v4M10 14v.4",
  note: "M10 3a7 7 0 100 14 7 7 0 000-14zM10 9v5M10 6v.4",
  copy: "M7 7h9v9H7zM4 13V4h9",
};
const FILLED = new Set(["running"]);

export function icon(name, title = "") {
  return html`<svg class="icon" viewBox="0 0 20 20" aria-hidden=${title ? undefined : "true"} role=${title ? "img" : undefined} aria-label=${title || undefined}>
    <path d=${LINES[name]} class=${FILLED.has(name) ? "filled" : ""} />
  </svg>`;
}
