// Time by the server's clock. The browser's own may be wrong by hours; only its passing of seconds is believed.
import { signal } from "./view.js";

let base = 0; // the engine's time …
let at = 0; // … when this browser's steady clock showed this
let trust = Infinity; // how far off that may be, in seconds

const steady = () => performance.now() / 1000;

export function synchronize(now, sentAt, heardAt) {
  const doubt = (heardAt - sentAt) / 2;
  const told = now + doubt;
  const drift = Math.abs(told - (base + (heardAt - at)));
  // A quicker answer knows better; one that contradicts more than its own doubt is a new truth (we slept, or the engine changed).
  if (doubt <= trust || drift > doubt + trust) {
    base = told;
    at = heardAt;
    trust = doubt;
  }
  trust += 0.01; // what was measured long ago is slowly doubted
}

export const now = () => base + (steady() - at);
export const known = () => at > 0;
export { steady };

// What ticks: functions that write into the page directly, so that a thousand countdowns cost no drawing.
const ticking = new Set();
const TICK_MS = 250;

export function tick(write) {
  ticking.add(write);
  write();
  return () => ticking.delete(write);
}

// The same, only while somebody can see the element: what is far down a long list costs nothing.
const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    target.untick?.();
    target.untick = isIntersecting ? tick(target.write) : null;
  }
});

export function tickWhileSeen(element, write) {
  element.write = write;
  write();
  seen.observe(element);
  return () => {
    seen.unobserve(element);
    element.untick?.();
    element.untick = null;
  };
}

// Every second, for what is drawn as a whole.
export const second = signal(0);
let beats = 0;

setInterval(() => {
  if (document.hidden) return;
  for (const write of ticking) write();
  beats += 1;
  if (beats % 4 === 0) second.value += 1;
}, TICK_MS);
