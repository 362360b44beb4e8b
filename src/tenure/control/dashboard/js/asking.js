// A question whose answer is kept fresh while somebody looks: asked again after an event that may have changed it, and every few seconds,
// because what workers say of their progress is in no event. Never faster than the manager can well bear.
import { read } from "./api.js";
import { steady } from "./clock.js";
import { listen } from "./stream.js";
import { Component, h, live, signal } from "./view.js";

const LEAST_S = 0.5;
const SHARE = 12; // of the time, at most one twelfth is spent on asking

export class Asking {
  // `fields` may be a function; `every` in seconds; `minds(name, event)` says whether an event matters; `keep(before, answer)` may keep parts.
  constructor(name, fields = {}, { every = 2, minds = () => true, when = () => true, keep = (_, answer) => answer } = {}) {
    this.name = name;
    this.fields = typeof fields === "function" ? fields : () => fields;
    this.every = every;
    this.minds = minds;
    this.when = when;
    this.keep = keep;
    this.answer = signal(null);
    this.problem = signal(null);
    this.heardAt = signal(0);
    this.users = 0;
    this.took = 0;
    this.askedAt = -Infinity;
    this.asking = false;
    this.again = false;
  }

  // While it is used it is kept fresh; call what it returns when it is not any more.
  use() {
    this.users += 1;
    if (this.users === 1) this.start();
    return () => {
      this.users -= 1;
      if (this.users === 0) this.stop();
    };
  }

  start() {
    this.unlisten = listen((name, event) => {
      if (name === "connected" || name === "gap" || this.minds(name, event)) this.soon();
    });
    this.timer = setInterval(() => {
      if (!document.hidden && steady() - this.askedAt >= Math.max(this.every, this.took * SHARE)) this.ask();
    }, 250);
    this.ask();
  }

  stop() {
    this.unlisten();
    clearInterval(this.timer);
    clearTimeout(this.later);
    this.later = 0;
  }

  // Once, however many events came: at the next moment at which asking is allowed.
  soon() {
    if (this.later || document.hidden) return;
    const wait = Math.max(0.03, this.askedAt + Math.max(LEAST_S, this.took * SHARE) - steady());
    this.later = setTimeout(() => {
      this.later = 0;
      this.ask();
    }, wait * 1000);
  }

  // Something else is wanted now: what was known is no answer to it.
  change() {
    this.answer.value = null;
    this.ask();
  }

  async ask() {
    if (!this.when()) return;
    if (this.asking) {
      this.again = true;
      return;
    }
    this.asking = true;
    this.askedAt = steady();
    const fields = this.fields();
    const wanted = JSON.stringify(fields);
    try {
      const answer = await read(this.name, fields);
      if (wanted === JSON.stringify(this.fields())) {
        this.answer.value = this.keep(this.answer.value, answer);
        this.problem.value = null;
        this.heardAt.value = steady();
      } else {
        this.again = true;
      }
    } catch (error) {
      this.problem.value = error;
    } finally {
      this.asking = false;
      this.took = steady() - this.askedAt;
      if (this.again && this.users) {
        this.again = false;
        this.ask();
      }
    }
  }
}

// A page that keeps some questions fresh while it is shown.
export function page(make, show) {
  const Shown = live(show);
  return class extends Component {
    constructor(props) {
      super(props);
      this.asked = make();
    }
    componentDidMount() {
      this.unused = Object.values(this.asked).map((one) => one.use());
    }
    componentWillUnmount() {
      for (const leave of this.unused) leave();
    }
    render() {
      return h(Shown, this.asked);
    }
  };
}
