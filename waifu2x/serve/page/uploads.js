// Sends files one after the other, so that they come in the order in which people gave them; large ones
// beside the others, so that pictures do not wait behind a film. Those that wait are names, which the
// browser reads when their turn comes.

import { upload } from "./api.js";

const LARGE = 64 << 20; // bytes
const FULL = [429, 503]; // the queue has no place: later it has
const WAIT = 2000; // ms until a file is sent again that the server could not take

export class Uploads {
  #queue;
  #lanes = {
    small: { waiting: [], sending: null }, // sending: {id, stop}
    large: { waiting: [], sending: null },
  };
  #number = 0;
  #isPaused = false;
  #sent;

  /** `sent()` is called after each file that has arrived. */
  constructor(queue, sent) {
    this.#queue = queue;
    this.#sent = sent;
    addEventListener("beforeunload", (event) => {
      if (this.pending) event.preventDefault();
    });
  }

  /** How many files have not arrived yet. */
  get pending() {
    const each = Object.values(this.#lanes);
    return each.reduce((sum, { waiting, sending }) => sum + waiting.length + (sending ? 1 : 0), 0);
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

  /** Forgets files; some may be on their way. */
  cancel(ids) {
    const unwanted = new Set(ids);
    for (const lane of Object.values(this.#lanes)) {
      lane.waiting = lane.waiting.filter((entry) => !unwanted.has(entry.id));
      if (unwanted.has(lane.sending?.id)) lane.sending.stop.abort();
    }
    this.#queue.removeAll(ids);
  }

  #put(entry, changes) {
    const changed = { ...entry, ...changes };
    this.#queue.putLocal(changed);
    return changed;
  }

  #enqueue(entry) {
    const lane = entry.file.size > LARGE ? this.#lanes.large : this.#lanes.small;
    lane.waiting.push(entry);
    this.#next(lane);
  }

  #next(lane) {
    if (!lane.sending && lane.waiting.length && !this.#isPaused) {
      this.#send(lane.waiting.shift(), lane);
    }
  }

  async #send(entry, lane) {
    const stop = new AbortController();
    lane.sending = { id: entry.id, stop };
    try {
      const told = (progress) => this.#put(entry, { progress });
      const job = await upload(entry.file, entry.name, entry.settings, stop.signal, told);
      this.#queue.replace(entry.id, job);
      this.#sent();
    } catch (error) {
      if (!stop.signal.aborted) this.#failed(entry, lane, error);
    } finally {
      lane.sending = null;
      this.#next(lane);
    }
  }

  #failed(entry, lane, error) {
    if (error.status === 0 || FULL.includes(error.status)) {
      this.#put(entry, { progress: 0 });
      lane.waiting.unshift(entry);
      this.#isPaused = true;
      setTimeout(() => {
        this.#isPaused = false;
        for (const each of Object.values(this.#lanes)) this.#next(each);
      }, WAIT);
    } else this.#put(entry, { state: "refused", error: error.message });
  }
}
