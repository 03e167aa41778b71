// Drag, pinch, wheel, double click and keys on the panes, as moves of the view.

import { oncePerFrame } from "./dom.js";

const STEP = 60; // CSS pixels for an arrow key
const ZOOM_STEP = Math.SQRT2;

export class Gestures {
  #stage;
  #view;
  #moved;
  #pointers = new Map();

  /** `moved()` is called after each change, at most once per frame. */
  constructor(stage, view, moved) {
    this.#stage = stage;
    this.#view = view;
    this.#moved = oncePerFrame(moved);
    stage.addEventListener("pointerdown", (event) => this.#down(event));
    stage.addEventListener("pointermove", (event) => this.#move(event));
    for (const end of ["pointerup", "pointercancel", "lostpointercapture"]) {
      stage.addEventListener(end, (event) => this.#pointers.delete(event.pointerId));
    }
    stage.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    stage.addEventListener("dblclick", (event) => this.#double(event));
    stage.addEventListener("dragstart", (event) => event.preventDefault());
  }

  /** Zooms in (`steps` above 0) or out around the middle. */
  zoomBy(steps) {
    this.#view.zoomTo(this.#view.zoom * ZOOM_STEP ** steps);
    this.#moved();
  }

  zoomOne() {
    this.#view.zoomTo(1);
    this.#moved();
  }

  fit() {
    this.#view.fit();
    this.#moved();
  }

  /** Does what a key asks for; returns whether it asks for something. */
  key(key) {
    const arrows = { ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    if (key in arrows) {
      const [dx, dy] = arrows[key];
      this.#view.pan(dx * STEP, dy * STEP);
      this.#moved();
    } else if (key === "+" || key === "=") this.zoomBy(1);
    else if (key === "-" || key === "_") this.zoomBy(-1);
    else if (key === "0") this.fit();
    else if (key === "1") this.zoomOne();
    else return false;
    return true;
  }

  /** A point of the window as one of the pane under it. */
  #inPane(x, y) {
    const panes = [...this.#stage.querySelectorAll(".pane")];
    const boxes = panes.map((pane) => pane.getBoundingClientRect());
    const inside = (box) => x >= box.left && x < box.right && y >= box.top && y < box.bottom;
    const box = boxes.find(inside) ?? boxes[0];
    return [x - box.left, y - box.top];
  }

  #down(event) {
    if (event.button !== 0 || event.target.closest(".handle, .use")) return;
    this.#pointers.set(event.pointerId, [event.clientX, event.clientY]);
    this.#stage.setPointerCapture(event.pointerId);
  }

  #move(event) {
    const before = this.#pointers.get(event.pointerId);
    if (!before) return;
    const now = [event.clientX, event.clientY];
    const others = [...this.#pointers].filter(([id]) => id !== event.pointerId);
    if (others.length) {
      const [, other] = others[0];
      const apart = (one) => Math.hypot(one[0] - other[0], one[1] - other[1]) || 1;
      const middle = this.#inPane((now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
      this.#view.zoomTo((this.#view.zoom * apart(now)) / apart(before), ...middle);
    }
    const share = others.length ? 2 : 1; // of two fingers, each moves it half the way
    this.#view.pan((now[0] - before[0]) / share, (now[1] - before[1]) / share);
    this.#pointers.set(event.pointerId, now);
    this.#moved();
  }

  #wheel(event) {
    event.preventDefault();
    // Lines and pages, where a browser counts in them; a pinch on a touchpad has ctrlKey and small steps.
    const pixels = event.deltaY * [1, 30, 400][event.deltaMode];
    const factor = Math.exp(-pixels * (event.ctrlKey ? 0.01 : 0.002));
    this.#view.zoomTo(this.#view.zoom * factor, ...this.#inPane(event.clientX, event.clientY));
    this.#moved();
  }

  #double(event) {
    if (event.target.closest(".handle, .use")) return;
    if (Math.abs(this.#view.zoom - 1) < 0.01) this.#view.fit();
    else this.#view.zoomTo(1, ...this.#inPane(event.clientX, event.clientY));
    this.#moved();
  }
}
