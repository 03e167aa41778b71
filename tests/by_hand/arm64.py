"""ARM64 Linux by emulation: the same bits as x86-64, and what LLVM makes of the inner loops.

python -m tests.by_hand.arm64 [FOLDER]

Needs qemu-user-static, binutils-aarch64-linux-gnu, apt-get and pip; no root. FOLDER keeps what is
downloaded for the next time: Debian's Python for ARM64, and aarch64 wheels of the libraries. It
takes about eight minutes, most of them for LLVM, which compiles inside the emulator.

Networks with and without means enlarge a small picture, in every mode that both processors offer.
Each result is compared with the one of this machine's own processor under WAIFU2X_CPU_ISA=portable,
bit by bit, and with the float64 reference. Then the loop of the compiled code that has the most
multiply-adds is shown.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends import Precision

ROOT = Path(__file__).parents[2]
EMULATOR = "qemu-aarch64-static"
DISASSEMBLER = "aarch64-linux-gnu-objdump"
TOOLS = (EMULATOR, DISASSEMBLER, "apt-get", "dpkg")
MODELS = ("vgg_7", "upconv_7", "cunet")
MODES: tuple[Precision, ...] = ("fp32", "auto", "int16")
PROMISED = {"fp32": 100.0, "auto": 60.0, "int16": 55.0}
"""Decibels against the reference."""
_PYTHON = "python3.11"
_TAGS = ("manylinux2014", "manylinux_2_17", "manylinux_2_27", "manylinux_2_28")
_MULTIPLY_ADDS = ("fmla", "fmls")


def main() -> int:
    """Prints a report in Markdown. Returns 0 if all results are right."""
    lacking = [tool for tool in TOOLS if shutil.which(tool) is None]
    if lacking:
        print(f"not here: {', '.join(lacking)}", file=sys.stderr)
        return 77
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        machine = Machine.made(folder)
        there, here = folder / "arm64", folder / "x86-64"
        machine.run([str(Path(__file__)), "--inside", str(there)], folder / "cache-arm64")
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "WAIFU2X_CPU_ISA": "portable",
            "WAIFU2X_CACHE_DIR": str(folder / "cache-x86-64"),
        }
        native = [sys.executable, str(Path(__file__)), "--inside", str(here), "--reference"]
        subprocess.run(native, env=environment, check=True)
        is_right = compared(there, here)
        print(loops(there / "winograd.o"))
    return 0 if is_right else 1


class Machine(NamedTuple):
    """A folder with Debian's Python for ARM64 and the libraries of the program."""

    root: Path
    site: Path

    @classmethod
    def made(cls, folder: Path) -> Machine:
        """Downloads what is not there yet."""
        root, site = folder / "root", folder / "site"
        if not (root / "usr" / "bin" / _PYTHON).exists():
            _unpack_debian(folder / "debian", root)
        if not (site / "numba").exists():
            _unpack_wheels(folder / "wheels", site)
        return cls(root, site)

    def run(self, arguments: list[str], cache: Path) -> None:
        """Runs Python inside."""
        cache.mkdir(mode=0o700, exist_ok=True)
        command = [EMULATOR, "-L", str(self.root), str(self.root / "usr" / "bin" / _PYTHON)]
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{ROOT}:{self.site}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "WAIFU2X_CACHE_DIR": str(cache),
        }
        subprocess.run([*command, *arguments], env=environment, check=True)


def _unpack_debian(state: Path, root: Path) -> None:
    """Debian's packages, by an apt with a state of its own: the system's stays as it is."""
    for name in ("state/lists/partial", "cache/archives/partial"):
        (state / name).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    settings = state / "apt.conf"
    settings.write_text(
        f'Dir::State "{state}/state"; Dir::State::status "{state}/status";'
        f' Dir::Cache "{state}/cache"; APT::Architecture "arm64";'
        ' APT::Architectures { "arm64"; }; APT::Install-Recommends "false"; APT::Sandbox::User "";'
    )
    environment = {**os.environ, "APT_CONFIG": str(settings)}
    packages = [_PYTHON, "libstdc++6"]
    for command in (["update"], ["install", "-y", "--download-only", *packages]):
        subprocess.run(["apt-get", "-qq", *command], env=environment, check=True)
    for package in (state / "cache" / "archives").glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(root)], check=True)


def _unpack_wheels(wheels: Path, site: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    command = [sys.executable, "-m", "pip", "download", "-q", "--only-binary=:all:"]
    command += ["--python-version", "3.11", "--implementation", "cp", "-d", str(wheels)]
    command += [part for tag in _TAGS for part in ("--platform", f"{tag}_aarch64")]
    wanted = [text.partition(";")[0] for text in project["dependencies"]]
    subprocess.run([*command, *wanted], check=True)
    for wheel in wheels.glob("*.whl"):
        ZipFile(wheel).extractall(site)


def inside(folder: Path, *, with_reference: bool) -> None:
    """Runs on both processors: writes results in every mode, and the compiled code."""
    from PIL import Image

    import waifu2x
    from waifu2x.backends.cpu.kernels.strip import winograd
    from waifu2x.errors import Waifu2xError

    folder.mkdir(exist_ok=True)
    picture = np.asarray(Image.open(ROOT / "examples" / "drawn.png").convert("RGB"))
    pixels = picture[40:88, 60:124].astype(np.float32) / 255
    backends: list[tuple[str, Precision]] = [("cpu", mode) for mode in MODES]
    if with_reference:
        backends.append(("numpy", "auto"))
    for backend, mode in backends:
        for model in MODELS:
            name = f"{model}-{'reference' if backend == 'numpy' else mode}"
            try:
                with waifu2x.Upscaler(2, model=model, backend=backend, precision=mode) as upscaler:
                    np.save(folder / f"{name}.npy", upscaler(pixels))
            except Waifu2xError as error:
                (folder / f"{name}.txt").write_text(str(error))
    _, code = winograd.build()
    (folder / "winograd.o").write_bytes(code)


def compared(there: Path, here: Path) -> bool:
    """Prints a table; returns whether all bits are the same and all promises kept."""
    is_right = True
    print("| network | mode | values that differ | dB against float64 |\n|---|---|---|---|")
    for model in MODELS:
        reference = np.load(here / f"{model}-reference.npy")
        for mode in MODES:
            names = [folder / f"{model}-{mode}.npy" for folder in (there, here)]
            if not any(name.exists() for name in names):
                print(f"| {model} | {mode} | not offered | |")
                continue
            arm64, x86_64 = map(np.load, names)
            different = int(np.count_nonzero(arm64 != x86_64))
            exactness = decibels(arm64, reference)
            is_right = is_right and not different and exactness >= PROMISED[mode]
            print(f"| {model} | {mode} | {different} of {arm64.size} | {exactness:.1f} |")
    return is_right


def decibels(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    """PSNR of values in [0, 1]."""
    error = np.mean((a.astype(np.float64) - b) ** 2)
    return float(-10 * np.log10(error)) if error else np.inf


class Instruction(NamedTuple):
    """A line of disassembly."""

    address: int
    name: str
    operands: str


def loops(code: Path) -> str:
    """The instructions of the innermost loops with the most multiply-adds, and the totals."""
    listed = subprocess.run(
        [DISASSEMBLER, "-d", "--no-show-raw-insn", str(code)],
        check=True,
        capture_output=True,
        text=True,
    )
    line = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*)$", re.MULTILINE)
    all_code = [Instruction(int(a, 16), b, c) for a, b, c in line.findall(listed.stdout)]
    bodies = sorted(innermost(all_code), key=lambda body: -_multiply_adds(body))
    text = [
        f"\n{len(all_code)} instructions, {_multiply_adds(all_code)} of them vector multiply-adds."
    ]
    for body in bodies[:10]:
        counted = Counter(instruction.name for instruction in body).most_common()
        stack = sum("[sp" in instruction.operands for instruction in body)
        named = re.search(r"kernels\d+([a-z_]+)\d+([a-z_]+?)B", body[-1].operands)
        text.append(
            f"- {'.'.join(named.groups()) if named else 'a loop'}: {len(body)} instructions,"
            f" {_multiply_adds(body)} of them multiply-adds, {stack} of the stack: "
            + ", ".join(f"{name} {count}" for name, count in counted)
        )
    text += ["", "```", *(f"{b.name:8}{b.operands}" for b in bodies[0]), "```"]
    return "\n".join(text)


def innermost(code: list[Instruction]) -> Iterable[list[Instruction]]:
    """Loops with none inside: from the target of a branch backwards to the branch."""
    places = {instruction.address: place for place, instruction in enumerate(code)}
    spans = []
    for place, instruction in enumerate(code):
        target = re.search(r"\b([0-9a-f]+) <", instruction.operands)
        if target and re.match(r"b\.|cbn?z|tbn?z", instruction.name):
            start = places.get(int(target[1], 16), place)
            if start < place:
                spans.append((start, place))
    for start, end in spans:
        if not any(start <= a and b <= end and (a, b) != (start, end) for a, b in spans):
            yield code[start : end + 1]


def _multiply_adds(code: Iterable[Instruction]) -> int:
    return sum(
        instruction.name in _MULTIPLY_ADDS and ".4s" in instruction.operands for instruction in code
    )


if __name__ == "__main__":
    if "--inside" in sys.argv:
        place = Path(sys.argv[sys.argv.index("--inside") + 1])
        inside(place, with_reference="--reference" in sys.argv)
    else:
        sys.exit(main())
