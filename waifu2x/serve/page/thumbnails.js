// Thumbnails: few are fetched at once, those that are no longer seen not at all, few are kept.

import { jobPath, picture } from "./api.js";

const AT_ONCE = 4;
const KEPT = 300;

export class Thumbnails {
  #kept = new Map(); // the one used last is last
  #wanted = new Map();
  #fetching = new Map();

  /** The address of a job's thumbnail if it is here. */
  get(id) {
    const address = this.#kept.get(id);
    if (address === undefined) return undefined;
    this.#kept.delete(id);
    this.#kept.set(id, address);
    return address;
  }

  /** Fetches a thumbnail, and calls `show(address)` when it is here. */
  want(id, show) {
    this.#wanted.set(id, show);
    this.#next();
  }

  /** Nobody sees that job any more. */
  unwant(id) {
    this.#wanted.delete(id);
    this.#fetching.get(id)?.abort();
  }

  #next() {
    for (const [id, show] of this.#wanted) {
      if (this.#fetching.size >= AT_ONCE) return;
      if (this.#fetching.has(id)) continue; // it was stopped, and is about to end
      this.#wanted.delete(id);
      this.#fetch(id, show);
    }
  }

  async #fetch(id, show) {
    const stop = new AbortController();
    this.#fetching.set(id, stop);
    try {
      const address = await picture(jobPath(id, "thumbnail"), stop.signal);
      this.#keep(id, address);
      show(address);
    } catch {
      // a picture without one, or the server is away: the card says what is wrong
    } finally {
      this.#fetching.delete(id);
      this.#next();
    }
  }

  #keep(id, address) {
    this.#kept.set(id, address);
    if (this.#kept.size <= KEPT) return;
    const [oldest, its] = this.#kept.entries().next().value;
    this.#kept.delete(oldest);
    URL.revokeObjectURL(its);
  }
}
