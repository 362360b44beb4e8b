// A component that writes its own text as time passes, without being drawn again: it has `write()`, and gives `this.found` to its root as ref.
import { tickWhileSeen } from "./clock.js";
import { Component } from "./view.js";

export class Ticking extends Component {
  constructor(props) {
    super(props);
    this.found = (element) => (this.root = element || this.root);
  }
  componentDidMount() {
    this.stop = tickWhileSeen(this.root, () => this.write());
  }
  componentDidUpdate() {
    this.write();
  }
  componentWillUnmount() {
    this.stop?.();
  }
}
