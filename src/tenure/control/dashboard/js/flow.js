// Draws which workflow of a job gets the results of which others: one column for each step of the way, an arrow for each result.
import { html } from "./view.js";

const WIDE = 170, HIGH = 44, BOX = 130, TALL = 28;

function places(workflows) {
  const byName = new Map(workflows.map((one) => [one.name, one]));
  // A gate names workflows by their datacenter, and `after` has the names that they have there.
  const before = (one) => one.after.map((name) => byName.get(one.name.slice(0, one.name.lastIndexOf("/") + 1) + name)).filter(Boolean);
  const columns = new Map();
  const columnOf = (one) => {
    if (!columns.has(one.name)) columns.set(one.name, Math.max(0, ...before(one).map((other) => columnOf(other) + 1)));
    return columns.get(one.name);
  };
  const rows = [];
  return {
    before,
    at: new Map(workflows.map((one) => {
      const column = columnOf(one);
      const row = (rows[column] = (rows[column] ?? -1) + 1);
      return [one.name, { x: column * WIDE + 1, y: row * HIGH + 1 }];
    })),
    width: Math.max(...columns.values()) * WIDE + BOX + 2,
    height: (Math.max(...rows) + 1) * HIGH,
  };
}

export function Flow({ workflows }) {
  if (!workflows.some((one) => one.after.length) || workflows.length > 60) return null;
  const { before, at, width, height } = places(workflows);
  const arrows = workflows.flatMap((one) => before(one).map((other) => [at.get(other.name), at.get(one.name), other]));
  return html`<div class="flow" tabindex="0" role="img" aria-label=${workflows.filter((one) => one.after.length).map((one) => `${one.name} gets what ${one.after.join(", ")} returned`).join("; ")}>
    <svg width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`}>
      ${arrows.map(([from, to, other]) => html`<path class=${other.state} d=${`M${from.x + BOX} ${from.y + TALL / 2} C${from.x + BOX + 25} ${from.y + TALL / 2} ${to.x - 25} ${to.y + TALL / 2} ${to.x} ${to.y + TALL / 2}`} />`)}
      ${workflows.map((one) => html`<g class=${one.state}><rect x=${at.get(one.name).x} y=${at.get(one.name).y} width=${BOX} height=${TALL} rx="4" /><text x=${at.get(one.name).x + 8} y=${at.get(one.name).y + 18}>${one.name.length > 16 ? `${one.name.slice(0, 15)}…` : one.name}</text><title>${one.name}: ${one.state}${one.taken_from ? `, its result is that of ${one.taken_from}` : ""}</title></g>`)}
    </svg>
  </div>`;
}
