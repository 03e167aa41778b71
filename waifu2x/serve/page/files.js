// Files out of what people drop, paste and choose; of folders, those that can be enlarged.

/** A way to ask whether a file of this name is worth sending, by the server's extensions. */
export function accepting(extensions) {
  return (name) => extensions.some((extension) => name.toLowerCase().endsWith(extension));
}

/** The files of a drop or of a paste: those of folders too, which are read as they are asked for. */
export function dropped(transfer) {
  // Before anything is awaited: the browser empties the transfer.
  const items = [...transfer.items].filter((item) => item.kind === "file");
  return unfold(items.map((item) => item.webkitGetAsEntry?.() ?? item.getAsFile()));
}

async function* unfold(entries) {
  for (const entry of entries) {
    if (!entry) continue;
    if (entry instanceof File) yield { file: entry, inFolder: false };
    else yield* walk(entry, false);
  }
}

async function* walk(entry, inFolder) {
  if (entry.isFile) {
    yield { file: await new Promise((resolve, reject) => entry.file(resolve, reject)), inFolder };
    return;
  }
  const reader = entry.createReader();
  for (;;) {
    // A browser gives at most a hundred at a time.
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!some.length) return;
    for (const each of some) yield* walk(each, true);
  }
}

/** A drawing that comes with the page, for those who have no picture at hand. */
export async function* sample() {
  const content = await (await fetch("sample.png")).blob();
  yield { file: new File([content], "sample.png"), inFolder: false };
}

/** The files of a chooser; `inFolder` if it chose a folder. */
export async function* chosen(list, inFolder) {
  for (const file of list) yield { file, inFolder };
}
