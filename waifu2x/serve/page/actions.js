// What people do with pictures, with one or with many of them.

import * as api from "./api.js";

const FINISHED = ["done", "failed", "cancelled"];
const AT_ONCE = 4; // requests for many pictures

/** Whether something can be done with a job, by the action's name. */
const POSSIBLE = {
  download: (job) => job.state === "done",
  compare: (job) => !job.local && Boolean(job.source?.width),
  cancel: (job) => ["uploading", "waiting", "working"].includes(job.state),
  // What cannot be read is not read better by a second attempt.
  retry: (job) => job.state === "refused" || (["failed", "cancelled"].includes(job.state) && job.source !== null),
  redo: (job) => FINISHED.includes(job.state) && job.source !== null,
  remove: () => true,
};

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
    if (action === "retry") for (const id of local) this.#uploads.retry(id);
    else if (action !== "redo") this.#uploads.cancel(local);
    await this.#each(wanted.filter((id) => !local.includes(id)), (id) => this.#ask(action, id, settings));
  }

  async #ask(action, id, settings) {
    try {
      if (action === "remove") await api.request(api.jobPath(id), { method: "DELETE" });
      else {
        const what = action === "cancel" ? "cancel" : `retry?${api.query(settings)}`;
        this.#queue.put(await api.json(api.jobPath(id, what), { method: "POST" }));
      }
    } catch (error) {
      if (error.status !== 404) throw error; // another window was faster
    }
    if (action === "remove") this.#queue.removeAll([id]);
  }

  /** Does something with many jobs, a few at a time; of what fails, says the first. */
  async #each(ids, action) {
    const left = [...ids];
    const errors = [];
    const lane = async () => {
      while (left.length && errors.length < 10) {
        try {
          await action(left.shift());
        } catch (error) {
          errors.push(error);
        }
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, lane));
    if (errors.length) throw errors[0];
  }
}
