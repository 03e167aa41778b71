// The page of `waifu2x serve`: puts its parts together.

import { Actions } from "./actions.js";
import * as api from "./api.js";
import { Cards } from "./cards.js";
import { follow } from "./changes.js";
import { byId, make, setText } from "./dom.js";
import { accepting, chosen, dropped, sample } from "./files.js";
import { FILTERS, Queue } from "./queue.js";
import { Settings } from "./settings.js";
import { Thumbnails } from "./thumbnails.js";
import { Uploads } from "./uploads.js";
import { Viewer } from "./viewer.js";
import * as words from "./words.js";

const ON_SELECTED = ["redo", "download", "cancel", "remove"];
const SAID_EVERY = 5000; // ms between two sentences for screen readers

class Page {
  #queue = new Queue();
  #ask; // what has changed
  #uploads = new Uploads(this.#queue, () => this.#ask());
  #actions = new Actions(this.#queue, this.#uploads);
  #cards = new Cards(this.#queue, new Thumbnails(), {
    action: (action, id) => this.#act(action, [id]),
    selection: () => this.#showSelection(),
  });
  #settings;
  #viewer;
  #accepts = () => true;
  #said = 0;
  #saying = null;
  #isBusy = false;

  constructor() {
    byId("alert-close").addEventListener("click", () => (byId("alert").hidden = true));
    const wide = matchMedia("(min-width: 60rem)"); // then there is a column for the settings
    const unfold = () => (byId("settings-box").open = wide.matches);
    wide.addEventListener("change", unfold);
    unfold();
    this.#listenToFiles();
    this.#listenToTools();
    this.#queue.listen((changed, reordered) => reordered && this.#showQueue());
  }

  /** Shows what the server has, and follows it for ever. */
  async start() {
    this.#ask = follow({
      changes: (answer) => {
        byId("offline").hidden = true;
        this.#queue.take(answer);
        byId("undo").hidden = !answer.restorable;
        setText(byId("undo-text"), `${answer.restorable.toLocaleString("en")} removed.`);
        this.#learn(answer.counts);
      },
      down: (error) => this.#away(error),
    });
    for (;;) {
      try {
        const known = await api.json("api/settings");
        this.#accepts = accepting(known.accepts);
        byId("files").accept = known.accepts.join(",");
        byId("written").hidden = !known.output;
        for (const each of document.querySelectorAll(".films")) each.hidden = !known.video;
        this.#settings = new Settings(known);
        this.#viewer = new Viewer(this.#queue, known, {
          download: (id) => this.#act("download", [id]),
          use: (id, model) => this.#use(id, model),
        });
        return;
      } catch (error) {
        this.#away(error);
        if (error.status === 401) return; // it will not change its mind
        await new Promise((resolve) => setTimeout(resolve, 1000));
      }
    }
  }

  /** Shows how fast models were, once the work is done. */
  async #learn({ waiting, working }) {
    const [wasBusy, isBusy] = [this.#isBusy, waiting + working > 0];
    this.#isBusy = isBusy;
    if (!wasBusy || isBusy) return;
    try {
      this.#settings?.learn(await api.json("api/settings"));
    } catch {
      // the server is away: the next question says so
    }
  }

  #away(error) {
    byId("offline").hidden = false;
    const again = error.status === 401 ? "" : " This page tries again by itself.";
    setText(byId("offline"), `${error.message}${again}`);
    if (!this.#queue.jobs.size) setText(byId("overall-text"), "Not connected");
  }

  #alert(message) {
    byId("alert").hidden = false;
    setText(byId("alert-text"), message);
  }

  // ---- files

  #listenToFiles() {
    byId("choose").addEventListener("click", () => byId("files").click());
    byId("choose-folder").addEventListener("click", () => byId("folder").click());
    for (const name of ["files", "folder"]) {
      byId(name).addEventListener("change", ({ target }) => {
        this.#add(chosen([...target.files], name === "folder"));
        target.value = "";
      });
    }
    byId("sample").addEventListener("click", () => this.#add(sample()));
    addEventListener("paste", (event) => {
      if (event.clipboardData.files.length) this.#add(dropped(event.clipboardData));
    });
    const shade = byId("dropping");
    addEventListener("dragover", (event) => {
      if (![...event.dataTransfer.types].includes("Files")) return;
      event.preventDefault();
      event.dataTransfer.dropEffect = "copy";
      shade.hidden = false;
    });
    addEventListener("dragleave", (event) => {
      if (event.relatedTarget === null) shade.hidden = true;
    });
    addEventListener("drop", (event) => {
      event.preventDefault();
      shade.hidden = true;
      this.#add(dropped(event.dataTransfer));
    });
  }

  async #add(files) {
    if (!this.#settings) {
      this.#alert("Not connected to the server yet: add the pictures again when it is there.");
      return;
    }
    const settings = this.#settings.value;
    let [first, skipped] = [null, 0];
    try {
      for await (const { file, inFolder } of files) {
        // A file that was chosen by itself goes to the server, which says what is wrong with it.
        if (inFolder && !this.#accepts(file.name)) skipped += 1;
        else {
          const id = this.#uploads.add(file, settings);
          first ??= id;
        }
      }
    } catch (error) {
      this.#alert(`The browser cannot read what was added: ${error.message}`);
    }
    if (skipped) this.#alert(words.passedOver(skipped));
    if (first) requestAnimationFrame(() => requestAnimationFrame(() => this.#cards.reveal(first, false)));
  }

  // ---- what people do with cards

  async #act(action, ids) {
    try {
      if (action === "compare") this.#viewer?.open(ids[0]);
      else if (action === "download") await api.download(ids);
      else {
        await this.#actions.change(action, ids, action === "redo" ? this.#settings.value : {});
        this.#ask();
      }
    } catch (error) {
      this.#alert(error.message);
    }
  }

  /** Makes a picture by a model, as all that are added from then on. */
  async #use(id, model) {
    const isFilm = this.#queue.jobs.get(id).kind === "film";
    byId(isFilm ? "film-model" : "model").value = model;
    byId("settings").dispatchEvent(new Event("input"));
    try {
      await this.#actions.useModel(id, model);
      this.#ask();
    } catch (error) {
      this.#alert(error.message);
    }
  }

  /** Restores what was removed last. */
  async #undo() {
    try {
      await api.post("api/jobs/restore", { all: true });
      this.#ask();
    } catch (error) {
      this.#alert(error.message);
    }
  }

  // ---- the tools above the list

  #listenToTools() {
    const names = { all: "All", waiting: "Waiting", working: "Working", done: "Done", incomplete: "Incomplete", failed: "Failed", cancelled: "Cancelled" };
    for (const name of Object.keys(FILTERS)) {
      const radio = make("input", { type: "radio", name: "filter", value: name, checked: name === "all" });
      const count = make("span", { className: "count" });
      const label = make("label", { id: `filter-${name}` }, radio, make("span", {}, `${names[name]} `, count));
      byId("filters").append(label);
    }
    const select = () => {
      this.#queue.select(document.querySelector("input[name=filter]:checked").value, byId("search").value);
      const top = byId("list").getBoundingClientRect().top;
      if (top < 0) scrollBy(0, top - 80);
    };
    byId("filters").addEventListener("change", select);
    byId("search").addEventListener("input", select);
    byId("download-all").addEventListener("click", () => this.#act("download", null));
    byId("undo-remove").addEventListener("click", () => this.#undo());
    addEventListener("keydown", (event) => {
      const isUndo = event.key === "z" && (event.ctrlKey || event.metaKey) && !event.shiftKey;
      if (!isUndo || byId("undo").hidden || event.target.matches("input, select, dialog *")) return;
      event.preventDefault();
      this.#undo();
    });
    byId("select-shown").addEventListener("change", ({ target }) =>
      this.#cards.select(this.#queue.shown, target.checked),
    );
    for (const action of ON_SELECTED) {
      byId(`selected-${action}`).addEventListener("click", () =>
        this.#act(action, this.#actions.possible(action, [...this.#cards.selected])),
      );
    }
  }

  #showSelection() {
    const selected = [...this.#cards.selected];
    const all = byId("select-shown");
    all.checked = selected.length > 0 && this.#queue.shown.every((id) => this.#cards.selected.has(id));
    all.indeterminate = selected.length > 0 && !all.checked;
    byId("selected-actions").hidden = !selected.length;
    for (const action of ON_SELECTED) {
      byId(`selected-${action}`).disabled = !this.#actions.possible(action, selected).length;
    }
    setText(byId("selected"), selected.length ? `${selected.length.toLocaleString("en")} selected` : "Select all");
  }

  #showQueue() {
    const { counts, shown, filter, jobs } = this.#queue;
    byId("list").hidden = !jobs.size;
    byId("add").classList.toggle("large", !jobs.size);
    byId("none").hidden = shown.length > 0;
    // One picture needs no tools, except to leave a filter.
    byId("tools").hidden = counts.all < 2 && filter === "all" && !byId("search").value;
    byId("download-all").disabled = !(counts.done + counts.incomplete);
    for (const [name, count] of Object.entries(counts)) {
      byId(`filter-${name}`).hidden = !count && name !== "all" && name !== filter;
      setText(byId(`filter-${name}`).querySelector(".count"), count.toLocaleString("en"));
    }
    const ended = counts.done + counts.incomplete + counts.failed + counts.cancelled;
    const bar = byId("overall");
    bar.hidden = !counts.all || ended === counts.all;
    bar.value = counts.all ? ended / counts.all : 0;
    const parts = [`${counts.done.toLocaleString("en")} of ${counts.all.toLocaleString("en")} done`];
    for (const state of ["incomplete", "failed"]) {
      if (counts[state]) parts.push(`${counts[state].toLocaleString("en")} ${state}`);
    }
    const text = counts.all ? parts.join(", ") : "No pictures yet";
    setText(byId("overall-text"), text);
    document.title = counts.all && ended < counts.all ? `${ended}/${counts.all} · waifu2x` : "waifu2x";
    this.#tell(counts.all ? `${text}.` : "");
  }

  /** Lets screen readers say it, not more often than one can listen. */
  #tell(text) {
    if (!text || this.#saying !== null) return;
    const wait = Math.max(0, this.#said + SAID_EVERY - Date.now());
    this.#saying = setTimeout(() => {
      this.#saying = null;
      this.#said = Date.now();
      setText(byId("live"), `${byId("overall-text").textContent}.`);
    }, wait);
  }
}

api.takeToken();
addEventListener("hashchange", () => {
  api.takeToken();
  location.reload();
});
new Page().start();
