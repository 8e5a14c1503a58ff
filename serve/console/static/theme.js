/* Light and dark: the system's, until the reader chooses. */

import { html, useEffect } from "./vendor/preact-htm-3.1.1.module.js";
import { Store, useStore } from "./store.js";

const system = matchMedia("(prefers-color-scheme: dark)");
const ofSystem = () => (system.matches ? "dark" : "light");

export const theme = new Store(localStorage.getItem("offramp-theme") || ofSystem());
system.addEventListener("change", () => {
  if (!localStorage.getItem("offramp-theme")) theme.set(ofSystem());
});
const apply = (name) => document.documentElement.setAttribute("data-theme", name);
theme.follow(apply);
apply(theme.value);

export function ThemeButton() {
  const other = useStore(theme) === "dark" ? "light" : "dark";
  const turn = () => {
    localStorage.setItem("offramp-theme", other);
    theme.set(other);
  };
  return html`<button type="button" class="icon" onClick=${turn} title=${`Use the ${other} theme`}
    aria-label=${`Use the ${other} theme`}>${other === "light" ? "☀" : "☾"}</button>`;
}
