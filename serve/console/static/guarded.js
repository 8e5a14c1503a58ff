/* On every tab after the guardrail has acted: what it has moved, why, and how to go back. */

import { html, useState } from "./vendor/preact-htm-3.1.1.module.js";
import { call, useCall } from "./api.js";
import { Changes } from "./dry-run.js";
import { when } from "./format.js";
import { Problem } from "./parts.js";

const MOST = 100; // versions that are looked through for the one before

export function Guarded({ path, policy, refresh }) {
  const acted = policy?.source === "guardrail";
  const { data } = useCall(acted ? `${path}/history?limit=${MOST}` : null, [policy?.version]);
  const [state, setState] = useState({});
  if (!acted) return null;
  // Who may not see the history sees why, and not from where.
  const entries = data?.entries || [];
  const place = entries.findIndex((entry) => entry.source !== "guardrail");
  const before = entries[place]?.version;
  const back = async () => {
    setState({ busy: true });
    try {
      await call("POST", `${path}/rollback`, { to: before, version: policy.version });
      setState({});
      refresh();
    } catch (error) {
      setState({ error });
    }
  };
  return html`<section class="card guarded" role="alert" aria-label="The guardrail has acted">
    <p><strong>The guardrail has made policy version ${policy.version}</strong> at ${when(policy.at)}, because a promise was broken.</p>
    ${policy.why && html`<p class="why">${policy.why}</p>`}
    ${entries.slice(0, Math.max(0, place)).map((entry) => html`<${Changes} changes=${entry.changes} />`)}
    <p>It stays until it is taken back: nothing is loosened by itself.
      ${" "}When the texts are as usual again: <code>offramp policy rollback ${before ?? "VERSION"}</code></p>
    ${before !== undefined && html`<div class="buttons"><button type="button" class="secondary outline"
      aria-busy=${String(Boolean(state.busy))} onClick=${back}>Roll back to version ${before}</button></div>`}
    <${Problem} error=${state.error} />
  </section>`;
}
