"""Gets machine code from the cache, or from a compiler, which only the first run needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from waifu2x import __version__
from waifu2x.backends.cuda.compilers import STANDARD, CompileError, Compiler, nvcc, nvrtc
from waifu2x.backends.gpu.device import source
from waifu2x.errors import BackendError, Sentence
from waifu2x.system import cache

_KIND = "cuda"
INSTALL = "pip install 'waifu2x-kernels[cuda]'"


def compiled(
    stem: str,
    macros: Mapping[str, str | int],
    *,
    capability: tuple[int, int],
    cuda: tuple[int, int],
    afresh: bool = False,
) -> bytes:
    """Returns the code of a file of `kernels/` for a chip: a cubin, or PTX if the compiler is older
    than the chip.

    `cuda` is the driver's CUDA version. The cache's key does not depend on the compiler: a warm
    start must find entries without one, and the code of every compiler computes the same.
    `afresh` ignores the cache. Raises BackendError.
    """
    name = f"{stem}.cu" if source.exists(f"{stem}.cu") else f"{stem}.cl"
    definitions, lines = source.definitions(macros)
    text = lines + source.read(name)
    chip = f"{capability[0]}.{capability[1]}"
    key = cache.digest(__version__, "cuda", chip, STANDARD, *definitions, text)
    found = None if afresh else cache.load(_KIND, key)
    if found is None:
        source.announce_compiling(f"sm_{capability[0]}{capability[1]}", _KIND)
        found = _compile(name, text, definitions, capability, cuda)
        cache.store(_KIND, key, found)
    return found


def find(cuda: tuple[int, int]) -> Compiler | None:
    """Returns NVRTC, or else nvcc, for a driver of that version; None if neither is installed."""
    return nvrtc.find(cuda[0]) or nvcc.find()


def has_kept() -> bool:
    """Returns whether the cache has compiled kernels."""
    return cache.has(_KIND)


def missing(cuda: tuple[int, int]) -> Sentence:
    """Returns the message for a machine without a compiler and with a driver of that version."""
    version = f"{cuda[0]}.{cuda[1]}"
    if cuda[0] < nvrtc.OLDEST:
        return Sentence(
            f"its kernels are compiled once, and NVRTC needs a driver for CUDA {nvrtc.OLDEST}.0 or"
            f" newer, not {version}",
            "update NVIDIA's driver, or use another backend",
        )
    return Sentence(
        f"its kernels are compiled once, by NVRTC for CUDA {version} or older, which is not here",
        f"run `{INSTALL}`, or use another backend",
    )


def target(capability: tuple[int, int], supported: Sequence[int]) -> str | None:
    """Returns the architecture to compile for, given the sm numbers that a compiler supports; None
    for a chip older than all of them.

    sm_90 gets its own instructions (90a). A chip that the compiler does not support gets the code
    of an older chip of its generation, which it runs unchanged, or else PTX of the newest one,
    which its driver translates.
    """
    major, minor = capability
    if (major, minor) == (9, 0) and 90 in supported:
        return "sm_90a"
    own = [sm for sm in supported if sm // 10 == major and sm % 10 <= minor]
    if own:
        return f"sm_{max(own)}"
    older = [sm for sm in supported if sm < major * 10 + minor]
    return f"compute_{max(older)}" if older else None


def _compile(
    name: str,
    text: str,
    definitions: list[str],
    capability: tuple[int, int],
    cuda: tuple[int, int],
) -> bytes:
    compiler = find(cuda)
    chip = f"sm_{capability[0]}{capability[1]}"
    if compiler is None:
        raise BackendError(missing(cuda).of("backend cuda lacks a kernel"))
    try:
        architecture = target(capability, compiler.supported())
        if architecture is None:
            raise BackendError(
                f"{compiler.name} is too new for this device ({chip})",
                f"run `{INSTALL}`, which brings an older one, or use another backend",
            )
        return compiler.compile(name, text, architecture, definitions).code
    except CompileError as error:
        raise BackendError(
            f"{compiler.name} cannot compile {name} for {chip} ({error})",
            f"{compiler.remedy}, or use another backend",
        ) from error
