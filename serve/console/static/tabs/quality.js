/* Quality: to be written. */

import { html } from "../vendor/preact-htm-3.1.1.module.js";
import { Card } from "../parts.js";

function View({ model }) {
  return html`<${Card} title="Quality"><p>${model.name}</p></${Card}>`;
}

export const quality = { id: "quality", title: "Quality", View };
