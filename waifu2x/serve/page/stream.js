// One stream of what happens at the server. EventSource could not send the token.

import { ApiError, NO_ANSWER, request } from "./api.js";

const SILENCE = 40_000; // ms; the server says something each 15 s

/** Splits a stream of text/event-stream into {event, data, id}; comments pass unseen. */
export class EventParser {
  #rest = "";
  /** After how many ms to come again, as far as the server has said so. */
  retry = null;

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
      else if (field === "event") event.event = value;
      else if (field === "id") event.id = Number(value);
      else if (field === "retry") this.retry = Number(value);
    }
    return event;
  }
}

/**
 * Receives events until the stream ends: those after the one with the id `last`, unless that is null.
 * `on.up()` is called when the server answers, `on.events(list)` for each part of the stream, which may
 * be a sign of life only. Returns after how many ms to come again, where the server has no place for one
 * more stream; otherwise it throws in the end: an ApiError, or what fetch throws when `signal` aborts.
 */
export async function receive(last, signal, on) {
  const silent = new AbortController();
  let timer;
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silent.abort(), SILENCE);
  };
  try {
    heard();
    const answer = await request("api/events", {
      more: last === null ? {} : { "Last-Event-ID": last },
      signal: AbortSignal.any([signal, silent.signal]),
    });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const parser = new EventParser();
    on.up();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      heard();
      on.events(parser.take(value).map((each) => ({ ...each, data: JSON.parse(each.data) })));
    }
    if (parser.retry !== null) return parser.retry;
  } catch (error) {
    if (signal.aborted || error instanceof ApiError) throw error;
  } finally {
    clearTimeout(timer);
  }
  throw new ApiError(NO_ANSWER, 0); // it was cut off
}
