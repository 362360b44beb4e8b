// The search of this site runs in a worker, and browsers start no worker for pages that are opened as files.
// There, a hidden frame takes its place: the same script, in a window of its own. The theme would fetch such a thing from the network.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = (this.inside = frame.contentWindow);
      inside.postMessage = (data) => this.tell(data);
      inside.importScripts = (...scripts) => scripts.reduce((before, one) => before.then(() => load(inside.document, one)), Promise.resolve());
      this.loaded = load(inside.document, new URL(url, location));
    }

    postMessage(data) {
      this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }

    tell(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    }

    terminate() {
      this.inside.frameElement.remove();
    }
  };

  function load(inside, url) {
    return new Promise((loaded, failed) => {
      const script = inside.createElement("script");
      script.src = url;
      script.onload = loaded;
      script.onerror = failed;
      inside.body.append(script);
    });
  }
}
