/* Calls to the server. */

import { useEffect, useState } from "./vendor/preact-htm-3.1.1.module.js";
import { Store, useStore } from "./store.js";

// Relative to this file, so that a proxy may put a prefix before all paths.
const ROOT = new URL("../", import.meta.url);

// The API key, kept by the browser until its tab is closed.
export const key = new Store(sessionStorage.getItem("offramp-key") || "");
key.follow((text) => sessionStorage.setItem("offramp-key", text));

// An answer that is an error: `status` is 0 where there was no answer.
export class Failed extends Error {
  constructor(status, code, message) {
    super(message);
    Object.assign(this, { status, code });
  }
}

export function address(path) {
  return new URL(path.replace(/^\//, ""), ROOT);
}

// Characters that are not seen or turn the order of others round: no name or label shows as another.
const UNSEEN = /[\x80-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e0fff}]/gu;

// Returns the JSON of an answer, or its text.
export async function call(method, path, body, signal) {
  const headers = key.value ? { "X-API-Key": key.value } : {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(address(path), { method, headers, body: body && JSON.stringify(body), signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failed(0, "unreachable", "The server does not answer.");
  }
  const text = (await answer.text()).replace(UNSEEN, "\ufffd");
  const json = (answer.headers.get("content-type") || "").startsWith("application/json");
  if (answer.ok) return json ? JSON.parse(text || "null") : text;
  const { code, message } = (json && JSON.parse(text).error) || {};
  throw new Failed(answer.status, code || "error", message || `The server answers ${answer.status}.`);
}

// Tells whether the same call may succeed soon: the server starts, or has too much to do.
export const passing = ({ status }) => [0, 429].includes(status) || (status >= 500 && status !== 501);

const AGAIN_MS = 2000;

// Gets a path, again when one of `on` or the key changes: {data, error, busy}. Data of before stay
// until the new ones have come, and while the server does not answer; it is asked again then.
export function useCall(path, on = []) {
  const secret = useStore(key);
  const [state, setState] = useState({ busy: true });
  useEffect(() => {
    if (path === null) return undefined;
    const abort = new AbortController();
    let waiting;
    const ask = () => call("GET", path, undefined, abort.signal).then(
      (data) => setState({ data, busy: false }),
      (error) => {
        if (abort.signal.aborted) return;
        const again = passing(error);
        setState(({ data }) => ({ data: again ? data : undefined, error, busy: false }));
        if (again) waiting = setTimeout(ask, AGAIN_MS);
      },
    );
    setState((before) => ({ ...before, busy: true }));
    ask();
    return () => {
      abort.abort();
      clearTimeout(waiting);
    };
  }, [path, secret, ...on]);
  return state;
}
