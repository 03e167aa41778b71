// Follows the events of the server, as they happen, in every window.
//
// A browser has six connections for a server, for all its windows together: a stream in each window
// would leave none for anything else. So one window receives the events, the one that came into view
// last, since browsers slow down and stop those out of sight, and it tells the others.

import { ApiError, sharedName } from "./api.js";
import { receive } from "./stream.js";

const LEAST_WAIT = 250;
const MOST_WAIT = 5000;
const QUIET = 45_000; // ms without a word from the window that receives: it hears something each 15 s

const waited = (milliseconds, signal) =>
  new Promise((resolve) => {
    setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", resolve);
  });

/**
 * Listens for ever. `on` has `event(name, data)`, `up()` and `down(error)`; `up` may be told more than
 * once, `down` is told of each failed attempt to reach the server.
 */
export async function listen(on) {
  new Listener(on, await sharedName()).start();
}

class Listener {
  #on;
  #name; // of the lock and of the channel; null where windows can share nothing
  #channel = null;
  #turn = new AbortController(); // ends waiting for the stream, and receiving it
  #receiving = null; // the signal of the turn in which this window receives
  #last = null; // id of the latest event
  #state = null; // what was last told of the connection, for windows that come later
  #quiet;

  constructor(on, name) {
    this.#on = on;
    this.#name = name;
  }

  start() {
    // A browser keeps a page that was left for the way back, with what it was receiving.
    addEventListener("pagehide", () => this.#leave());
    addEventListener("pageshow", ({ persisted }) => persisted && this.#come());
    document.addEventListener("visibilitychange", () => {
      if (this.#channel && !document.hidden && !this.#receives) this.#take(true);
    });
    this.#come();
  }

  get #receives() {
    return this.#receiving === this.#turn.signal;
  }

  #come() {
    if (this.#name) {
      this.#channel = new BroadcastChannel(this.#name);
      this.#channel.addEventListener("message", ({ data }) => this.#hear(data));
      this.#channel.postMessage({ kind: "hello" });
    }
    this.#take(!document.hidden);
  }

  #leave() {
    this.#turn.abort();
    clearTimeout(this.#quiet);
    this.#channel?.close();
    this.#channel = null;
  }

  /** Receives as soon as no other window does; with `now`, takes the stream away from that one. */
  async #take(now) {
    this.#turn.abort();
    const turn = (this.#turn = new AbortController());
    if (!this.#name) return this.#receive(turn.signal);
    this.#expect();
    const how = now ? { steal: true } : { signal: turn.signal };
    try {
      await navigator.locks.request(this.#name, how, () => this.#receive(turn.signal));
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    }
    if (!turn.signal.aborted) this.#take(false); // another window took it
  }

  /** Connects again, more and more slowly, when the server went away; as it says where it is full. */
  async #receive(signal) {
    this.#receiving = signal;
    this.#state = null;
    clearTimeout(this.#quiet);
    let wait = LEAST_WAIT;
    while (!signal.aborted) {
      let pause = null;
      try {
        pause = await receive(this.#last, signal, {
          up: () => this.#tell({ kind: "up" }),
          events: (events) => {
            wait = LEAST_WAIT;
            this.#tell({ kind: "events", events });
          },
        });
      } catch ({ message, status }) {
        if (!signal.aborted) this.#tell({ kind: "down", message, status });
      }
      await waited((pause ?? wait) * (0.75 + Math.random() / 2), signal);
      if (pause === null) wait = Math.min(2 * wait, MOST_WAIT);
    }
  }

  #tell(message) {
    if (message.kind !== "events") this.#state = message;
    const told = { ...message, after: this.#last };
    this.#channel?.postMessage(told);
    this.#hear(told);
  }

  /** Hears the window that receives, which may be this one. `after`: the id of the event before. */
  #hear({ kind, after, events, message, status }) {
    if (kind === "hello") {
      if (this.#receives && this.#state) this.#tell(this.#state);
      return;
    }
    if (!this.#receives) this.#expect();
    this.#last ??= after;
    if (after > this.#last) {
      if (!this.#receives) this.#take(true); // the server repeats what this window has missed
    } else if (kind === "up") this.#on.up();
    else if (kind === "down") this.#on.down(new ApiError(message, status));
    else {
      for (const { event, data, id } of events) {
        this.#last = id ?? this.#last;
        this.#on.event(event, data);
      }
    }
  }

  /** The window that receives may have been stopped by the browser: another one takes over. */
  #expect() {
    clearTimeout(this.#quiet);
    this.#quiet = setTimeout(() => this.#take(true), QUIET);
  }
}
