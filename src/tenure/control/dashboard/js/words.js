// Numbers and times for people.
const number = new Intl.NumberFormat("en");

export const count = (value) => number.format(value);
export const some = (value, one, many = one + "s") => `${count(value)} ${value === 1 ? one : many}`;

// "8 s", "2 min 05 s", "3 h 20 min", "4 d 2 h": at most two units, so that it can be read at a glance.
export function span(seconds) {
  const whole = Math.max(0, Math.floor(seconds + 0.001));
  const two = (value) => String(value).padStart(2, "0");
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
  return `${count(Math.floor(whole / 86400))} d ${Math.floor((whole % 86400) / 3600)} h`;
}

// As `span`, with tenths where they matter: "0.5 s".
export const exact = (seconds) => (seconds < 10 ? `${Math.round(seconds * 10) / 10} s` : span(seconds));

// One unit, for narrow columns.
export function brief(seconds) {
  const whole = Math.max(0, Math.floor(seconds + 0.001));
  if (whole < 120) return `${whole} s`;
  if (whole < 7200) return `${Math.floor(whole / 60)} min`;
  if (whole < 172800) return `${Math.floor(whole / 3600)} h`;
  return `${count(Math.floor(whole / 86400))} d`;
}

export function time(at) {
  return at ? new Date(at * 1000).toLocaleTimeString("en-GB") : "";
}

export function moment(at) {
  if (!at) return "";
  const date = new Date(at * 1000);
  const today = date.toDateString() === new Date().toDateString();
  return today ? time(at) : `${date.toLocaleDateString("en-CA")} ${time(at)}`;
}

export const percent = (fraction) => `${Math.floor(fraction * 100)} %`;

export function pretty(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}
