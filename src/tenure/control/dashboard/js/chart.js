// Small charts of the last minutes, with uPlot (a global of the classic script that index.html loads).
import { Component, html } from "./view.js";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const SPAN_S = 600;
const dark = matchMedia("(prefers-color-scheme: dark)");

export class Chart extends Component {
  constructor(props) {
    super(props);
    this.found = (element) => (this.root = element || this.root);
  }
  componentDidMount() {
    this.make();
    this.watch = new ResizeObserver(() => this.plot?.setSize(this.size()));
    this.watch.observe(this.root);
    this.remake = () => this.make();
    dark.addEventListener("change", this.remake);
  }
  componentDidUpdate() {
    this.plot?.setData(this.props.data);
  }
  componentWillUnmount() {
    dark.removeEventListener("change", this.remake);
    this.watch?.disconnect();
    this.plot?.destroy();
  }
  size() {
    return { width: Math.max(120, this.root.clientWidth), height: 130 };
  }
  make() {
    this.plot?.destroy();
    if (typeof uPlot === "undefined") return; // it did not load: the numbers are in words below
    const axis = { stroke: colour("--quiet"), font: "12px system-ui", grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    const series = this.props.series.map(({ name, tone, dash }) => ({ label: name, stroke: colour(tone), width: 2, dash, points: { show: false } }));
    const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
    this.plot = new uPlot(
      {
        ...this.size(),
        padding: [6, 10, 0, 0],
        legend: { show: false },
        cursor: { show: false },
        scales: { x: { time: true, range: () => [this.props.until - SPAN_S, this.props.until] }, y: { range: (_, __, most) => [0, Math.max(this.props.least || 4, most * 1.15)] } },
        axes: [
          { ...axis, size: 24, space: 60, incrs: [60, 120, 300], values: (_, marks) => marks.map(clock) },
          { ...axis, size: 38, space: 28, values: (_, marks) => marks.map((one) => (Number.isInteger(one) ? one.toLocaleString("en") : "")) },
        ],
        series: [{}, ...series],
      },
      this.props.data,
      this.root,
    );
  }
  render({ title, series, data }) {
    const last = (index) => data[index + 1][data[index + 1].length - 1] ?? 0;
    const words = series.map(({ name }, index) => `${name} ${last(index)}`).join(", ");
    return html`<figure class="chart">
      <div class="plot" ref=${this.found} role="img" aria-label=${`${title}: ${words}`}></div>
      <figcaption>${title}: ${series.map(({ name, tone, dash }, index) => html` <span class="key"><i class=${dash ? "dashed" : ""} style=${{ borderColor: `var(${tone})` }}></i>${name} <b>${Math.round(last(index)).toLocaleString("en")}</b></span>`)}</figcaption>
    </figure>`;
  }
}
