// The actions of people on pictures, on one or on many of them.

import * as api from "./api.js";
import * as words from "./words.js";

const FINISHED = ["done", "failed", "cancelled"];
const MOST = 10_000; // ids in a request

const POSSIBLE = {
  download: (job) => job.state === "done",
  compare: (job) => !job.local && Boolean(job.source?.width),
  cancel: (job) => ["uploading", "waiting", "working"].includes(job.state),
  // A file that cannot be read is not read better by a second attempt.
  retry: (job) => job.state === "refused" || (["failed", "cancelled"].includes(job.state) && job.source !== null),
  redo: (job) => FINISHED.includes(job.state) && job.source !== null,
  remove: () => true,
};

/** Whether something can be done with a job, by the action's name. */
export const isPossible = (action, job) => POSSIBLE[action](job);

export class Actions {
  #queue;
  #uploads;

  constructor(queue, uploads) {
    this.#queue = queue;
    this.#uploads = uploads;
  }

  /** Those of these jobs with which that can be done. */
  possible(action, ids) {
    const jobs = ids.map((id) => this.#queue.jobs.get(id)).filter(Boolean); // some may be gone by now
    return jobs.filter((job) => isPossible(action, job)).map((job) => job.id);
  }

  /** Cancels, removes, tries again, or makes anew with `settings`. Throws an ApiError. */
  async change(action, ids, settings = {}) {
    const wanted = this.possible(action, ids);
    const local = wanted.filter((id) => this.#queue.jobs.get(id).local);
    const sent = wanted.filter((id) => !this.#queue.jobs.get(id).local);
    if (action === "retry") for (const id of local) this.#uploads.retry(id);
    else if (local.length) this.#uploads.cancel(local);
    const path = action === "redo" ? `api/jobs/retry?${api.query(settings)}` : `api/jobs/${action}`;
    for (let from = 0; from < sent.length; from += MOST) {
      await api.post(path, { ids: sent.slice(from, from + MOST) });
    }
    if (action === "remove") this.#queue.leave(sent);
  }

  /** Makes a job again by another model, with its other settings; stops it first if need be. Throws an ApiError. */
  async useModel(id, model) {
    const job = this.#queue.jobs.get(id);
    if (words.model(job) === model) return;
    if (isPossible("cancel", job)) await api.post("api/jobs/cancel", { ids: [id] });
    await api.post(`api/jobs/retry?${api.query({ model })}`, { ids: [id] });
  }
}
