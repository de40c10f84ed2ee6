// Light, dark, or as the system has it. The choice is kept for the next visit.

import { choices } from "./store.js";
import { useEffect, useState } from "./view.js";

const KEY = "strom-theme";
export const THEMES = ["system", "light", "dark"];
const dark = matchMedia("(prefers-color-scheme: dark)");
const heard = new Set();

let theme = THEMES.includes(choices.get(KEY)) ? choices.get(KEY) : "system";

function apply() {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  for (const listener of heard) listener({});
}

export function setTheme(next) {
  theme = next;
  choices.set(KEY, next);
  apply();
}

export const currentTheme = () => theme;

// "light" or "dark": what is seen. Who asks is drawn anew when that changes.
export function useTheme() {
  const [, set] = useState({});
  useEffect(() => {
    heard.add(set);
    return () => heard.delete(set);
  }, []);
  return theme === "system" ? (dark.matches ? "dark" : "light") : theme;
}

dark.addEventListener("change", apply);
apply();
