// The list of cards; only those in sight (and the one with the focus) are in the document.

import { Card } from "./card.js";
import { byId, oncePerFrame } from "./dom.js";

const HEIGHT = 9; // rem; page.css lays a card out in it
const GAP = 0.75;
const LEAST_WIDTH = 22;
const AROUND = 1; // rows beyond the edges of the window
const MOST_NEW = 12; // cards that come into the document in one frame: a large screen has eighty
const SETTLED = 80; // ms until what is in sight is worth a thumbnail

export class Cards {
  /** Ids of the cards that are ticked. */
  selected = new Set();
  #list = byId("cards");
  #queue;
  #thumbnails;
  #on;
  #live = new Map(); // by id
  #free = [];
  #current = null; // id of the card that Tab reaches
  #place = 0; // where it was, for when it is gone
  #layout = { columns: 1, width: 0, height: 1, gap: 0 };
  #settling = null;
  #draw;

  /** `on.action(action, id)` is told of what people want; `on.selection()` of ticks. */
  constructor(queue, thumbnails, on) {
    this.#queue = queue;
    this.#thumbnails = thumbnails;
    this.#on = on;
    this.#draw = oncePerFrame(() => this.#render());
    queue.listen((changed, reordered) => this.#update(changed, reordered));
    addEventListener("scroll", this.#draw, { passive: true });
    addEventListener("resize", this.#draw);
    new ResizeObserver(() => this.#measure()).observe(this.#list);
    this.#list.addEventListener("click", (event) => this.#clicked(event));
    this.#list.addEventListener("keydown", (event) => this.#pressed(event));
    this.#list.addEventListener("focusin", (event) => this.#focused(event));
  }

  /** Ticks or unticks cards. */
  select(ids, ticked) {
    for (const id of ids) {
      if (ticked) this.selected.add(id);
      else this.selected.delete(id);
    }
    for (const [id, card] of this.#live) this.#show(card, id, this.#indexOf(card));
    this.#on.selection();
  }

  /** Scrolls to a card, and gives it the focus if asked to. */
  reveal(id, focus) {
    const index = this.#queue.shown.indexOf(id);
    if (index < 0) return;
    this.#setCurrent(id, index);
    const { columns, height, gap } = this.#layout;
    const top = Math.floor(index / columns) * (height + gap);
    const box = this.#list.getBoundingClientRect();
    const above = parseFloat(getComputedStyle(document.documentElement).scrollPaddingTop) || 0;
    const from = box.top + top;
    if (from < above) scrollBy(0, from - above);
    else if (from + height > innerHeight) scrollBy(0, from + height + gap - innerHeight);
    this.#render();
    if (focus) this.#live.get(id)?.element.focus({ preventScroll: true });
  }

  #measure() {
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const gap = GAP * rem;
    const all = this.#list.clientWidth;
    const columns = Math.max(1, Math.floor((all + gap) / (LEAST_WIDTH * rem + gap)));
    const width = Math.max(0, (all - gap * (columns - 1)) / columns);
    this.#layout = { columns, width, height: HEIGHT * rem, gap };
    this.#draw();
  }

  #update(changed, reordered) {
    if (reordered) {
      for (const id of this.selected) if (!this.#queue.jobs.has(id)) this.selected.delete(id);
      this.#on.selection();
      this.#render();
    }
    for (const id of changed) {
      const card = this.#live.get(id);
      if (card && this.#queue.jobs.has(id)) this.#show(card, id, this.#indexOf(card));
    }
  }

  #indexOf(card) {
    return card.element.ariaPosInSet - 1;
  }

  #show(card, id, index) {
    card.show(this.#queue.jobs.get(id), index, this.#queue.shown.length, this.selected.has(id));
  }

  #render() {
    const { columns, width, height, gap } = this.#layout;
    const ids = this.#queue.shown;
    const pitch = height + gap;
    const rows = Math.ceil(ids.length / columns);
    const top = -this.#list.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(top / pitch) - AROUND) * columns;
    const last = Math.min(ids.length, (Math.ceil((top + innerHeight) / pitch) + AROUND) * columns);
    this.#list.style.height = `${Math.max(0, rows * pitch - gap)}px`;

    const wanted = new Map(); // index by id, in order
    for (let index = first; index < last; index += 1) wanted.set(ids[index], index);
    const hadFocus = this.#list.contains(document.activeElement);
    this.#keepCurrent(wanted, ids, hadFocus);
    for (const [id, card] of this.#live) if (!wanted.has(id)) this.#release(id, card);

    let next = this.#list.firstChild;
    let left = MOST_NEW;
    for (const [id, index] of wanted) {
      let card = this.#live.get(id);
      if (!card) {
        left -= 1;
        if (left < 0 && id !== this.#current) continue; // in the next frame
        card = this.#take(id);
      }
      this.#show(card, id, index);
      card.setCurrent(id === this.#current);
      const style = card.element.style;
      style.width = `${width}px`;
      style.transform =
        `translate(${(index % columns) * (width + gap)}px, ${Math.floor(index / columns) * pitch}px)`;
      if (card.element === next) next = next.nextSibling;
      else this.#list.insertBefore(card.element, next);
    }
    if (hadFocus && !this.#list.contains(document.activeElement)) {
      this.#live.get(this.#current)?.element.focus({ preventScroll: true });
    }
    if (left < 0) this.#draw();
    this.#settling ??= setTimeout(() => this.#settle(), SETTLED);
  }

  /** The current card stays in the document, where the focus may be; if it is gone, another is. */
  #keepCurrent(wanted, ids, hadFocus) {
    if (!ids.length) {
      this.#current = null;
      return;
    }
    let index = ids[this.#place] === this.#current ? this.#place : ids.indexOf(this.#current);
    if (index < 0) index = Math.min(this.#place, ids.length - 1);
    if (!hadFocus && !wanted.has(ids[index])) index = wanted.values().next().value ?? 0;
    this.#current = ids[index];
    this.#place = index;
    if (wanted.has(this.#current)) return;
    const sorted = [...wanted, [this.#current, index]].sort((one, other) => one[1] - other[1]);
    wanted.clear();
    for (const [id, at] of sorted) wanted.set(id, at);
  }

  #take(id) {
    const card = this.#free.pop() ?? new Card();
    this.#live.set(id, card);
    return card;
  }

  #release(id, card) {
    this.#thumbnails.unwant(id);
    this.#live.delete(id);
    card.asked = null;
    card.element.remove();
    this.#free.push(card);
  }

  /** Asks for the thumbnails of what is in sight. */
  #settle() {
    this.#settling = null;
    for (const [id, card] of this.#live) {
      if (card.hasThumbnail || card.asked === id || card.job.local || !card.job.source?.width) continue;
      const address = this.#thumbnails.get(id);
      if (address) card.setThumbnail(address);
      else {
        card.asked = id;
        this.#thumbnails.want(id, (found) => {
          if (card.job?.id === id) card.setThumbnail(found);
        });
      }
    }
  }

  #setCurrent(id, index) {
    this.#live.get(this.#current)?.setCurrent(false);
    this.#current = id;
    this.#place = index;
    this.#live.get(id)?.setCurrent(true);
  }

  #focused(event) {
    const card = event.target.closest(".card")?.card;
    if (card) this.#setCurrent(card.job.id, this.#indexOf(card));
  }

  #clicked(event) {
    const card = event.target.closest(".card")?.card;
    const action = event.target.closest("[data-action]")?.dataset.action;
    if (!card || !action) return;
    const { id } = card.job;
    if (action === "pick") this.select([id], card.pick.checked);
    else this.#on.action(action, id);
  }

  #pressed(event) {
    const card = event.target.closest(".card")?.card;
    if (!card || event.altKey || event.ctrlKey || event.metaKey) return;
    const { columns, height, gap } = this.#layout;
    const screen = Math.max(1, Math.floor(innerHeight / (height + gap)) - 1) * columns;
    const last = this.#queue.shown.length - 1;
    const at = this.#indexOf(card);
    const to = {
      ArrowDown: at + columns, ArrowUp: at - columns, ArrowRight: at + 1, ArrowLeft: at - 1,
      PageDown: Math.min(at + screen, last), PageUp: Math.max(at - screen, 0), Home: 0, End: last,
    }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      if (to >= 0 && to <= last) this.reveal(this.#queue.shown[to], true);
      return;
    }
    if (event.target !== card.element) return; // its own buttons
    const { id } = card.job;
    if (event.key === "Enter" && !card.open.disabled) this.#on.action("compare", id);
    else if (event.key === "Delete") this.#on.action("remove", id);
    else if (event.key === " ") this.select([id], !this.selected.has(id));
    else return;
    event.preventDefault();
  }
}
