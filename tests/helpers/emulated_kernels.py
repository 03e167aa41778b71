"""Kernels of matrix units on the processor: compiled as C++, with warps that are emulated.

By `emulated_warps.h`, warps take turns at random; copies happen at once, or as late as a kernel's
waits allow. Needs g++ on x86-64 with AVX2, FMA and F16C.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
import threading
from pathlib import Path

from waifu2x.backends.gpu.device import source
from waifu2x.backends.gpu.device.runtime import Macros

HEADER = Path(__file__).with_name("emulated_warps.h")
GIVEN = (
    "shared_address add_sizes prefetch_residual round_to_half widen pack unpack copy16 commit wait"
    " copy16_or_zeros"
    " load_matrices load_transposed mma power_of_two"
)
BARRIERS = "barrier_init barrier_arrive barrier_arrive_copied barrier_wait"
"""Functions of the header in the place of a chip's instructions."""
ENTRY = """
static const uint8_t* arguments;

// Arguments as a kernel finds them: each at a multiple of its alignment.
template <class T>
static const T& argument(size_t& at) {
    at = (at + alignof(T) - 1) / alignof(T) * alignof(T);
    const T& found = *reinterpret_cast<const T*>(arguments + at);
    at += sizeof(T);
    return found;
}

static void fiber() {
    using namespace device;
    size_t at = 0;
    CALL
    complete(*current);
    current->is_done = true;
    warps[current->warp].live--;
    void* ended;
    if (--live == 0) switch_fibers(&ended, outside);
    current = next_of(warps[current->warp].live ? current->warp : any_warp());
    switch_fibers(&ended, current->stack_pointer);
}

extern "C" void launch(const uint8_t* packed, int across, int down, int deep, int late, int seed) {
    using namespace device;
    arguments = packed;
    is_late = late;
    state = seed;
    std::vector<uint8_t> memory(EMULATED_SHARED + 1024);
    shared = memory.data() + (1024 - reinterpret_cast<uintptr_t>(memory.data()) % 1024);
    threads.resize(EMULATED_THREADS);
    for (Thread& thread : threads) thread.stack.resize(FIBER_BYTES);
    grid = {across, down, deep};
    for (int number = 0; number < across * down * deep; number++) {
        block = {number % across, number / across % down, number / across / down};
        memset(shared, 0x7f, EMULATED_SHARED);  // no numbers
        block_barriers.clear();
        shared_barriers.clear();
        warps.assign(EMULATED_THREADS / 32, Warp{});
        live = EMULATED_THREADS;
        waits = tries = 0;
        for (int i = 0; i < EMULATED_THREADS; i++) {
            Thread& thread = threads[i];
            thread.place = {i, 0, 0};
            thread.lane = i % 32;
            thread.warp = i / 32;
            thread.is_done = false;
            warps[thread.warp].live++;
            void** top = reinterpret_cast<void**>(
                reinterpret_cast<uintptr_t>(thread.stack.data() + FIBER_BYTES) / 64 * 64);
            *--top = nullptr;
            *--top = reinterpret_cast<void*>(fiber);
            for (int saved = 0; saved < 6; saved++) *--top = nullptr;
            thread.stack_pointer = top;
        }
        current = next_of(any_warp());
        switch_fibers(&outside, current->stack_pointer);
    }
}
"""


def compiled(stem: str, macros: Macros, threads: int, shared: int, folder: Path) -> ctypes.CDLL:
    """A kernel as a library of the processor's, whose function `launch` takes packed arguments, the
    blocks in three directions, whether copies are late, and what random schedules begin with."""
    text = source.read(f"{stem}.cu")
    signature = re.search(rf"^{stem}\((.*?)\) {{", text, re.DOTALL | re.MULTILINE)
    assert signature is not None, stem
    kinds = re.findall(r"const __grid_constant__ (\w+) \w+", signature[1])
    taken = "".join(f"const {kind}& a{n} = argument<{kind}>(at);" for n, kind in enumerate(kinds))
    call = f"{taken} {stem}({', '.join(f'a{n}' for n in range(len(kinds)))});"
    unused: dict[str, str | int] = {
        "PLANE_SLOPES": 0,
        "BOUNDED": 0,
        "SCALED_RESIDUAL": 0,
    }
    if not any(name.startswith("ACTIVATE(") for name in macros):
        unused |= {"ACTIVATE(x, slope)": "(x)"}  # g++ looks at templates that nobody uses
    own: Macros = {**unused, **macros, "EMULATED_THREADS": threads, "EMULATED_SHARED": shared}
    defined = "".join(f"#define {name} {value}\n" for name, value in own.items())
    whole = defined + HEADER.read_text() + without_instructions(text) + ENTRY.replace("CALL", call)
    path = folder / hashlib.sha256(whole.encode()).hexdigest()
    if not path.exists():
        begun = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")  # others compile it
        code = begun.with_name(f"{begun.name}.cc")
        code.write_text(whole)
        options = "-O1 -mavx2 -mfma -mf16c -ffp-contract=off -fno-strict-aliasing -w -shared -fPIC"
        subprocess.run(["g++", *options.split(), "-o", str(begun), str(code)], check=True)
        begun.replace(path)
    return ctypes.CDLL(str(path))


def without_instructions(text: str) -> str:
    """A kernel's text without what the header has in the place of instructions."""
    for name in (*GIVEN.split(), *BARRIERS.split()):
        function = rf"(template <int \w+>\n)?__device__ __forceinline__ \w+ {name}\(.*?\n}}\n"
        text = re.sub(function, "", text, flags=re.DOTALL)
    barrier = r"asm volatile\(\"bar.sync .*?\"n\"\((\w+)\).*?\);"
    text = re.sub(barrier, r"device::synchronize(consumer + 1, \1);", text)
    text = re.sub(r"extern __shared__.*;", "uint8_t* const shared = device::shared;", text)
    if "asm" in text:
        raise ValueError(f"not emulated: {text[text.index('asm') :][:200]}")
    return text
