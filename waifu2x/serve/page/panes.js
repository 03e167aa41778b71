// Panes that show the same place of a picture, each in its own version.

import { make, setText } from "./dom.js";

/** A picture that is decoded, and the part of the source (in its pixels) that it shows. */
export function layer(image, x, y, width, height) {
  const { naturalWidth: columns, naturalHeight: rows } = image;
  return { image, x, y, width, height, columns, rows };
}

/** The part of a layer around the one on top of it, which may be transparent: a CSS shape. */
function around(lower, upper) {
  if (!upper) return "";
  const { columns, rows } = lower;
  const [left, right] = [upper.x, upper.x + upper.width].map((x) => ((x - lower.x) * columns) / lower.width);
  const [top, bottom] = [upper.y, upper.y + upper.height].map((y) => ((y - lower.y) * rows) / lower.height);
  const edge = `0 0, ${columns}px 0, ${columns}px ${rows}px, 0 ${rows}px, 0 0`;
  const hole = `${left}px ${top}px, ${left}px ${bottom}px, ${right}px ${bottom}px, ${right}px ${top}px, ${left}px ${top}px`;
  return `polygon(evenodd, ${edge}, ${hole})`;
}

/** The same picture once more, for another pane. */
export const again = (made) => ({ ...made, image: made.image.cloneNode() });

class Pane {
  #label = make("span");
  #about = make("small");
  #use = make("button", { type: "button", className: "use" }, "Use this model");
  #ground = make("div", { className: "ground" }); // seen where the picture is transparent
  #frame = make("div", { className: "frame" });
  #layers = [];
  element = make(
    "figure",
    { className: "pane" },
    this.#ground,
    this.#frame,
    make("figcaption", { className: "pane-label" }, this.#label, this.#about),
    this.#use,
  );

  /** Shows layers, the last one on top; `use()` is called when that version is wanted. */
  show({ label, about, layers, use }) {
    setText(this.#label, label);
    setText(this.#about, about ?? "");
    this.#use.hidden = !use;
    this.#use.onclick = use;
    this.#use.ariaLabel = `Use this model: ${label.split(":")[0]}`;
    this.#use.title = "For this picture, and for those that you add from now on";
    this.#layers = layers;
    layers.forEach((each, at) => (each.image.style.clipPath = around(each, layers[at + 1])));
    this.#frame.replaceChildren(...layers.map((each) => each.image));
  }

  draw(view) {
    const [left, top] = view.origin;
    const ground = this.#ground.style;
    ground.transform = `translate(${left}px, ${top}px)`;
    [ground.width, ground.height] = [`${view.width * view.scale}px`, `${view.height * view.scale}px`];
    for (const { image, x, y, width, height, columns, rows } of this.#layers) {
      const across = (width * view.scale) / columns;
      const down = (height * view.scale) / rows;
      image.style.transform =
        `translate(${left + x * view.scale}px, ${top + y * view.scale}px) scale(${across}, ${down})`;
      // Each pixel as it is, unless there are more than the screen has.
      image.classList.toggle("sharp", across * devicePixelRatio > 0.999);
    }
  }
}

export class Panes {
  #stage;
  #view;
  #panes = [];
  #sliding = false;
  #handle = make("div", { className: "handle", hidden: true });

  constructor(stage, view) {
    this.#stage = stage;
    this.#view = view;
    stage.append(this.#handle);
    new ResizeObserver(() => this.arrange()).observe(stage);
  }

  get handle() {
    return this.#handle;
  }

  /** Shows versions, each {label, layers, about?, use?}; `sliding`: two of them on each other. */
  show(versions, sliding) {
    this.#sliding = sliding && versions.length === 2;
    while (this.#panes.length < versions.length) this.#panes.push(new Pane());
    for (const pane of this.#panes.splice(versions.length)) pane.element.remove();
    versions.forEach((version, index) => {
      this.#panes[index].show(version);
      if (!this.#panes[index].element.isConnected) this.#handle.before(this.#panes[index].element);
    });
    this.#handle.hidden = !this.#sliding;
    this.#stage.classList.toggle("sliding", this.#sliding);
    this.arrange();
  }

  /** Lays the panes out so that each is as large as can be. */
  arrange() {
    if (!this.#panes.length || !this.#stage.clientWidth) return;
    const count = this.#sliding ? 1 : this.#panes.length;
    const { clientWidth: width, clientHeight: height } = this.#stage;
    const shape = this.#view.width / this.#view.height;
    let [best, columns] = [0, 1];
    for (let tried = 1; tried <= count; tried += 1) {
      const size = Math.min(width / tried, (height / Math.ceil(count / tried)) * shape);
      if (size > best * 1.01) [best, columns] = [size, tried];
    }
    const rows = Math.ceil(count / columns);
    this.#stage.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
    this.#stage.style.gridTemplateRows = `repeat(${rows}, minmax(0, 1fr))`;
    const pane = this.#panes[0].element;
    this.#view.setPane(pane.clientWidth, pane.clientHeight);
    this.draw();
  }

  draw() {
    for (const pane of this.#panes) pane.draw(this.#view);
  }

  /** Where the version before ends: percent of the pane's width. */
  slide(percent) {
    this.#stage.style.setProperty("--at", `${percent}%`);
  }
}
