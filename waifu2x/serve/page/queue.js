// The queue as this window knows it: the server's jobs and, at the end, what is on its way there.

import { oncePerFrame } from "./dom.js";

/** States in the order of the filter, and which of them a filter shows. */
export const FILTERS = {
  all: ["uploading", "refused", "waiting", "working", "done", "incomplete", "failed", "cancelled"],
  waiting: ["uploading", "waiting"],
  working: ["working"],
  done: ["done"],
  incomplete: ["incomplete"],
  failed: ["refused", "failed"],
  cancelled: ["cancelled"],
};

/** The state of a job as people see it: a result that lacks something is not what they wanted. */
export const stateOf = (job) => (job.state === "done" && job.lost?.length ? "incomplete" : job.state);

export class Queue {
  /** By id. Entries without a server are `uploading` or `refused`. */
  jobs = new Map();
  #shown = [];
  #counts = {};
  #isCounted = false;
  #order = [];
  #filter = "all";
  #words = [];
  #changed = new Set();
  #reordered = false;
  #listeners = [];
  #isUnsorted = false;
  #leaving = new Set(); // ids that this window has removed, and the server has not told of yet
  #seen = null; // ids of a list that began anew, and has not come to its end
  #tell;

  constructor() {
    this.#tell = oncePerFrame(() => this.#update());
  }

  /** Calls `listener(changed ids, whether the list differs)` once per frame that brings a change. */
  listen(listener) {
    this.#listeners.push(listener);
  }

  /** Takes in what has changed at the server. Of a list that begins anew, jobs that are not there go. */
  take({ version, begins, more, jobs, removed }) {
    if (begins) {
      this.#seen = new Set();
      this.#leaving.clear();
    }
    for (const id of removed) this.#leaving.delete(id);
    this.removeAll(removed);
    for (const job of jobs) {
      this.#seen?.add(job.id);
      this.#put(job);
    }
    if (more || !this.#seen) return;
    const isGone = (job) => !job.local && job.version <= version && !this.#seen.has(job.id);
    this.removeAll([...this.jobs.values()].filter(isGone).map((job) => job.id));
    this.#seen = null;
    this.#reorder();
    this.#tell();
  }

  /** A job as the server has it now; what is older than what is known changes nothing. */
  #put(job) {
    const known = this.jobs.get(job.id);
    if (this.#leaving.has(job.id) || known?.version > job.version) return;
    // The time that it takes to prepare is no change of a job.
    if (known?.version === job.version && known.preparing === job.preparing) return;
    if (!known) {
      this.#order.push(job.id);
      this.#isUnsorted = true;
    }
    this.#set(job, known);
  }

  /** Changes an entry that has no job yet, or adds it. */
  putLocal(entry) {
    const known = this.jobs.get(entry.id);
    if (!known) this.#order.push(entry.id);
    this.#set(entry, known);
  }

  /** A file has arrived: its job takes the place of its entry. */
  replace(id, job) {
    if (this.jobs.has(job.id)) this.#order.splice(this.#order.lastIndexOf(job.id), 1);
    const place = this.#order.indexOf(id);
    if (place < 0) this.#order.push(job.id);
    else this.#order[place] = job.id;
    this.jobs.delete(id);
    const known = this.jobs.get(job.id);
    this.#isUnsorted = true; // others may have come before it
    this.#reorder();
    this.#set(known && known.version > job.version ? known : job, known);
  }

  /** Lets jobs go that the server has removed: answers that are under way may still have them. */
  leave(ids) {
    for (const id of ids) if (this.jobs.has(id)) this.#leaving.add(id);
    this.removeAll(ids);
  }

  removeAll(ids) {
    const gone = new Set(ids.filter((id) => this.jobs.delete(id)));
    if (!gone.size) return;
    this.#order = this.#order.filter((id) => !gone.has(id));
    this.#reorder();
    this.#tell();
  }

  /** Shows only some states, and names that contain all of these words. */
  select(filter, text) {
    this.#filter = filter;
    this.#words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.#reorder();
    this.#tell();
  }

  /** Ids that the filter lets through, oldest first. */
  get shown() {
    this.#count();
    return this.#shown;
  }

  /** How many there are, by filter. */
  get counts() {
    this.#count();
    return this.#counts;
  }

  get filter() {
    return this.#filter;
  }

  #set(job, known) {
    if (known?.state !== job.state) this.#reorder();
    this.jobs.set(job.id, job);
    this.#changed.add(job.id);
    this.#tell();
  }

  #reorder() {
    this.#reordered = true;
    this.#isCounted = false;
  }

  #update() {
    const [changed, reordered] = [this.#changed, this.#reordered];
    this.#changed = new Set();
    this.#reordered = false;
    for (const listener of this.#listeners) listener(changed, reordered);
  }

  /** Puts jobs into the order of the server's list; what is on its way there stays where it is. */
  #sort() {
    if (!this.#isUnsorted) return;
    this.#isUnsorted = false;
    const isSent = (id) => !this.jobs.get(id).local;
    const number = (id) => this.jobs.get(id).number;
    const sent = this.#order.filter(isSent).sort((one, other) => number(one) - number(other)).values();
    this.#order = this.#order.map((id) => (isSent(id) ? sent.next().value : id));
  }

  #count() {
    if (this.#isCounted) return;
    this.#isCounted = true;
    this.#sort();
    const byState = {};
    const states = FILTERS[this.#filter];
    const words = this.#words;
    this.#shown = this.#order.filter((id) => {
      const job = this.jobs.get(id);
      const state = stateOf(job);
      byState[state] = (byState[state] ?? 0) + 1;
      if (!states.includes(state)) return false;
      if (!words.length) return true;
      const name = job.name.toLowerCase();
      return words.every((word) => name.includes(word));
    });
    for (const [name, list] of Object.entries(FILTERS)) {
      this.#counts[name] = list.reduce((sum, state) => sum + (byState[state] ?? 0), 0);
    }
  }
}
