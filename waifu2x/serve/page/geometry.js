// Where a picture lies in a pane: one view for all panes, so that they move in lock-step.
// Coordinates are pixels of the source; a zoom of 1 shows one pixel of the result on one of the screen.

const MOST = 32;

export class View {
  /** The source's size and how many pixels of the result one of its pixels becomes. */
  width = 1;
  height = 1;
  factor = 1;
  /** Pixels of the screen (not of CSS) for one of the result. */
  zoom = 1;
  /** The point in the middle of each pane. */
  x = 0;
  y = 0;
  /** A pane's size in CSS pixels. */
  paneWidth = 1;
  paneHeight = 1;
  #fitting = true;

  /** CSS pixels for one pixel of the source. */
  get scale() {
    return (this.zoom * this.factor) / devicePixelRatio;
  }

  setPicture(width, height, factor) {
    const same = this.width === width && this.height === height;
    // The part that is seen stays, also when the result turns out to be larger than was thought.
    if (same) this.zoom *= this.factor / factor;
    [this.width, this.height, this.factor] = [width, height, factor];
    if (!same || this.#fitting) this.fit();
  }

  setPane(width, height) {
    [this.paneWidth, this.paneHeight] = [Math.max(1, width), Math.max(1, height)];
    if (this.#fitting) this.fit();
    else this.#hold();
  }

  get #fittingZoom() {
    const scale = Math.min(this.paneWidth / this.width, this.paneHeight / this.height);
    return Math.min(MOST, (scale * devicePixelRatio) / this.factor);
  }

  /** Shows all of it. */
  fit() {
    this.#fitting = true;
    this.zoom = this.#fittingZoom;
    this.x = this.width / 2;
    this.y = this.height / 2;
  }

  /** Zooms so that the point under (left, top) of a pane, in CSS pixels, stays there. */
  zoomTo(zoom, left = this.paneWidth / 2, top = this.paneHeight / 2) {
    const [dx, dy] = [left - this.paneWidth / 2, top - this.paneHeight / 2];
    const before = this.scale;
    this.#fitting = false;
    this.zoom = Math.min(MOST, Math.max(zoom, Math.min(1, this.#fittingZoom)));
    this.x += dx / before - dx / this.scale;
    this.y += dy / before - dy / this.scale;
    this.#hold();
  }

  /** Moves the picture by CSS pixels. */
  pan(dx, dy) {
    this.#fitting = false;
    this.x -= dx / this.scale;
    this.y -= dy / this.scale;
    this.#hold();
  }

  /** No edge of the picture comes into a pane that it fills; what fits stays in the middle. */
  #hold() {
    const held = (at, size, pane) => {
      const half = pane / this.scale / 2;
      return 2 * half >= size ? size / 2 : Math.min(size - half, Math.max(half, at));
    };
    this.x = held(this.x, this.width, this.paneWidth);
    this.y = held(this.y, this.height, this.paneHeight);
  }

  /** Where the source's point (0, 0) lies in a pane, in CSS pixels; on a whole pixel of the screen. */
  get origin() {
    const whole = (place) => Math.round(place * devicePixelRatio) / devicePixelRatio;
    return [
      whole(this.paneWidth / 2 - this.x * this.scale),
      whole(this.paneHeight / 2 - this.y * this.scale),
    ];
  }

  /** The part that is seen, in whole pixels of the source, at most `most` a side and around the middle. */
  seen(most) {
    const span = (middle, size, pane) => {
      const wanted = Math.min(most, size, Math.ceil(pane / this.scale));
      const start = Math.round(middle - wanted / 2);
      return [Math.min(size - wanted, Math.max(0, start)), wanted];
    };
    const [x, width] = span(this.x, this.width, this.paneWidth);
    const [y, height] = span(this.y, this.height, this.paneHeight);
    return { x, y, width, height };
  }
}
