// Where the page is: what is behind the `#` of its address.

import { useEffect, useState } from "./view.js";

function parse() {
  return location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
}

export function useRoute() {
  const [parts, set] = useState(parse);
  useEffect(() => {
    const moved = () => {
      document.body.dataset.moved = "yes";
      set(parse());
    };
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  return parts;
}

export const to = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;
