"""Model files that somebody wrote to do harm: ONNX and waifu2x's JSON, always the same ones.

`python -m tests.helpers.model_attacks FOLDER EVERY` reads every EVERY-th of them from FOLDER, in
which it may have little memory and time. Each must end in a sentence; damage that happens to be
harmless, a bit of a weight say, may be read. While a file is read, nothing else may be opened, no
connection made, no program started and no code compiled. Prints how many were refused, and read.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from tests.helpers import json_attacks, model_fuzz, onnx_attacks
from tests.helpers.onnx_attacks import Attack
from waifu2x.errors import ModelError
from waifu2x.networks.readers import read_model

MOST_SECONDS = 20
_SUSPICIOUS = (
    *("open", "exec", "compile", "import", "marshal.", "pickle.", "socket.", "subprocess."),
    *("os.", "shutil.", "tempfile.", "glob.", "ctypes.", "urllib.", "http.", "ftplib.", "pty."),
)


def attacks(every: int) -> Iterator[Attack]:
    """Yields each `every`-th attack, in the same order each time; large ones only among all."""
    for kind, made in {**onnx_attacks.KINDS, **json_attacks.KINDS}.items():
        if every == 1 or kind != "many nodes":
            for number, attack in enumerate(islice(made(), None, None, every)):
                yield attack._replace(name=f"{kind} {number * every}: {attack.name}")


def _is_of_a_dataclass(event: str) -> bool:
    """Whether this is a method of a dataclass, made when it is first needed."""
    maker = sys._getframe(2).f_globals["__name__"]
    return event in ("compile", "exec") and maker in (
        "dataclasses",
        "waifu2x.system.lazy_dataclass",
    )


class Watch:
    """Records Python's audit events while a file is read."""

    def __init__(self) -> None:
        self.is_on = False
        self.allowed: tuple[str, ...] = ()
        """Paths that may be opened; what they are the beginning of, too."""
        self.seen: list[str] = []
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.is_on or not event.startswith(_SUSPICIOUS):
            return
        path = str(arguments[0]) if arguments else ""
        if event == "open" and isinstance(arguments[0], int):
            return
        if path.startswith(self.allowed) or _is_of_a_dataclass(event):
            return
        self.seen.append(f"{event} {path[:100]}")


def main(folder: Path, every: int) -> None:
    files = folder / "files"
    files.mkdir()
    for bait in (files / "weights.bin", folder / "outside.bin"):
        bait.write_bytes(bytes(324))
    (files / "link.bin").symlink_to(folder / "outside.bin")
    os.environ["WAIFU2X_CACHE_DIR"] = str(folder / "cache")
    watch = Watch()
    # Modules that readers import are imported here, with the encodings that JSON may have.
    for encoding in ("utf-8-sig", "utf-16-be", "utf-16-le", "utf-32-be", "utf-32-le"):
        "".encode(encoding)
    (files / "sound.onnx").write_bytes(model_fuzz.onnx_file())
    (files / "sound.json").write_bytes(json_attacks.SOUND.read_bytes())
    for name in ("sound.onnx", "sound.json", "sound.json"):
        read_model(files / name)
    model_fuzz.bound_memory()
    refused: list[str] = []
    read: list[str] = []
    for attack in attacks(every):
        path = files / f"m{attack.suffix}"
        path.write_bytes(attack.content)
        watch.allowed, watch.seen, watch.is_on = (str(path), str(folder / "cache")), [], True
        signal.alarm(MOST_SECONDS)
        try:
            read_model(path)
        except ModelError as error:
            watch.is_on = False
            text = str(error)
            assert text.startswith(f"{path}: "), (attack.name, text)
            assert text.isprintable(), (attack.name, text)
            assert len(text) < 250 + len(str(path)), (attack.name, text)
            refused.append(attack.name)
        except BaseException as error:
            raise AssertionError(attack.name) from error
        else:
            assert attack.may_be_read, attack.name
            read.append(attack.name)
        watch.is_on = False
        signal.alarm(0)
        assert not watch.seen, (attack.name, watch.seen)
    print(json.dumps({"refused": len(refused), "read": len(read)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
