"""Pickles of PyTorch's tensors, read without PyTorch and without running anything.

A pickle is a program. Its instructions are held against those that PyTorch writes, as a whole, and
run by a machine of our own that calls nothing. What comes out are records of where each tensor
lies in the data that follows: see `torch_files`.
"""

from __future__ import annotations

import pickletools
from typing import IO, Any, cast

from waifu2x.errors import ModelError
from waifu2x.networks.readers.limits import ModelBudget
from waifu2x.networks.readers.pickle_machine import (
    ACTIONS,
    Action,
    DamagedError,
    PickleMachine,
    Stored,
)

MAX_PICKLE = 16 << 20
"""Bytes of instructions, which name tensors and do not hold them."""

_WHOLE_OBJECT = "holds a whole module or other objects: save model.state_dict() instead"


def load(
    content: bytes,
    at: int,
    budget: ModelBudget,
    storages: dict[str, Stored],
    *,
    legacy: bool = False,
) -> tuple[Any, int]:
    """The object of the pickle that begins at a place of a file's bytes, and where that ends.

    `storages` receives all storages that it names. Raises ModelError for damage, for more than the
    budget allows, and for whatever is not made of plain numbers, strings with names, lists,
    dictionaries and tensors.
    """
    machine = PickleMachine(budget, storages, legacy)
    try:
        window = _Window(content, at)
        for action, argument in _instructions(window, budget):
            action(machine, argument)
        return machine.result(), window.tell()
    except DamagedError as error:
        raise ModelError(f"{budget.name}: {error}") from None
    except IndexError:
        raise ModelError(f"{budget.name}: damaged: its pickle takes more than there is") from None


class _Window:
    """The bytes that a pickle may take, read without a copy of all of them."""

    def __init__(self, content: bytes, at: int) -> None:
        self._content = content
        self._at = at
        self._end = min(len(content), at + MAX_PICKLE)

    def read(self, count: int) -> bytes:
        begin, self._at = self._at, max(self._at, min(self._at + count, self._end))
        return self._content[begin : self._at]

    def readline(self) -> bytes:
        line_end = self._content.find(b"\n", self._at, self._end)
        return self.read((self._end if line_end < 0 else line_end + 1) - self._at)

    def tell(self) -> int:
        return self._at


def _instructions(window: _Window, budget: ModelBudget) -> list[tuple[Action, Any]]:
    """What all instructions of a pickle do, each with its argument; refused as a whole."""
    found: list[tuple[Action, Any]] = []
    try:
        for instruction, argument, _ in pickletools.genops(cast(IO[bytes], window)):
            budget.take_steps()
            if instruction.name in ("NEWOBJ", "NEWOBJ_EX"):
                raise DamagedError(_WHOLE_OBJECT)
            action = ACTIONS.get(instruction.name)
            if action is None:
                what = f"its pickle has the instruction {instruction.name}"
                raise DamagedError(f"{what}: save model.state_dict() alone")
            found.append((action, argument))
    except (ModelError, DamagedError):
        raise
    except Exception as error:  # whatever damage makes pickletools raise
        raise DamagedError("damaged: not a whole pickle") from error
    return found
