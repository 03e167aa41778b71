// Numbers and settings as people read them.

const UNITS = ["bytes", "KB", "MB", "GB"];

/** 1234567 as "1.2 MB". */
export function bytes(count) {
  let unit = 0;
  while (count >= 999.5 && unit < UNITS.length - 1) {
    count /= 1000;
    unit += 1;
  }
  return `${unit && count < 9.95 ? count.toFixed(1) : Math.round(count)} ${UNITS[unit]}`;
}

const unbroken = (text) => text.replaceAll(" ", "\u00a0");

/** 75 as "1 min 15 s", which is not broken at the end of a line. */
export function seconds(count) {
  if (count < 9.95) return unbroken(`${count.toFixed(1)} s`);
  const whole = Math.round(count);
  if (whole < 60) return unbroken(`${whole} s`);
  if (whole < 3600) return unbroken(`${Math.floor(whole / 60)} min ${whole % 60} s`);
  const minutes = Math.round(whole / 60);
  return unbroken(`${Math.floor(minutes / 60)} h ${minutes % 60} min`);
}

/** Mpixel/s with two digits that count. */
export const rate = (speed) => `${speed < 10 ? speed.toPrecision(2) : Math.round(speed)} Mpixel/s`;

export const percent = (part) => `${Math.floor(100 * part)} %`;

/** "1 picture", "2 pictures". */
export const counted = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

/** Begins a text with a capital: it stood behind a name, and stands alone now. */
export const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** Remarks about a job, without its name, which stands above: what its result lacks comes first. */
export const remarks = ({ name, lost, notices }) =>
  [...(lost ?? []), ...(notices ?? [])].map((each) => sentence(each.replace(`${name}: `, "")));

/** Says how many files of a folder are not sent, and why. */
export const passedOver = (count) =>
  count === 1
    ? "1 file of the folder was not added: its name is not that of a picture or film."
    : `${counted(count, "file")} of the folder were not added: their names are not those of pictures or films.`;

/** Names the parts of a job of that kind. */
export const part = (kind) => (kind === "film" ? "frame" : "page");

/** Size and format of a file: "480x320 PNG, 120 KB, 3 pages". */
export function file(about, kind) {
  const words = [];
  if (about.width) words.push(`${about.width}x${about.height} ${(about.format || "").toUpperCase()}`.trim());
  words.push(bytes(about.bytes));
  if (about.pages > 1) words.push(counted(about.pages, part(kind)));
  return words.join(", ");
}

/** The model that makes a job. */
export const model = ({ kind, settings: chosen }) => (kind === "film" ? chosen.film_model : chosen.model);

/** Settings of a job of that kind in a line: "cunet/art · noise auto · 2x · webp". */
export function settings(chosen, kind) {
  const isFilm = kind === "film";
  const words = [model({ kind, settings: chosen }), `noise ${chosen.noise}`];
  if (chosen.width && chosen.height) words.push(`${chosen.width}x${chosen.height} pixels`);
  else if (chosen.width) words.push(`${chosen.width} pixels wide`);
  else if (chosen.height) words.push(`${chosen.height} pixels high`);
  else words.push(`${chosen.scale}x`);
  if (Number(chosen.strength ?? 1) < 1) words.push(`strength ${chosen.strength}`);
  if (Number(chosen.tta) > 1) words.push(`extra quality ${chosen.tta}`);
  if (isFilm) {
    if (chosen.film_codec) words.push(chosen.film_codec);
    if (chosen.film_crf) words.push(`crf ${chosen.film_crf}`);
    return words.join(" · ");
  }
  if (chosen.format) words.push(chosen.format);
  if (chosen.quality) words.push(`quality ${chosen.quality}`);
  if (chosen.depth && chosen.depth !== "auto") words.push(`${chosen.depth} bits`);
  return words.join(" · ");
}
