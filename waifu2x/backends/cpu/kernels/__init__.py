"""All that is compiled; imported only when there is something to compile.

`strip.py` and `loops.py` hold the entries. Data comes as pointers, never as arrays: compiled code
then needs nothing of Numba's runtime, and its machine code can be kept and called without Numba.
For the same reason nothing here raises.
"""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.binding
from numba import njit, types

native = njit(error_model="numpy")
"""Makes a function part of entries. The error model is that of C: a division does not raise."""

INTEGER = types.int64
INTEGERS = types.CPointer(types.int64)
FLOATS = types.CPointer(types.float32)


class Entry:
    """A function that is called from Python, by its address."""

    def __init__(self, function: Callable[..., None], arguments: tuple[types.Type, ...]) -> None:
        self._function = function
        self._signature = types.void(*arguments)

    def build(self) -> tuple[str, bytes]:
        """Compiles it: the name of its symbol and its object code.

        It is a C function of two pointers for Numba's own use and then the arguments, which returns
        0. (What `numba.cfunc` makes has no such pointers, but drags in Python's and Numba's symbols
        to report errors with.)
        """
        llvmlite.binding.initialize_native_asmparser()  # for inline assembly
        options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "error_model": "numpy"}
        dispatcher = njit(self._signature, **options)(self._function)
        result = dispatcher.overloads[self._signature.args]
        return result.fndesc.llvm_func_name, result.library._get_compiled_object()


def entry(*arguments: types.Type) -> Callable[[Callable[..., None]], Entry]:
    """Makes an entry of a function with arguments of these types."""
    return lambda function: Entry(function, arguments)
