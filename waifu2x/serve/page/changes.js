// Follows the queue of the server: asks again and again what has changed since the last answer.

import { json } from "./api.js";

const SOON = 150; // ms between two questions while something is under way
const LATER = 1000; // while nothing is
const MOST_WAIT = 5000; // while the server is away
const SILENCE = 20_000; // ms after which an answer does not come any more

/**
 * Asks for ever. `on.changes(answer)` gets each answer, `on.down(error)` is told of each failure.
 * Returns a function that asks at once, for when this window has changed something itself.
 */
export function follow(on) {
  let since = 0;
  let wait = 0;
  let timer = null;
  let isAsking = false;
  let isImpatient = false;

  const ask = async () => {
    clearTimeout(timer);
    isImpatient = isAsking; // the answer under way may be too old
    if (isAsking) return;
    isAsking = true;
    try {
      const answer = await json(`api/jobs?since=${since}`, { signal: AbortSignal.timeout(SILENCE) });
      since = answer.version;
      on.changes(answer);
      const { waiting, working } = answer.counts;
      wait = answer.more ? 0 : waiting || working ? SOON : LATER;
    } catch (error) {
      on.down(error);
      if (error.status === 401) return; // it will not change its mind
      wait = Math.min(2 * Math.max(wait, SOON), MOST_WAIT);
    } finally {
      isAsking = false;
    }
    timer = setTimeout(ask, isImpatient ? 0 : wait);
  };

  // Browsers slow down the timers of windows out of sight, and stop those that were left.
  document.addEventListener("visibilitychange", () => document.hidden || ask());
  addEventListener("pageshow", ({ persisted }) => persisted && ask());
  ask();
  return ask;
}
