/* Models: to be written. */

import { html } from "../vendor/preact-htm-3.1.1.module.js";
import { Card } from "../parts.js";

function View({ model }) {
  return html`<${Card} title="Models"><p>${model.name}</p></${Card}>`;
}

export const models = { id: "models", title: "Models", View };
