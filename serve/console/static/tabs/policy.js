/* Policy: to be written. */

import { html } from "../vendor/preact-htm-3.1.1.module.js";
import { Card } from "../parts.js";

function View({ policy }) {
  return html`<${Card} title="Policy"><pre>${JSON.stringify(policy?.policy, null, 2)}</pre></${Card}>`;
}

export const policy = { id: "policy", title: "Policy", View };
