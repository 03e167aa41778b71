// What happens at the server, as it happens. EventSource could not send the token.

import { ApiError, NO_ANSWER, request } from "./api.js";

const LEAST_WAIT = 250;
const MOST_WAIT = 5000;
const SILENCE = 40_000; // the server says something each 15 s

const waited = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Splits a stream of text/event-stream into {event, data, id}; comments pass unseen. */
export class EventParser {
  #rest = "";

  /** The events that are complete with this text. */
  take(text) {
    const blocks = (this.#rest + text).replaceAll("\r\n", "\n").split("\n\n");
    this.#rest = blocks.pop();
    return blocks.map((block) => this.#event(block)).filter((event) => event.data !== null);
  }

  #event(block) {
    const event = { event: "message", data: null, id: null };
    for (const line of block.split("\n")) {
      const [, field, value] = /^([a-z]*): ?(.*)$/.exec(line) ?? [];
      if (field === "data") event.data = event.data === null ? value : `${event.data}\n${value}`;
      else if (field === "event" || field === "id") event[field] = value;
    }
    return event;
  }
}

/**
 * Whether this page is the one in its window, or was left. A browser keeps such a page for the way
 * back, with what it was receiving: an open stream would take one of the six connections that a
 * browser has for a server, until there is none for the page that is seen.
 */
class Presence {
  #back = Promise.resolve();
  #come;

  /** `left()` is called when the page is left. */
  constructor(left) {
    addEventListener("pagehide", () => {
      this.#back = new Promise((resolve) => (this.#come = resolve));
      left();
    });
    addEventListener("pageshow", () => this.#come?.());
  }

  /** Resolves when somebody is back. */
  get back() {
    return this.#back;
  }
}

/**
 * Listens for ever: connects again, more and more slowly, when the server went away. The server then
 * sends what was missed, or `reset` if it cannot.
 * `on` has `event(name, data)`, `up()` and `down(error)`; down is told of each failed attempt.
 */
export async function listen(on) {
  let last = null;
  let wait = LEAST_WAIT;
  let stop;
  let isLeft;
  const presence = new Presence(() => {
    isLeft = true;
    stop.abort();
  });
  for (;;) {
    await presence.back;
    isLeft = false;
    stop = new AbortController();
    let silence;
    const heard = () => {
      clearTimeout(silence);
      silence = setTimeout(() => stop.abort(), SILENCE);
    };
    try {
      heard();
      const answer = await request("api/events", {
        more: last === null ? {} : { "Last-Event-ID": last },
        signal: stop.signal,
      });
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      const parser = new EventParser();
      on.up();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        heard();
        wait = LEAST_WAIT;
        for (const { event, data, id } of parser.take(value)) {
          if (id !== null) last = id;
          on.event(event, JSON.parse(data));
        }
      }
      on.down(new ApiError(NO_ANSWER, 0));
    } catch (error) {
      if (isLeft) continue;
      on.down(error instanceof ApiError ? error : new ApiError(NO_ANSWER, 0)); // cut off in the middle
    } finally {
      clearTimeout(silence);
    }
    await waited(wait * (0.75 + Math.random() / 2)); // windows do not come all at once
    wait = Math.min(2 * wait, MOST_WAIT);
  }
}
