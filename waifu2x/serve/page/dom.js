// Makes elements. Text becomes text nodes only: names of files and messages are never parsed.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

/** An element with properties (those with a dash are attributes) and children, strings among them. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}

/** A drawing of 24x24 units made of lines, which says nothing to a screen reader. */
export function icon(path) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  svg.classList.add("icon");
  const line = document.createElementNS(SVG, "path");
  line.setAttribute("d", path);
  svg.append(line);
  return svg;
}

/** Sets a text only if it differs: an unchanged node costs no layout, and is not read out again. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Calls a function once per frame at most, however often this is called. */
export function oncePerFrame(action) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      action();
    });
  };
}

/** Puts a text into the clipboard, and says on the button that asked for it whether that went well. */
export async function copy(text, button) {
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    setText(button, "Copied");
  } catch {
    setText(button, "Not allowed");
  }
  button.disabled = true;
  setTimeout(() => {
    setText(button, label);
    button.disabled = false;
  }, 1500);
}
