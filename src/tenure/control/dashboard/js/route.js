// Where we are: the part of the address after #, as a path and fields.
import { signal } from "./view.js";

function parse() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decode);
  return { page: parts[0] || "overview", parts: parts.slice(1), fields: new URLSearchParams(query) };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const route = signal(parse());
addEventListener("hashchange", () => {
  route.value = parse();
});

export function to(page, parts = [], fields = {}) {
  const given = Object.entries(fields).filter(([, value]) => value);
  const query = new URLSearchParams(given).toString();
  return `#/${[page, ...parts].map(encodeURIComponent).join("/")}${query ? `?${query}` : ""}`;
}

export function go(address) {
  location.hash = address;
}
