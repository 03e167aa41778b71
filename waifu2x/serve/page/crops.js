// Recomputes the part of a picture that is seen by several models.

import { jobPath, picture, query } from "./api.js";
import { byId, make } from "./dom.js";
import { layer } from "./panes.js";
import * as words from "./words.js";

export const LARGEST = 512; // pixels of the source a side: what the server takes
const MOST = 9;
const AT_ONCE = 2;
const KEPT = "waifu2x-compared";

/** A picture that is decoded, with its address. */
export async function decoded(path, signal) {
  const address = await picture(path, signal);
  const image = new Image();
  image.src = address;
  image.alt = "";
  try {
    await image.decode();
  } catch {
    URL.revokeObjectURL(address);
    throw new Error("The browser cannot show this picture: it may be too large.");
  }
  return image;
}

const family = (name) => name.split("/")[0];

export class Crops {
  #known;
  #use;
  #models = new Map(); // name: {text, layer}
  #region = null;
  #isPart = false;
  #stop = new AbortController();
  #changed;
  #job = null;
  #view;

  /** `changed()` is called when there is something else to show, `use(model)` when one is wanted. */
  constructor(known, view, changed, use) {
    this.#known = known.models;
    this.#use = use;
    this.#view = view;
    this.#changed = changed;
    const box = byId("models");
    let kept = [];
    try {
      kept = JSON.parse(sessionStorage.getItem(KEPT)) ?? [];
    } catch {
      // chosen anew
    }
    for (const { name, best_for: best } of known.models) {
      const tick = make("input", { type: "checkbox", value: name, checked: kept.includes(name) });
      box.append(make("label", { title: best ?? "" }, tick, make("span", {}, name)));
    }
    box.addEventListener("change", () => this.#choose());
    byId("recompute").addEventListener("click", () => this.recompute());
  }

  /** Which models are ticked, in the list's order. */
  get chosen() {
    return this.#ticks.filter((tick) => tick.checked).map((tick) => tick.value);
  }

  get #ticks() {
    return [...byId("models").querySelectorAll("input")];
  }

  /** Whether less was recomputed than was seen. */
  get isPart() {
    return this.#isPart;
  }

  /** Another picture: what was computed is of no use any more. */
  setJob(job, page) {
    const same = this.#job?.id === job?.id && this.#job?.page === page;
    this.#job = job && { ...job, page };
    if (!same) this.clear();
  }

  clear() {
    this.#stop.abort();
    for (const { layer: made } of this.#models.values()) made && URL.revokeObjectURL(made.image.src);
    this.#models.clear();
    this.#region = null;
    this.#isPart = false;
  }

  /** Computes what is seen, if nothing is computed yet. */
  start() {
    if (this.#region) return;
    if (!this.chosen.length) {
      // Its own model, and the first of two other families.
      const own = words.model(this.#job);
      const families = new Map(this.#ticks.toReversed().map((tick) => [family(tick.value), tick]));
      families.delete(family(own));
      const others = [...families.values()].reverse().slice(0, 2);
      for (const tick of this.#ticks) tick.checked = tick.value === own || others.includes(tick);
    }
    this.recompute();
  }

  /** Computes what is seen now by each of the chosen models. */
  recompute() {
    this.clear();
    this.#region = this.#view.seen(LARGEST);
    const { width, height } = this.#view.seen(Infinity);
    this.#isPart = this.#region.width < width || this.#region.height < height;
    this.#choose();
  }

  /** A version for each chosen model: its crop on the source. */
  versions(under) {
    return this.chosen.map((name) => {
      const { text = "", layer: made = null } = this.#models.get(name) ?? {};
      const about = this.#known.find((each) => each.name === name).best_for;
      const layers = [...under(), ...(made ? [made] : [])];
      return { label: `${name}${text && `: ${text}`}`, about, layers, use: () => this.#use(name) };
    });
  }

  #choose() {
    const { chosen } = this;
    sessionStorage.setItem(KEPT, JSON.stringify(chosen));
    for (const tick of this.#ticks) tick.disabled = !tick.checked && chosen.length >= MOST;
    const missing = chosen.filter((name) => !this.#models.has(name));
    if (this.#region && missing.length) {
      for (const name of missing) this.#models.set(name, { text: "waiting…", layer: null });
      if (this.#stop.signal.aborted) this.#stop = new AbortController();
      const { signal } = this.#stop;
      for (let lane = 0; lane < AT_ONCE; lane += 1) this.#compute(missing, signal);
    }
    this.#changed();
  }

  async #compute(names, signal) {
    while (names.length && !signal.aborted) {
      const name = names.shift();
      const { x, y, width, height } = this.#region;
      this.#models.set(name, { text: "working…", layer: null });
      this.#changed();
      const asked = query({
        x, y, width, height, model: name, noise: this.#job.settings.noise, scale: this.#scale,
        page: this.#job.page || "",
      });
      const started = performance.now();
      try {
        const image = await decoded(`${jobPath(this.#job.id, "crop")}?${asked}`, signal);
        if (signal.aborted) return;
        const text = words.seconds((performance.now() - started) / 1000);
        this.#models.set(name, { text, layer: layer(image, x, y, width, height) });
      } catch (error) {
        if (signal.aborted) return;
        this.#models.set(name, { text: error.message, layer: null });
      }
      this.#changed();
    }
  }

  /** The job's scale; for one with a size in pixels, what comes nearest. */
  get #scale() {
    const { scale } = this.#job.settings;
    return scale || Math.max(1, Math.round(this.#view.factor * 100) / 100);
  }
}
