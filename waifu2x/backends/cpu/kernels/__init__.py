"""Holds all code that is compiled; it is imported only when something must be compiled.

`strip.py`, `loops.py` and `planar.py` hold the entry points. Data comes as pointers, never as
arrays: compiled code then needs nothing of Numba's runtime, and can be cached and called without
Numba. For the same reason, nothing here raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding
from numba import njit, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.untyped_passes import IRProcessing


class _PartLibrary(JITCodeLibrary):  # type: ignore[misc]
    """Code that is only linked into entry points: it is optimized there, with its callers, and
    never compiled to machine code by itself. (Numba does both for every function, which is three
    times the work.)"""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True

    @property
    def codegen(self) -> _PartLibrary:
        """Returns itself: Numba calls only its `set_env`."""
        return self

    def set_env(self, name: str, environment: object) -> None:
        """Does nothing: code that is not in memory yet has no variables."""


class _EntryLibrary(JITCodeLibrary):  # type: ignore[misc]
    """Code of an entry point, which is optimized once. (Numba does it twice, and counts references
    in between: here are none.)"""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.enable_object_caching()

    def _optimize_final_module(self) -> None:
        passes, builder = self._codegen._module_pass_manager()
        passes.run(self._final_module, builder)


class _InLibrary(FunctionPass):  # type: ignore[misc]
    """Replaces the library that lowering would make."""

    library: type[JITCodeLibrary]

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        """Sets the library."""
        codegen = state.targetctx.codegen()
        state.library = self.library(codegen, state.func_id.func_qualname)
        return False


@register_pass(mutates_CFG=False, analysis_only=True)
class _AsPart(_InLibrary):
    _name = "as_part"
    library = _PartLibrary


@register_pass(mutates_CFG=False, analysis_only=True)
class _AsEntry(_InLibrary):
    _name = "as_entry"
    library = _EntryLibrary


class _Compiler(CompilerBase):  # type: ignore[misc]
    placed: type[_InLibrary]

    def define_pipelines(self) -> list[Any]:
        """Returns Numba's own passes and `placed`."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(self.placed, IRProcessing)
        passes.finalize()
        return [passes]


class _PartCompiler(_Compiler):
    placed = _AsPart


class _EntryCompiler(_Compiler):
    placed = _AsEntry


_OPTIONS = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

native = njit(pipeline_class=_PartCompiler, **_OPTIONS)
"""Makes a function part of entry points. The error model is that of C: no division raises."""

INTEGER = types.int64
INTEGERS = types.CPointer(types.int64)
FLOATS = types.CPointer(types.float32)
DOUBLES = types.CPointer(types.float64)


class EntryPoint:
    """A function that is called from Python, by its address."""

    def __init__(self, function: Callable[..., None], arguments: tuple[types.Type, ...]) -> None:
        self._function = function
        self._signature = types.void(*arguments)

    def build(self) -> tuple[str, bytes]:
        """Compiles it, and returns the name of its symbol and its object code.

        It is a C function that takes two pointers for Numba's own use, then the arguments, and
        returns 0. (A `numba.cfunc` has no such pointers, but needs symbols of Python and Numba to
        report errors.)
        """
        llvmlite.binding.initialize_native_asmparser()  # for inline assembly
        dispatcher = njit(self._signature, pipeline_class=_EntryCompiler, **_OPTIONS)(
            self._function
        )
        result = dispatcher.overloads[self._signature.args]
        return result.fndesc.llvm_func_name, result.library._get_compiled_object()


def entry_point(*arguments: types.Type) -> Callable[[Callable[..., None]], EntryPoint]:
    """Returns a decorator that makes an entry point of a function with arguments of these types."""
    return lambda function: EntryPoint(function, arguments)
