/* Small parts that several tabs show. */

import { html } from "./vendor/preact-htm-3.1.1.module.js";

const HINTS = {
  unauthorized: "Enter a key with Key, above.",
  forbidden: "Another key may do this: enter it with Key, above.",
};

// Shows what a call has thrown.
export function Problem({ error }) {
  if (!error) return null;
  return html`<p class="problem" role="alert"><strong>${error.code || "error"}</strong>
    ${" "}${error.message} ${HINTS[error.code] || ""}</p>`;
}

// Tells whether the key, or none, is refused: the same call would be refused again.
export const barred = (error) => [401, 403].includes(error?.status);

export function Card({ title, note, children, ...rest }) {
  return html`<section class="card" ...${rest}>
    ${title && html`<header><h2>${title}</h2>${note && html`<small>${note}</small>`}</header>`}
    ${children}</section>`;
}

// A figure with its name; `bad` draws the eye.
export function Figure({ name, value, unit, note, bad }) {
  return html`<div class=${`figure ${bad ? "bad" : ""}`}><span class="name">${name}</span>
    <span class="value">${value}${unit && html`<small>${unit}</small>`}</span>
    ${note && html`<span class="note">${note}</span>`}</div>`;
}
