// The form of settings: what new pictures get, in the program's words.

import { byId, copy, make, setText } from "./dom.js";
import * as words from "./words.js";

const KEPT = "waifu2x-settings";
const FIXED_SIZES = ["1", "2", "4"];

/** Quotes a word for a shell where it needs that. */
const quoted = (word) => (/^[\w./:=+,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

export class Settings {
  #form = byId("settings");
  #known;
  #listeners = [];
  #qualityOf = null;

  /** `known` is what the server says about its models, formats and defaults. */
  constructor(known) {
    this.#known = known;
    for (const use of known.uses) byId("best-for").append(new Option(use.name.replace("-", " "), use.name));
    for (const model of known.models) byId("model").append(new Option(model.name, model.name));
    byId("format").append(new Option("as the input", ""));
    for (const format of known.formats) byId("format").append(new Option(format.name, word(format)));
    byId("film-settings").hidden = !known.video;
    for (const model of known.models) byId("film-model").append(new Option(model.name, model.name));
    for (const codec of known.codecs) byId("film-codec").append(new Option(codec, codec));
    this.value = { ...known.defaults, ...this.#kept() };
    byId("best-for").addEventListener("input", () => this.#choose());
    this.#form.addEventListener("input", () => this.#changed());
    this.#form.addEventListener("submit", (event) => event.preventDefault());
    byId("copy-command").addEventListener("click", ({ target }) => copy(this.command, target));
  }

  /** Calls `listener(settings)` after each change. */
  listen(listener) {
    this.#listeners.push(listener);
  }

  /** Shows what the server knows by now: how fast the model was. */
  learn(known) {
    this.#known = known;
    this.#showModel();
  }

  /** The form's settings, as a request for a job has them. */
  get value() {
    const { model, noise, size, scale, width, height, strength, tta, format, qualityKind, quality, depth, to, ...rest } =
      Object.fromEntries(new FormData(this.#form));
    const pixels = size === "pixels" && (width.trim() || height.trim());
    return {
      model,
      noise,
      scale: pixels ? "" : size === "times" ? scale.trim() : FIXED_SIZES.includes(size) ? size : "2",
      width: pixels ? width.trim() : "",
      height: pixels ? height.trim() : "",
      strength: String(Number(strength) / 100),
      tta,
      format,
      quality: !this.#qualityOf ? "" : qualityKind === "number" ? quality : qualityKind,
      depth,
      to: to ?? "",
      film_model: rest.film_model,
      film_codec: rest.film_codec,
      film_crf: rest.film_crf.trim(),
      film_deinterlace: rest.film_deinterlace,
    };
  }

  set value(settings) {
    const form = this.#form.elements;
    choose(form.model, settings.model);
    this.#showModel();
    choose(form.noise, settings.noise);
    const scale = String(settings.scale ?? "");
    const pixels = settings.width || settings.height;
    form.size.value = pixels ? "pixels" : FIXED_SIZES.includes(scale) ? scale : "times";
    if (!pixels && scale) form.scale.value = scale;
    form.width.value = settings.width ?? "";
    form.height.value = settings.height ?? "";
    form.strength.value = Math.round(100 * (settings.strength ?? 1));
    choose(form.tta, settings.tta || 1);
    choose(form.format, settings.format ?? "");
    this.#showFormat();
    choose(form.depth, settings.depth || "auto");
    form.to.checked = settings.to === "sdr";
    const number = settings.quality && settings.quality !== "like";
    choose(form.qualityKind, number ? "number" : (settings.quality ?? ""));
    if (number) form.quality.value = settings.quality;
    choose(form.film_model, settings.film_model);
    choose(form.film_codec, settings.film_codec ?? "");
    choose(form.film_deinterlace, settings.film_deinterlace || "auto");
    form.film_crf.value = settings.film_crf ?? "";
    this.#show();
  }

  #kept() {
    try {
      return JSON.parse(sessionStorage.getItem(KEPT)) ?? {};
    } catch {
      return {};
    }
  }

  /** Chooses the model and the noise level for a use. */
  #choose() {
    const { best_for: chosen, model, film_model: filmModel, noise } = this.#form.elements;
    const use = this.#known.uses.find((each) => each.name === chosen.value);
    if (!use) return;
    choose(model, use.model);
    choose(filmModel, use.film_model);
    this.#showModel();
    choose(noise, use.noise);
  }

  /** Shows the use that the model and the noise level are those of. */
  #showUse() {
    const { best_for: shown, model, noise } = this.#form.elements;
    const fits = (use) => use.model === model.value && use.noise === noise.value;
    const { uses } = this.#known;
    const use = uses.find((each) => each.name === shown.value && fits(each)) ?? uses.find(fits);
    shown.value = use?.name ?? "";
    setText(byId("about-use"), use?.about ?? "The model and the noise removal that you choose below.");
  }

  #changed() {
    this.#showModel();
    this.#showFormat();
    this.#show();
    const value = this.value;
    sessionStorage.setItem(KEPT, JSON.stringify(value));
    for (const listener of this.#listeners) listener(value);
  }

  /** Shows what the model is good for, and the noise levels that it has. */
  #showModel() {
    const { model: chosen, noise } = this.#form.elements;
    const model = this.#known.models.find((each) => each.name === chosen.value);
    if (!model) return;
    const about = [
      ["Best for", model.best_for],
      ["Speed here", model.speed ? `${words.rate(model.speed)} of result` : "not measured yet"],
      ["Licence", model.licence],
    ].filter(([, text]) => text);
    byId("about-model").replaceChildren(
      ...about.flatMap(([term, text]) => [make("dt", {}, term), make("dd", {}, text)]),
    );
    const levels = [["auto", "auto: by a JPEG's quality"], ["none", "none"]];
    for (const level of model.noise_levels) levels.push([String(level), String(level)]);
    offer(noise, levels);
  }

  /** The quality and depths that the format has. */
  #showFormat() {
    const { format: chosen, qualityKind, quality, depth } = this.#form.elements;
    const format = this.#known.formats.find((each) => word(each) === chosen.value);
    const range = format?.quality;
    byId("quality-field").hidden = !range;
    if (range && this.#qualityOf !== format.name) {
      [quality.min, quality.max] = [range.least, range.most];
      quality.value = range.default ?? 90;
      const usual = range.default ? `as usual: ${range.default}` : "without losses";
      offer(qualityKind, [["", usual], ["like", "like the input"], ["number", "a number…"]]);
    }
    this.#qualityOf = range ? format.name : null;
    const depths = (format?.depths ?? [8, 16]).map((bits) => [String(bits), `${bits} bits`]);
    offer(depth, [["auto", "as the input"], ...depths]);
  }

  #show() {
    const form = this.#form.elements;
    this.#showUse();
    byId("size-times").hidden = form.size.value !== "times";
    byId("size-pixels").hidden = form.size.value !== "pixels";
    byId("quality-slide").hidden = form.qualityKind.value !== "number";
    setText(byId("quality-value"), form.quality.value);
    setText(byId("strength-value"), `${form.strength.value} %`);
    setText(byId("settings-line"), words.settings(this.value));
    // An option and its value stay on one line.
    const parts = this.command.split(/ (?=-|IN$)/);
    byId("command").replaceChildren(...parts.flatMap((part) => [make("span", {}, part), " "]).slice(0, -1));
  }

  /** The command that does the same for a picture; what are defaults is left out. */
  get command() {
    const { defaults, settings } = this.#known;
    const value = this.value;
    const parts = ["waifu2x", "upscale"];
    for (const { name, option } of settings) {
      const usual = String(defaults[name] ?? "");
      if (value[name] && value[name] !== usual) parts.push(option, quoted(value[name]));
    }
    return [...parts, "IN"].join(" ");
  }
}

/** How the program's options call a format: by its usual extension. */
const word = (format) => format.extensions[0].replace(".", "");

/** Gives a list these choices, and keeps what was chosen if it is among them. */
function offer(select, choices) {
  const wanted = choices.map(([value, text]) => `${value}=${text}`).join("\n");
  if (select.dataset.offered === wanted) return;
  const before = select.value;
  select.dataset.offered = wanted;
  select.replaceChildren(...choices.map(([value, text]) => new Option(text, value)));
  if (before) choose(select, before);
}

/** Chooses a value if the list has it, else the first one. */
function choose(select, value) {
  select.value = String(value);
  if (select.selectedIndex < 0) select.selectedIndex = 0;
}
