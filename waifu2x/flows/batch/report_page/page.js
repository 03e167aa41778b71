// Search by name, and a view of a detail before and after. Without this the page is a list whose
// entries open to both pictures side by side.
(() => {
  "use strict";
  const byId = (id) => document.getElementById(id);
  const figures = [...byId("pictures").querySelectorAll("figure")];
  const names = figures.map((figure) => figure.querySelector("figcaption").textContent.toLowerCase());

  const search = byId("search");
  const found = byId("found");
  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    figures.forEach((figure, number) => {
      const hit = words.every((word) => names[number].includes(word));
      figure.hidden = !hit;
      count += hit;
    });
    found.textContent = `${count} of ${figures.length} shown`;
  };
  search.addEventListener("input", filter);
  byId("find").hidden = false;
  filter(); // a browser may have kept the text over a reload

  const view = byId("view");
  const stage = byId("stage");
  const slider = byId("slider");
  const beside = byId("beside");
  let current = null;

  const labelled = (source, name, word) => {
    const figure = document.createElement("figure");
    const image = new Image();
    const label = document.createElement("span");
    image.src = source.src;
    image.alt = `${name}, ${word}`;
    label.textContent = word;
    figure.className = word;
    figure.append(image, label);
    return figure;
  };
  const fit = () => {
    // Small pictures are enlarged, others are shown pixel for pixel where there is room.
    const { naturalWidth: width, naturalHeight: height } = stage.querySelector("img");
    if (!width) return; // it is not there yet
    const columns = beside.ariaPressed === "true" ? 2 : 1;
    const enlarged = Math.max(1, 480 / Math.max(width, height));
    const [widest, highest] = [columns * width * enlarged, (columns * 65 * width) / height];
    stage.style.maxWidth = slider.style.maxWidth = `min(${widest}px, ${highest}vh)`;
    stage.classList.toggle("narrow", columns === 1 && stage.clientWidth < 160);
  };
  const arrange = () => {
    const sideBySide = beside.ariaPressed === "true";
    stage.className = sideBySide ? "stage beside" : "stage sliding";
    slider.hidden = sideBySide;
    fit();
  };
  const slide = () => stage.style.setProperty("--at", `${slider.value}%`);
  const show = (figure) => {
    const [before, after] = figure.querySelectorAll(".pair img");
    const name = figure.querySelector(".name").textContent;
    current = figure;
    byId("title").textContent = name;
    stage.replaceChildren(labelled(before, name, "before"), labelled(after, name, "after"));
    stage.querySelector("img").addEventListener("load", fit);
    slider.value = 50;
    slide();
    arrange();
    if (!view.open) view.showModal();
  };
  const step = (by) => {
    const shown = figures.filter((figure) => !figure.hidden && figure.querySelector(".pair"));
    show(shown[(shown.indexOf(current) + by + shown.length) % shown.length]);
  };

  byId("pictures").addEventListener("click", (event) => {
    const summary = event.target.closest("summary");
    if (!summary) return;
    event.preventDefault();
    show(summary.closest("figure"));
  });
  slider.addEventListener("input", slide);
  stage.addEventListener("pointermove", (event) => {
    if (slider.hidden || (event.pointerType !== "mouse" && !event.buttons)) return;
    const box = stage.getBoundingClientRect();
    slider.value = (100 * (event.clientX - box.left)) / box.width;
    slide();
  });
  beside.addEventListener("click", () => {
    beside.ariaPressed = String(beside.ariaPressed !== "true");
    arrange();
  });
  byId("previous").addEventListener("click", () => step(-1));
  byId("next").addEventListener("click", () => step(1));
  byId("close").addEventListener("click", () => view.close());
  view.addEventListener("click", (event) => {
    if (event.target === view) view.close(); // beside it
  });
})();
