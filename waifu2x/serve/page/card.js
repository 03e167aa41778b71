// One card: what a picture is, how far it is, and what can be done with it.

import { isPossible } from "./actions.js";
import { icon, make, setText } from "./dom.js";
import { stateOf } from "./queue.js";
import * as words from "./words.js";

const CROSS = "M6 6l12 12M18 6L6 18";
const SHAPES = {
  picture: "M4 5h16v14H4zM4 16l5-5 4 4 3-3 4 4M15.5 9.5h.01",
  animation: "M4 5h16v14H4zM10 9l5 3-5 3z",
  archive: "M6 4h12v16H6zM6 8h12M10 12h4",
  film: "M4 5h16v14H4zM8 5v14M16 5v14M4 12h16",
};
const STATES = {
  uploading: "Sending",
  refused: "Not sent",
  waiting: "Waiting",
  working: "Working",
  done: "Done",
  incomplete: "Incomplete",
  failed: "Failed",
  cancelled: "Cancelled",
};
/** Buttons of a card, where what they do is possible. */
const LABELS = { download: "Download", compare: "Compare", cancel: "Cancel", retry: "Retry", redo: "Redo" };
let made = 0;

export class Card {
  /** The job shown, or null. */
  job = null;
  /** Whose thumbnail was asked for. */
  asked = null;
  #shown = [];
  #thumbnail = "";
  #shape = "";

  constructor() {
    made += 1;
    this.pick = make("input", { type: "checkbox", tabIndex: -1 });
    this.pick.dataset.action = "pick";
    this.image = make("img", { alt: "", decoding: "async", hidden: true });
    this.drawing = make("span", { className: "drawing" });
    this.open = make("button", { type: "button", className: "thumbnail", tabIndex: -1 });
    this.open.dataset.action = "compare";
    this.open.append(this.drawing, this.image);
    this.name = make("h3", { id: `name-${made}`, className: "name", dir: "auto" });
    this.remove = make("button", { type: "button", className: "remove", tabIndex: -1 });
    this.remove.dataset.action = "remove";
    this.remove.append(icon(CROSS));
    this.state = make("span", { className: "state" });
    this.about = make("span");
    this.bar = make("progress", { max: 1, "aria-labelledby": this.name.id });
    this.line = make("p", { id: `line-${made}`, className: "line" });
    this.file = make("p", { id: `about-${made}`, className: "about-file" }, this.state, " ", this.about);
    this.buttons = {};
    const row = make("div", { className: "buttons" });
    for (const [action, label] of Object.entries(LABELS)) {
      const button = make("button", { type: "button", tabIndex: -1 }, label);
      button.dataset.action = action;
      this.buttons[action] = button;
      row.append(button);
    }
    this.element = make(
      "article",
      {
        className: "card",
        tabIndex: -1,
        "aria-labelledby": this.name.id,
        "aria-describedby": `${this.file.id} ${this.line.id}`,
      },
      this.open,
      make("label", { className: "pick" }, this.pick),
      make(
        "div",
        { className: "words" },
        this.name,
        this.file,
        this.line,
        this.bar,
        row,
      ),
      this.remove,
    );
    this.#call(this.pick, "pick", "Select");
    this.#call(this.open, "open", "Compare");
    this.#call(this.remove, "remove", "Remove");
    this.remove.title = "Remove";
    for (const [action, label] of Object.entries(LABELS)) this.#call(this.buttons[action], action, label);
    this.buttons.redo.title = "Again, with the settings shown";
    this.buttons.retry.title = "Again, with the same settings";
    this.element.card = this;
  }

  /** Shows a job, the `index`-th of `total`. */
  show(job, index, total, selected) {
    const shown = [job, index, total, selected];
    if (shown.every((value, at) => value === this.#shown[at])) return;
    this.#shown = shown;
    if (this.job?.id !== job.id) this.setThumbnail("");
    this.job = job;
    this.element.ariaPosInSet = index + 1;
    this.element.ariaSetSize = total;
    this.pick.checked = selected;
    this.element.classList.toggle("selected", selected);
    this.element.dataset.state = stateOf(job);
    if (this.name.textContent !== job.name) {
      this.name.textContent = this.name.title = job.name;
    }
    setText(this.state, STATES[stateOf(job)]);
    setText(this.about, this.#about());
    setText(this.line, this.#line());
    this.line.title = job.error ?? words.remarks(job).join("\n");
    this.#setShape(SHAPES[job.kind] ?? SHAPES.picture);
    const active = job.state === "working" || job.state === "uploading";
    this.bar.hidden = !active;
    if (job.preparing) this.bar.removeAttribute("value");
    else if (active) this.bar.value = job.progress;
    let isBare = true;
    for (const [action, button] of Object.entries(this.buttons)) {
      button.hidden = !isPossible(action, job);
      isBare &&= button.hidden;
    }
    this.element.classList.toggle("bare", isBare); // more room for what went wrong
    this.open.disabled = !isPossible("compare", job);
  }

  /** Lets Tab reach its parts, or not: only one card of the list is a stop. */
  setCurrent(current) {
    const index = current ? 0 : -1;
    if (this.element.tabIndex === index) return;
    for (const part of [this.element, this.pick, this.open, this.remove]) part.tabIndex = index;
    for (const button of Object.values(this.buttons)) button.tabIndex = index;
  }

  setThumbnail(address) {
    if (address === this.#thumbnail) return;
    this.#thumbnail = address;
    this.image.hidden = !address;
    if (address) this.image.src = address;
    else this.image.removeAttribute("src");
  }

  get hasThumbnail() {
    return this.#thumbnail !== "";
  }

  /** Parts are called by what they do and by the picture's name, which alone changes. */
  #call(part, what, label) {
    part.id = `${what}-${this.name.id}`;
    part.ariaLabel = label;
    part.setAttribute("aria-labelledby", `${part.id} ${this.name.id}`);
  }

  #setShape(path) {
    if (this.#shape === path) return;
    this.#shape = path;
    this.drawing.replaceChildren(icon(path));
  }

  #about() {
    const { source, result, state, kind } = this.job;
    if (!source) return "";
    if (state !== "done" || !result) return words.file(source, kind);
    const small = source.width ? `${source.width}x${source.height}` : words.bytes(source.bytes);
    return `${small} → ${words.file(result, kind)}`;
  }

  #line() {
    const { name, state, error, progress, rate, seconds_left: left, result, settings } = this.job;
    // The name stands above it.
    if (error && (state === "failed" || state === "refused")) return words.sentence(error.replace(`${name}: `, ""));
    if (state === "uploading") return progress ? `${words.percent(progress)} sent` : "Waits to be sent";
    if (state === "working" && this.job.preparing) {
      return `Preparing ${words.model(this.job)} for this machine, once: compiling for ${Math.round(this.job.preparing)}\u00a0s`;
    }
    if (state === "working") {
      const parts = [words.percent(progress)];
      const { kind, source } = this.job;
      if (kind === "film" && source?.pages) {
        const done = Math.floor(progress * source.pages).toLocaleString("en");
        parts.push(`${done} of ${words.counted(source.pages, "frame")}`);
      }
      if (rate) parts.push(words.rate(rate));
      if (left !== null && left !== undefined) parts.push(`${words.seconds(left)} left`);
      return [...parts, ...words.remarks(this.job)].join(" · ");
    }
    const remarks = words.remarks(this.job);
    if (state === "done" && remarks.length) return remarks.join(" · ");
    const line = words.settings(settings, this.job.kind);
    return state === "done" && result?.seconds ? `${line} · ${words.seconds(result.seconds)}` : line;
  }
}
