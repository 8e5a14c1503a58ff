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

const SUN = html`<circle cx="12" cy="12" r="4" /><path d="M12 2v2M12 20v2M4 4l2 2M18 18l2 2M2 12h2M20 12h2M4 20l2-2M18 6l2-2" />`;
const MOON = html`<path d="M20 14A8.5 8.5 0 0 1 10 4a8.5 8.5 0 1 0 10 10z" />`;

export function ThemeButton() {
  const other = useStore(theme) === "dark" ? "light" : "dark";
  const turn = () => {
    localStorage.setItem("offramp-theme", other);
    theme.set(other);
  };
  return html`<button type="button" class="icon" onClick=${turn} title=${`Use the ${other} theme`}
    aria-label=${`Use the ${other} theme`}>
    <svg viewBox="0 0 24 24" width="18" height="18" aria-hidden="true" fill="none" stroke="currentColor"
      stroke-width="2" stroke-linecap="round">${other === "light" ? SUN : MOON}</svg></button>`;
}
