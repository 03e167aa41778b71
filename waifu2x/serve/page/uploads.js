// Sends files one after the other, so that they come in the order in which people gave them. Those
// that wait are names, which the browser reads when their turn comes.

import { upload } from "./api.js";

const FULL = [429, 503]; // the queue has no place: later it has
const WAIT_FULL = 2000;

export class Uploads {
  #queue;
  #waiting = [];
  #sending = null; // {id, stop}
  #number = 0;
  #pausedUntilUp = false;

  constructor(queue) {
    this.#queue = queue;
    addEventListener("beforeunload", (event) => {
      if (this.pending) event.preventDefault();
    });
  }

  /** How many files have not arrived yet. */
  get pending() {
    return (this.#sending ? 1 : 0) + this.#waiting.length;
  }

  /** Puts a file into the line, with the settings that its job will have. */
  add(file, settings) {
    this.#number += 1;
    const entry = {
      id: `upload-${this.#number}`,
      local: true,
      version: 0,
      name: file.name,
      state: "uploading",
      source: { bytes: file.size, format: "", pages: 1 },
      settings,
      progress: 0,
      error: null,
      file,
    };
    this.#put(entry, {});
    this.#enqueue(entry);
    return entry.id;
  }

  /** Sends a file again that the server refused. */
  retry(id) {
    this.#enqueue(this.#put(this.#queue.jobs.get(id), { state: "uploading", progress: 0, error: null }));
  }

  /** Forgets a file, which may be on its way. */
  cancel(id) {
    this.#waiting = this.#waiting.filter((entry) => entry.id !== id);
    if (this.#sending?.id === id) this.#sending.stop.abort();
    this.#queue.remove(id);
  }

  /** The server is there (again). */
  resume() {
    this.#pausedUntilUp = false;
    this.#next();
  }

  #put(entry, changes) {
    const changed = { ...entry, ...changes };
    this.#queue.putLocal(changed);
    return changed;
  }

  #enqueue(entry) {
    this.#waiting.push(entry);
    this.#next();
  }

  #next() {
    if (!this.#sending && this.#waiting.length && !this.#pausedUntilUp) {
      this.#send(this.#waiting.shift());
    }
  }

  async #send(entry) {
    const stop = new AbortController();
    this.#sending = { id: entry.id, stop };
    try {
      const told = (progress) => this.#put(entry, { progress });
      const job = await upload(entry.file, entry.name, entry.settings, stop.signal, told);
      this.#queue.replace(entry.id, job);
    } catch (error) {
      if (!stop.signal.aborted) this.#failed(entry, error);
    } finally {
      this.#sending = null;
      this.#next();
    }
  }

  #failed(entry, error) {
    if (error.status === 0 || FULL.includes(error.status)) {
      this.#put(entry, { progress: 0 });
      this.#waiting.unshift(entry);
      this.#pausedUntilUp = true;
      if (error.status) setTimeout(() => this.resume(), WAIT_FULL);
    } else this.#put(entry, { state: "refused", error: error.message });
  }
}
