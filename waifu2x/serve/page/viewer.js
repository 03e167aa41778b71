// Looks at one picture: before and after, or what several models make of it.

import { jobPath } from "./api.js";
import { Crops, decoded, LARGEST } from "./crops.js";
import { byId, copy, setText } from "./dom.js";
import { View } from "./geometry.js";
import { Gestures } from "./gestures.js";
import { again, layer, Panes } from "./panes.js";
import * as words from "./words.js";

const SETTLED = 200; // ms that the slider of frames has to rest: each look into a film takes a while
const OPEN = { isOpen: true }; // the state of the entry in the history that is the view's
const MODES = { s: "slider", b: "beside", m: "models" };

/** How many pixels of the result one of the source becomes, as far as the settings say. */
function expected(settings, width, height) {
  if (settings.width) return settings.width / width;
  if (settings.height) return settings.height / height;
  const [above, below = 1] = String(settings.scale || 2).split("/").map(Number);
  return above / below || 2;
}

export class Viewer {
  #dialog = byId("viewer");
  #slider = byId("slider");
  #queue;
  #view = new View();
  #panes = new Panes(byId("stage"), this.#view);
  #gestures = new Gestures(byId("stage"), this.#view, () => this.#draw());
  #crops;
  #job = null;
  #page = 0;
  #before = null;
  #after = null;
  #stop = new AbortController();
  #turning;
  #isLeaving = false; // its entry of the history is about to go
  #isOpening = false; // the slider, which comes with the result, gets the focus then

  /** `on.download(id)` is told when the result is wanted as a file, `on.use(id, model)` which model is. */
  constructor(queue, known, on) {
    this.#queue = queue;
    this.#crops = new Crops(known, this.#view, () => this.#show(), (model) => {
      this.#setMode("slider");
      on.use(this.#job.id, model);
    });
    queue.listen((changed) => this.#heard(changed));
    byId("close").addEventListener("click", () => this.#dialog.close());
    byId("previous").addEventListener("click", () => this.#step(-1));
    byId("next").addEventListener("click", () => this.#step(1));
    byId("viewer-download").addEventListener("click", () => on.download(this.#job.id));
    byId("copy-job").addEventListener("click", ({ target }) => copy(this.#job.command, target));
    byId("zoom-in").addEventListener("click", () => this.#gestures.zoomBy(1));
    byId("zoom-out").addEventListener("click", () => this.#gestures.zoomBy(-1));
    byId("zoom-fit").addEventListener("click", () => this.#gestures.fit());
    byId("zoom-one").addEventListener("click", () => this.#gestures.zoomOne());
    byId("modes").addEventListener("change", () => this.#setMode(this.#mode));
    byId("page").addEventListener("change", () => this.#turnTo(byId("page").value - 1));
    byId("page-slide").addEventListener("input", () => {
      byId("page").value = byId("page-slide").value;
      clearTimeout(this.#turning);
      this.#turning = setTimeout(() => this.#turnTo(byId("page-slide").value - 1), SETTLED);
    });
    this.#slider.addEventListener("input", () => this.#panes.slide(this.#slider.value));
    this.#panes.handle.addEventListener("pointerdown", (event) => this.#grab(event));
    this.#panes.handle.addEventListener("pointermove", (event) => this.#drag(event));
    this.#dialog.addEventListener("keydown", (event) => this.#pressed(event));
    this.#dialog.addEventListener("close", () => this.#closed());
    addEventListener("popstate", () => this.#wentBack());
  }

  /** Shows a job, done or not. */
  open(id) {
    const job = this.#queue.jobs.get(id);
    if (!job) return;
    this.#forget();
    this.#job = job;
    this.#page = 0;
    this.#slider.value = 50;
    this.#panes.slide(50);
    this.#view.setPicture(1, 1, 1);
    this.#showPage();
    this.#show();
    if (!this.#dialog.open) {
      history.pushState(OPEN, ""); // so that Back closes the view, not the page
      this.#dialog.showModal();
      byId("stage").focus();
      this.#isOpening = true;
    }
    this.#load();
  }

  get #mode() {
    return this.#dialog.querySelector("input[name=mode]:checked").value;
  }

  #closed() {
    if (!this.#dialog.open) this.#forget(); // it may have been opened again meanwhile
    if (!history.state?.isOpen) return; // closed by Back
    this.#isLeaving = true;
    history.back();
  }

  #wentBack() {
    const isLeaving = this.#isLeaving;
    this.#isLeaving = false;
    if (!this.#dialog.open || history.state?.isOpen) return;
    if (isLeaving) history.pushState(OPEN, ""); // it was opened again meanwhile
    else this.#dialog.close();
  }

  /** The element with the focus may be hidden now: without it, no key would arrive here. */
  #keepFocus() {
    if (!this.#dialog.open) return;
    const { activeElement: focused } = document;
    if (!this.#dialog.contains(focused) || !focused.getClientRects().length) byId("stage").focus();
  }

  #forget() {
    this.#stop.abort();
    clearTimeout(this.#turning);
    this.#crops.setJob(null, 0);
    for (const image of [this.#before, this.#after]) if (image) URL.revokeObjectURL(image.src);
    this.#job = this.#before = this.#after = null;
  }

  /** Fetches what is not here yet of the source and of the result. */
  async #load() {
    this.#stop.abort();
    this.#stop = new AbortController();
    const { signal } = this.#stop;
    const { id, state } = this.#job;
    this.#crops.setJob(this.#job, this.#page);
    const query = this.#page ? `?page=${this.#page}` : "";
    const get = (what) => decoded(`${jobPath(id, what)}${query}`, signal);
    const here = (image) => signal.aborted && image ? URL.revokeObjectURL(image.src) : image;
    this.#about();
    byId("stage").ariaBusy = true;
    try {
      const [before, after] = await Promise.all([
        this.#before ?? get("source").then(here),
        this.#after ?? (state === "done" ? get("view").then(here) : null),
      ]);
      if (signal.aborted) return;
      [this.#before, this.#after] = [before, after];
      before.alt = `${this.#job.name}, before`;
      if (after) after.alt = `${this.#job.name}, after`;
      const { naturalWidth: width, naturalHeight: height } = before;
      const factor = after ? after.naturalWidth / width : expected(this.#job.settings, width, height);
      this.#view.setPicture(width, height, factor);
      this.#about();
      this.#setMode(this.#mode);
      if (this.#isOpening && document.activeElement === byId("stage")) this.#slider.focus();
      this.#isOpening = false;
    } catch (error) {
      if (signal.aborted) return;
      this.#show();
      this.#say(error.message);
    } finally {
      if (!signal.aborted) byId("stage").ariaBusy = false;
    }
  }

  /** Follows what happens to the picture that is looked at. */
  #heard(changed) {
    if (!this.#job || !changed.has(this.#job.id)) {
      if (this.#job && !this.#queue.jobs.has(this.#job.id)) this.#dialog.close();
      return;
    }
    const before = this.#job;
    this.#job = this.#queue.jobs.get(before.id);
    if (before.state === this.#job.state) {
      this.#about();
      return;
    }
    if (this.#job.state !== "done" && this.#after) { // it is computed again
      URL.revokeObjectURL(this.#after.src);
      this.#after = null;
    }
    this.#load();
  }

  #setMode(mode) {
    this.#dialog.querySelector(`input[name=mode][value=${mode}]`).checked = true;
    byId("models-bar").hidden = mode !== "models";
    if (mode === "models" && this.#before) {
      this.#panes.arrange(); // the stage has become smaller
      this.#crops.start();
    }
    this.#show();
  }

  #show() {
    const mode = this.#mode;
    this.#slider.hidden = mode !== "slider" || !this.#after;
    this.#keepFocus();
    if (!this.#before) {
      this.#panes.show([], false);
      return;
    }
    const { naturalWidth: width, naturalHeight: height } = this.#before;
    const before = layer(this.#before, 0, 0, width, height);
    const under = () => [again(before)];
    const versions = [{ label: "Before", layers: [before] }];
    if (mode === "models") versions.push(...this.#crops.versions(under));
    else if (this.#after) {
      versions.push({ label: "After", layers: [layer(this.#after, 0, 0, width, height)] });
    }
    this.#panes.show(versions, mode === "slider");
    this.#draw();
    this.#tell();
  }

  #draw() {
    this.#panes.draw();
    const zoom = this.#view.zoom;
    setText(byId("zoom"), zoom >= 0.995 ? `${Math.round(zoom * 100)} %` : `${(zoom * 100).toPrecision(2)} %`);
  }

  #about() {
    const { name, kind, state, source, result, settings, progress } = this.#job;
    setText(byId("viewer-title"), name);
    const sizes = [source, state === "done" ? result : null].filter((each) => each?.width);
    const pixels = sizes.map(({ width, height }) => `${width}x${height}`).join(" → ");
    const done = state === "working" ? words.percent(progress) : "";
    setText(byId("viewer-about"), [pixels, words.settings(settings, kind), done].filter(Boolean).join(" · "));
    byId("viewer-download").hidden = state !== "done";
    const pages = source?.pages ?? 1;
    byId("pages-bar").hidden = pages < 2;
    setText(byId("page-name"), kind === "film" ? "Frame" : "Page");
    setText(byId("pages"), `of ${pages.toLocaleString("en")}`);
    this.#keepFocus();
    this.#tell();
  }

  /** Says what is to be known of the picture, or of what is seen of it. */
  #tell() {
    const { state, error } = this.#job;
    const remarks = words.remarks(this.#job).join(" · ");
    const news = {
      done: remarks,
      waiting: "This waits for its turn. Models can be compared already.",
      working: `This is being worked on. Models can be compared already. ${remarks}`.trim(),
      cancelled: "This was cancelled.",
    };
    if (this.#mode === "models" && this.#crops.isPart) {
      this.#say(`Only the middle is compared, at most ${LARGEST} pixels a side. Zoom in and compare again to see more.`);
    } else this.#say(state === "failed" ? error : (news[state] ?? ""));
  }

  #showPage() {
    for (const field of [byId("page"), byId("page-slide")]) {
      field.max = this.#job.source?.pages ?? 1;
      field.value = this.#page + 1;
    }
  }

  #say(message) {
    byId("viewer-message").hidden = !message;
    setText(byId("viewer-message"), message);
  }

  #step(by) {
    const ids = this.#queue.shown.filter((id) => {
      const job = this.#queue.jobs.get(id);
      return job.source?.width && !job.local;
    });
    if (ids.length) this.open(ids[(ids.indexOf(this.#job.id) + by + ids.length) % ids.length]);
  }

  #turnTo(page) {
    const last = (this.#job.source?.pages ?? 1) - 1;
    this.#page = Math.min(last, Math.max(0, Math.trunc(page) || 0));
    this.#showPage();
    for (const image of [this.#before, this.#after]) if (image) URL.revokeObjectURL(image.src);
    this.#before = this.#after = null;
    this.#load();
  }

  #grab(event) {
    this.#panes.handle.setPointerCapture(event.pointerId);
    event.preventDefault();
  }

  #drag(event) {
    if (!this.#panes.handle.hasPointerCapture(event.pointerId)) return;
    const box = byId("stage").getBoundingClientRect();
    this.#slider.value = (100 * (event.clientX - box.left)) / box.width;
    this.#panes.slide(this.#slider.value);
  }

  #pressed(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const { key, target } = event;
    if (target.matches("input[type=number]")) return;
    const arrow = key.startsWith("Arrow");
    if (key === "PageDown" || key === "PageUp") this.#step(key === "PageDown" ? 1 : -1);
    else if (MODES[key.toLowerCase()]) this.#setMode(MODES[key.toLowerCase()]);
    else if ((arrow && target !== byId("stage")) || !this.#gestures.key(key)) return;
    event.preventDefault();
  }
}
