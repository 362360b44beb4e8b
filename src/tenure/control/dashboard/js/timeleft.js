// The time left on a grant: it ticks by the server's clock, and only where somebody can see it.
import { now } from "./clock.js";
import { line } from "./stream.js";
import { Ticking } from "./ticking.js";
import { Component, html } from "./view.js";
import { span } from "./words.js";

export const GRANTS = {
  stall: ["beat", "Without a beat until then, its slot is killed and the attempt is tried again"],
  lease: ["lease", "Renewed while it beats; when it runs out, another worker may take the work"],
  healthcheck: ["worker", "Its worker must show life or progress until then, or it is evicted and its work reissued"],
  stuck: ["progress", "If nothing of the job advances until then, the job is stuck and timed out"],
  deadline: ["deadline", "The job is timed out then, whatever it does; extensions that it earned are in it"],
  rest: ["next try", "The next attempt may begin then"],
};
export const ORDER = ["stall", "lease", "healthcheck", "stuck", "deadline", "rest"];

// ok: plenty; soon: the last third; last: the last tenth, or five seconds; over: it has run out, and is being acted on.
export function level(left, whole, kind) {
  if (kind === "rest") return "ok";
  if (left <= 0) return "over";
  if (left < Math.max(5, whole * 0.1) && left < whole * 0.9) return "last";
  return left < whole / 3 ? "soon" : "ok";
}

const LEVELS = { ok: "", soon: "less than a third is left", last: "nearly over", over: "over" };
const MARKS = { ok: "", soon: "◔ ", last: "▲ ", over: "■ " };

export class TimeLeft extends Ticking {
  constructor(props) {
    super(props);
    this.whole = 0;
  }
  write() {
    const { grant } = this.props;
    const text = this.root.querySelector(".much");
    if (!line.value.up && this.root.dataset.level) {
      // Others may have earned more time since: a number that goes on falling would be a guess.
      this.root.classList.add("unsure");
      return;
    }
    this.root.classList.remove("unsure");
    const left = grant.until - now();
    this.whole = grant.span_s || Math.max(this.whole, left);
    const found = level(left, this.whole, grant.kind);
    if (this.root.dataset.level !== found) this.root.dataset.level = found;
    const said = left <= 0 ? MARKS.over + "over" : MARKS[found] + span(Math.min(left, 1e9));
    if (text.textContent !== said) {
      text.textContent = said;
      this.root.title = [GRANTS[grant.kind][1], LEVELS[found], grant.note].filter(Boolean).join(". ");
    }
    const share = Math.max(0, Math.min(1, this.whole ? left / this.whole : 0));
    this.root.querySelector(".fill").style.transform = `scaleX(${share.toFixed(3)})`;
  }
  render({ grant, label = "" }) {
    const name = label || GRANTS[grant.kind][0];
    return html`<span class="left" data-kind=${grant.kind} ref=${this.found}>
      <span class="what">${name}</span> <span class="much"></span>
      <span class="track" aria-hidden="true"><span class="fill"></span></span>
    </span>`;
  }
}

export function Grants({ grants, except = [] }) {
  const shown = ORDER.map((kind) => grants.find((one) => one.kind === kind)).filter((one) => one && !except.includes(one.kind));
  return html`<span class="grants">${shown.map((one) => html`<${TimeLeft} key=${one.kind} grant=${one} />`)}</span>`;
}

// A lease renews itself long before it ends, and is news only when it is nearly over; a rest is no grant.
export function nextToEnd(grants, at) {
  const news = grants.filter((one) => one.kind !== "lease" || one.until - at < 5);
  const first = (some) => [...some].sort((one, other) => one.until - other.until || ORDER.indexOf(one.kind) - ORDER.indexOf(other.kind))[0];
  return first(news.filter((one) => one.kind !== "rest")) || first(grants);
}

// One chip for a row: the grant that ends next. It opens to all of them.
export class NextGrant extends Component {
  state = { open: false };
  render({ grants }, { open }) {
    const next = nextToEnd(grants, now());
    if (!next) return null;
    const rest = grants.length - 1;
    const more = rest > 0 && html`<button type="button" class="plain more" aria-expanded=${open} title=${open ? "Show only the one that ends next" : "Show every grant of time that it has"} onClick=${() => this.setState({ open: !open })}>${open ? "less" : `+${rest}`}</button>`;
    return html`<span class="grants">${open ? html`<${Grants} grants=${grants} />` : html`<${TimeLeft} key=${next.kind} grant=${next} />`}${more}</span>`;
  }
}
