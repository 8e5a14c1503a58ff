/* A value that components follow. */

import { useEffect, useState } from "./vendor/preact-htm-3.1.1.module.js";

export class Store {
  #followers = new Set();

  constructor(value) {
    this.value = value;
  }

  set(value) {
    this.value = value;
    for (const follow of [...this.#followers]) follow(value);
  }

  follow(follower) {
    this.#followers.add(follower);
    return () => this.#followers.delete(follower);
  }
}

export function useStore(store) {
  const [, draw] = useState(0);
  useEffect(() => store.follow(() => draw((count) => count + 1)), [store]);
  return store.value;
}
