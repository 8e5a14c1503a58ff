/* A request as a line for a terminal. */

import { html, useState } from "./vendor/preact-htm-3.1.1.module.js";
import { address, key } from "./api.js";
import { Card } from "./parts.js";
import { useStore } from "./store.js";

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

export function Curl({ model, inputs, exit }) {
  const secret = useStore(key);
  const [said, say] = useState("");
  const body = { model: model.name, inputs, ...(exit !== "default" && { exit }) };
  const line = [
    `curl ${address("/v1/classify")}`,
    secret && `-H "X-API-Key: $OFFRAMP_KEY"`,
    `-H 'Content-Type: application/json' -d ${quoted(JSON.stringify(body))}`,
  ].filter(Boolean).join(" ");
  // Browsers have no clipboard for pages that came by plain HTTP from another machine.
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(line);
      say("Copied");
    } catch {
      say("Select the line to copy it");
    }
  };
  return html`<${Card} title="The same by curl">
    <pre class="curl" tabindex="0" aria-label="The request by curl"><code>${line}</code></pre>
    <div class="buttons"><button type="button" class="secondary outline" onClick=${copy}>Copy</button>
      <span role="status">${said}</span></div></${Card}>`;
}
