/* Where the reader enters an API key. */

import { html, useEffect, useRef } from "./vendor/preact-htm-3.1.1.module.js";
import { key } from "./api.js";
import { useStore } from "./store.js";

// `wanted`: the server answers nothing without another key, so the reader is asked for it.
export function KeyDialog({ wanted }) {
  const dialog = useRef();
  const field = useRef();
  const known = useStore(key);
  useEffect(() => { if (wanted && !dialog.current.open) dialog.current.showModal(); }, [wanted]);
  const done = (text) => {
    key.set(text);
    dialog.current.close();
  };
  const submit = (event) => {
    event.preventDefault();
    done(field.current.value.trim());
  };
  return html`
    <button type="button" class=${`secondary ${known ? "" : "outline"}`}
      aria-haspopup="dialog" onClick=${() => dialog.current.showModal()}>
      Key${known && html`<span aria-hidden="true"> ✓</span><span class="hidden"> is set</span>`}</button>
    <dialog ref=${dialog} aria-labelledby="key-title">
      <article>
        <h2 id="key-title">API key</h2>
        <p>A server with keys shows figures to one with the scope <code>read</code>, classifies
          for <code>classify</code> and is changed by <code>admin</code>. The key stays in this
          tab of the browser until it is closed.</p>
        <form onSubmit=${submit}>
          <label>Key<input ref=${field} type="password" autocomplete="off" maxlength="512"
            pattern="\\s*[!-~]*\\s*" title="Letters, digits and signs of ASCII, without spaces"
            value=${known} /></label>
          <div class="buttons">
            <button type="submit">Use this key</button>
            <button type="button" class="secondary outline" onClick=${() => done("")}>Forget it</button>
            <button type="button" class="secondary outline"
              onClick=${() => dialog.current.close()}>Cancel</button>
          </div>
        </form>
      </article>
    </dialog>`;
}
