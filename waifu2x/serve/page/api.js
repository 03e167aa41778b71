// Speaks with the server. Every request carries the token, which this tab alone keeps.

const KEPT = "waifu2x-token";

/** The server refuses a request, or does not answer; `message` is one sentence. */
export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

const NO_ANSWER = "The server does not answer. Is `waifu2x serve` still running?";
const NO_TOKEN = "This page lacks the server's key: open the address that `waifu2x serve` printed.";

/** Takes the token out of the address, where it would be seen, into this tab. */
export function takeToken() {
  const token = location.hash.slice(1);
  if (!token) return;
  sessionStorage.setItem(KEPT, token);
  history.replaceState(null, "", location.pathname + location.search);
}

const hasToken = () => sessionStorage.getItem(KEPT) !== null;

const headers = (more = {}) => ({ Authorization: `Bearer ${sessionStorage.getItem(KEPT)}`, ...more });

/** The error that an answer's status and text stand for. */
function refusal(status, text) {
  if (status === 401) return new ApiError(NO_TOKEN, status);
  let message = `The server answered ${status}.`;
  try {
    message = JSON.parse(text).error || message;
  } catch {
    // not the server's own words
  }
  return new ApiError(message, status);
}

/** An answer, or an ApiError. An abort by `signal` throws what fetch throws, unless it was too slow. */
export async function request(path, { method = "GET", more = {}, body, signal } = {}) {
  if (!hasToken()) throw new ApiError(NO_TOKEN, 401);
  let answer;
  try {
    answer = await fetch(path, { method, headers: headers(more), body, signal, cache: "no-store" });
  } catch (error) {
    if (signal?.aborted && error.name !== "TimeoutError") throw error;
    throw new ApiError(NO_ANSWER, 0);
  }
  if (!answer.ok) throw refusal(answer.status, await answer.text());
  return answer;
}

export const json = async (path, options) => (await request(path, options)).json();

/** The answer to data that is sent. */
export const post = (path, data) =>
  json(path, { method: "POST", more: { "Content-Type": "application/json" }, body: JSON.stringify(data) });

const CLEARED = ["format", "quality", "film_codec", "film_crf"]; // empty, they take away what a job had

/** Values as a query; what is empty is left to the server. */
export function query(values) {
  const said = ([name, value]) => value != null && (value !== "" || CLEARED.includes(name));
  return new URLSearchParams(Object.entries(values).filter(said)).toString();
}

export const jobPath = (id, what = "") => `api/jobs/${encodeURIComponent(id)}${what && `/${what}`}`;

/** A picture's address in this page. The caller gives it back by URL.revokeObjectURL. */
export async function picture(path, signal) {
  const answer = await request(path, { signal });
  return URL.createObjectURL(await answer.blob());
}

/** Sends a file; the browser reads it from the disk as it goes. `progress` is told 0..1. */
export function upload(file, name, settings, signal, progress) {
  return new Promise((resolve, reject) => {
    const sending = new XMLHttpRequest(); // fetch tells nothing about what was sent
    const stop = () => sending.abort();
    sending.open("POST", `api/jobs?${query({ name, ...settings })}`);
    for (const [header, value] of Object.entries(headers())) sending.setRequestHeader(header, value);
    sending.setRequestHeader("Content-Type", "application/octet-stream");
    sending.upload.addEventListener("progress", (event) => {
      if (event.lengthComputable) progress(event.loaded / event.total);
    });
    sending.addEventListener("load", () => {
      if (sending.status === 201) resolve(JSON.parse(sending.responseText));
      else reject(refusal(sending.status, sending.responseText));
    });
    sending.addEventListener("error", () => reject(new ApiError(NO_ANSWER, 0)));
    sending.addEventListener("abort", () => reject(new DOMException("", "AbortError")));
    sending.addEventListener("loadend", () => signal.removeEventListener("abort", stop));
    signal.addEventListener("abort", stop);
    sending.send(file);
  });
}

/** Lets the browser save results: of one picture its file, of several a ZIP; of null, of all. */
export async function download(ids) {
  const { address } = await post("api/downloads", ids === null ? { all: true } : { ids });
  // By its own address: the browser writes it to the disk as it comes, however large it is.
  const link = document.createElement("a");
  link.href = address;
  link.download = "";
  link.click();
}
