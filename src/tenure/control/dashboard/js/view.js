// How a page is drawn: htm for templates, and components that draw themselves anew when a signal that they read changes.
import { Component, h, options, render } from "../vendor/preact.mjs";
import htm from "../vendor/htm.mjs";
import { batch, computed, effect, signal } from "../vendor/signals-core.mjs";

// However many updates come, the page is drawn once for each frame.
options.debounceRendering = (draw) => requestAnimationFrame(draw);

// What others wrote may hold characters that nobody sees: control characters, and marks that reverse the order of what is shown. They are
// written out, as the command line does it (`plain` in `logs.py`), wherever text becomes part of the page.
const ODD = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;
export const plain = (text) => text.replace(ODD, (odd) => "\\u" + odd.charCodeAt(0).toString(16).padStart(4, "0"));

function shown(child) {
  if (typeof child === "string") return plain(child);
  return Array.isArray(child) ? child.map(shown) : child;
}

export const html = htm.bind((type, props, ...children) => h(type, props, ...children.map(shown)));
export { Component, batch, computed, effect, h, render, signal };

// live(props => html`…`): a component. Nothing is drawn where neither its props nor a signal that it read has changed.
export function live(show) {
  return class extends Component {
    constructor(props) {
      super(props);
      this.given = signal(props);
      this.drawn = computed(() => show(this.given.value));
    }
    componentDidMount() {
      this.stop = effect(() => {
        let next = null;
        try {
          next = this.drawn.value;
        } catch {
          // It is thrown again where it is drawn, and told there: whoever changed a signal is not to blame.
        }
        if (next !== this.shown && !this.drawing) this.setState({});
      });
    }
    componentWillUnmount() {
      this.stop();
    }
    render(props) {
      this.drawing = true; // a change of props is drawn right here, and is no reason to draw again
      this.given.value = props;
      this.shown = this.drawn.value;
      this.drawing = false;
      return this.shown;
    }
  };
}

// still(props => html`…`): a component for long lists, drawn again only where one of its props is another one.
export function still(show) {
  return class extends Component {
    shouldComponentUpdate(next) {
      return Object.keys(next).some((name) => next[name] !== this.props[name]);
    }
    render(props) {
      return show(props);
    }
  };
}

// The new list with the old objects wherever nothing has changed, so that `still` can tell.
export function kept(before, after, name) {
  const known = new Map((before || []).map((one) => [one[name], one]));
  return after.map((one) => {
    const old = known.get(one[name]);
    return old && JSON.stringify(old) === JSON.stringify(one) ? old : one;
  });
}
