"""Pickles of PyTorch's tensors, read without PyTorch and without running anything.

A pickle is a program. All its instructions must be those that PyTorch writes, and run on a machine
that can call nothing: a stack and a memory. It makes plain numbers, strings, lists, tuples and
dictionaries, and records of where each tensor lies in the data that follows. Elements and depth are
bounded.
"""

from __future__ import annotations

import pickletools
import reprlib
from collections.abc import Callable
from typing import IO, Any, NamedTuple, cast

from waifu2x.errors import ModelError
from waifu2x.networks.readers.limits import ModelBudget
from waifu2x.networks.readers.tensors import MOST_DIMENSIONS, is_inside

MAX_ENTRIES = 500_000
"""Elements of all lists, tuples and dictionaries together."""

_MOST_NUMBERS = 1 << 40
"""A bound for sizes, offsets and strides, so that products of them stay small integers."""
_STATE_DICT = "save model.state_dict() instead"


class Stored(NamedTuple):
    """Numbers in a row, elsewhere in the file."""

    dtype: str
    """The name of PyTorch's storage class without `Storage`, such as `Float`."""
    key: str
    length: int


class Tensor(NamedTuple):
    """A view of stored numbers, in numbers and not in bytes; it lies inside them."""

    storage: Stored
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _StorageClass(NamedTuple):
    """A class of storages, which is nothing but a dtype."""

    dtype: str


class _Function(NamedTuple):
    """One of the few functions that tensors are made with; it is known, not called."""

    name: str


class _Other:
    """A value that holds no weights, such as a size or a set: nothing of it is kept."""


class _StackMark:
    """The place on the stack where the elements of the next list or tuple begin."""


class DamagedError(ModelError):
    """The reason why a pickle is refused, without the file's name."""


class PickleMachine:
    """The stack and the memory of a pickle, and what each instruction does to them."""

    def __init__(self, budget: ModelBudget, storages: dict[str, Stored], legacy: bool) -> None:
        self._budget = budget
        self._storages = storages
        self._legacy = legacy
        self._stack: list[Any] = []
        self._memory: dict[int, Any] = {}
        self._depths: dict[int, int] = {}
        """How deep lists, tuples and dictionaries are nested, by their identity."""
        self._made: list[Any] = []
        """These objects, kept: the identity of a freed one can be another's."""
        self._closed: set[int] = set()
        """Identities of elements of others: filled further, they would be deeper than counted."""

    def result(self) -> Any:
        """Returns the object on the stack when the program stops."""
        if len(self._stack) != 1 or isinstance(self._stack[0], _StackMark):
            raise DamagedError("damaged: its pickle does not make one object")
        return self._stack[0]

    def push(self, value: Any) -> None:
        """Puts a value on the stack."""
        self._stack.append(value)

    def pop(self) -> Any:
        """Takes a value, which must be no mark, from the stack."""
        value = self._stack.pop()
        if isinstance(value, _StackMark):
            raise DamagedError("damaged: its pickle takes more than there is")
        return value

    def top(self, kind: type) -> Any:
        """Returns the object on the stack, which must be of a kind that can be filled."""
        value = self._stack[-1]
        if type(value) is not kind:
            raise DamagedError("damaged: its pickle fills what is no list or dictionary")
        if id(value) in self._closed:
            raise DamagedError("damaged: its pickle fills what is part of something else")
        return value

    def to_mark(self) -> list[Any]:
        """Returns what has been pushed since the last mark."""
        taken: list[Any] = []
        while not isinstance(value := self._stack.pop(), _StackMark):
            taken.append(value)
        return taken[::-1]

    def collect(self, made: list[Any] | tuple[Any, ...] | dict[Any, Any]) -> None:
        """Pushes a new list, tuple or dictionary."""
        self._made.append(made)
        self._depths[id(made)] = 1
        self._hold(made, list(made.values()) if isinstance(made, dict) else made)
        self.push(made)

    def _hold(self, outer: Any, inner: list[Any] | tuple[Any, ...]) -> None:
        """Counts new elements of a list, tuple or dictionary, and how deep they make it."""
        self._budget.take_entries(len(inner))
        depth = max((self._depths.get(id(each), 0) for each in inner), default=0) + 1
        self._budget.check_depth(depth)
        self._depths[id(outer)] = max(self._depths[id(outer)], depth)
        self._closed.update(id(each) for each in inner if id(each) in self._depths)

    def extend(self, values: list[Any]) -> None:
        """Appends to the list on the stack."""
        into = self.top(list)
        self._hold(into, values)
        into.extend(values)

    def set_items(self, values: list[Any]) -> None:
        """Adds names and values, in turn, to the dictionary on the stack."""
        into = self.top(dict)
        self._hold(into, values)
        into.update(_pairs(values[::2], values[1::2]))

    def dictionary(self, values: list[Any]) -> None:
        """Pushes a dictionary of names and values in turn."""
        self.collect({})
        self.set_items(values)

    def add_items(self) -> None:
        """Adds elements to a set, which is not kept."""
        elements = self.to_mark()
        if not isinstance(self.pop(), _Other):
            raise DamagedError("damaged: its pickle fills what is no set")
        self.other(elements)

    def take(self, count: int) -> list[Any]:
        """Returns `count` elements from the top, in the order in which they were pushed."""
        return [self.pop() for _ in range(count)][::-1]

    def put(self, index: int) -> None:
        """Keeps the top of the stack in the memory."""
        value = self._stack[-1]
        if isinstance(value, _StackMark):
            raise DamagedError("damaged: its pickle keeps nothing")
        self._memory[index] = value

    def memoize(self) -> None:
        """Keeps the top of the stack in the memory's next place."""
        self.put(len(self._memory))

    def get(self, index: int) -> None:
        """Pushes an object of the memory."""
        if index not in self._memory:
            raise DamagedError("damaged: its pickle recalls what it never kept")
        self.push(self._memory[index])

    def duplicate(self) -> None:
        """Pushes the top of the stack once more."""
        value = self.pop()
        self._stack += [value, value]

    def name(self, module: Any, name: Any) -> None:
        """Pushes a class or function by its module and name."""
        if not isinstance(module, str) or not isinstance(name, str):
            raise DamagedError("damaged: its pickle names a class by no name")
        if module == "torch" and name.endswith("Storage"):
            self.push(_StorageClass(name.removesuffix("Storage")))
        elif (module, name) in _FUNCTIONS:
            self.push(_Function(name))
        elif module == "torch" and name in _PLAIN_OF_TORCH:
            self.push(_Other())
        elif (module, name) in _PLAIN:
            self.push(_Function(_OTHER))
        else:
            asked = reprlib.repr(f"{module}.{name}")
            raise DamagedError(f"it asks for {asked}, and only tensors are read", _STATE_DICT)

    def other(self, elements: list[Any]) -> None:
        """Pushes a value that is not kept; its elements are counted."""
        self._budget.take_entries(len(elements))
        self.push(_Other())

    def call(self) -> None:
        """Pushes the result of one of the known functions."""
        arguments, function = self.pop(), self.pop()
        if not isinstance(function, _Function) or not isinstance(arguments, tuple):
            raise DamagedError("damaged: its pickle calls what is no function")
        if function.name == _OTHER:
            self.push(_Other())
        elif function.name == "OrderedDict":
            self.collect(self._ordered(arguments))
        elif function.name == "defaultdict":
            self.collect({})
        elif function.name == "_rebuild_from_type_v2":
            self._rebuild_typed(arguments)
        elif function.name in ("_rebuild_parameter", "_rebuild_parameter_with_state"):
            if not arguments or not isinstance(arguments[0], Tensor):
                raise DamagedError("damaged: a parameter without a tensor")
            self.push(arguments[0])
        else:
            self.push(_tensor(arguments))

    def _rebuild_typed(self, arguments: tuple[Any, ...]) -> None:
        """Pushes a tensor that has attributes: (function, class, arguments, attributes)."""
        if len(arguments) != 4:
            raise DamagedError("damaged: a tensor without a shape")
        function, _, inner, _ = arguments
        if not isinstance(function, _Function) or function.name == "_rebuild_from_type_v2":
            raise DamagedError("damaged: a tensor that nothing makes")
        self._stack += [function, inner]
        self.call()

    def _ordered(self, arguments: tuple[Any, ...]) -> dict[Any, Any]:
        """Returns a dictionary, empty or of a list of pairs, as Python 2 wrote it."""
        pairs = arguments[0] if arguments else []
        if len(arguments) > 1 or type(pairs) is not list:
            raise DamagedError("damaged: a dictionary of something else than pairs")
        self._budget.take_entries(len(pairs))
        if not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
            raise DamagedError("damaged: a dictionary of something else than pairs")
        return _pairs([pair[0] for pair in pairs], [pair[1] for pair in pairs])

    def build(self) -> None:
        """Drops the attributes that `state_dict` gives its dictionary."""
        self.pop()
        if type(self._stack[-1]) not in (dict, _Other):
            raise DamagedError("damaged: it gives attributes to a name", _STATE_DICT)

    def storage(self) -> None:
        """Pushes a storage by PyTorch's name: ("storage", class, key, place, count).

        In legacy files, None stands behind those.
        """
        name = self.pop()
        length = 6 if self._legacy else 5
        if type(name) is not tuple or len(name) != length or name[0] != "storage":
            raise DamagedError("it names its data in a way that PyTorch does not")
        _, kind, key, _, count = name[:5]
        if name[5:] not in ((), (None,)):
            raise DamagedError("it holds storages that are parts of others", _STATE_DICT)
        if not isinstance(kind, _StorageClass) or type(key) is not str or not _is_size(count):
            raise DamagedError("it names its data in a way that PyTorch does not")
        stored = Stored(kind.dtype, key, count)
        if self._storages.setdefault(key, stored) != stored:
            raise DamagedError("damaged: data of two kinds or sizes under one name")
        self.push(stored)


def _pairs(keys: list[Any], values: list[Any]) -> dict[str | int, Any]:
    """Returns a dictionary whose keys are names or numbers."""
    if len(keys) != len(values):
        raise DamagedError("damaged: a name without a value")
    # Others can take for ever to be hashed: a tuple of itself twice, sixty deep.
    if not all(type(key) in (str, int) for key in keys):
        raise DamagedError("it has a dictionary whose keys are neither names nor numbers")
    return dict(zip(keys, values, strict=True))


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value < _MOST_NUMBERS


def _tensor(arguments: tuple[Any, ...]) -> Tensor:
    if len(arguments) < 4:
        raise DamagedError("damaged: a tensor without a shape")
    storage, offset, shape, strides = arguments[:4]
    if (
        not isinstance(storage, Stored)
        or type(shape) is not tuple
        or type(strides) is not tuple
        or len(shape) != len(strides)
        or len(shape) > MOST_DIMENSIONS
        or not all(map(_is_size, (offset, *shape, *strides)))
    ):
        raise DamagedError("damaged: a tensor without a shape")
    if not is_inside(storage.length, offset, shape, strides):
        raise DamagedError("damaged: a tensor reaches beyond its data, or its numbers overlap")
    return Tensor(storage, offset, shape, strides)


_FUNCTIONS = frozenset(
    (
        ("collections", "OrderedDict"),
        ("torch._utils", "_rebuild_tensor"),
        ("torch._utils", "_rebuild_tensor_v2"),
        ("torch._utils", "_rebuild_parameter"),
        ("torch._utils", "_rebuild_parameter_with_state"),
        ("torch._tensor", "_rebuild_from_type_v2"),
        ("collections", "defaultdict"),
    )
)
_OTHER = "other"
_PLAIN = frozenset(
    (
        ("torch", "Size"),
        ("torch", "device"),
        ("torch", "Tensor"),
        ("torch.nn.parameter", "Parameter"),
        ("collections", "Counter"),
        ("_codecs", "encode"),
        *(
            (module, name)
            for module in ("builtins", "__builtin__")
            for name in ("set", "frozenset", "list", "dict")
        ),
        *((f"numpy.{core}.multiarray", "scalar") for core in ("core", "_core")),
        ("numpy", "dtype"),
    )
)
"""Makers of values that hold no weights, beside which they stand; most are those that PyTorch's own
`weights_only` takes. None is called."""
_PLAIN_OF_TORCH = frozenset(
    (
        *("float64", "float32", "float16", "bfloat16", "complex64", "complex128"),
        *("int64", "int32", "int16", "int8", "uint8", "bool"),
        *("strided", "contiguous_format", "channels_last", "preserve_format"),
    )
)
"""Constants, named rather than made."""


def _text(value: str) -> str:
    """Decodes a string of Python 2, which pickletools gives byte by byte."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError:
        raise DamagedError("damaged: a string that is not UTF-8") from None


Action = Callable[[PickleMachine, Any], Any]

ACTIONS: dict[str, Action] = {
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), lambda machine, value: None),
    **dict.fromkeys(
        (
            *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"),
            *("FLOAT", "BINFLOAT"),
            *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
        ),
        PickleMachine.push,
    ),
    **dict.fromkeys(
        ("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
        lambda machine, value: machine.other([]),
    ),
    **dict.fromkeys(
        ("BINSTRING", "SHORT_BINSTRING"), lambda machine, value: machine.push(_text(value))
    ),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), PickleMachine.put),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), PickleMachine.get),
    "MEMOIZE": lambda machine, value: machine.memoize(),
    "NONE": lambda machine, value: machine.push(None),
    "NEWTRUE": lambda machine, value: machine.push(True),
    "NEWFALSE": lambda machine, value: machine.push(False),
    "MARK": lambda machine, value: machine.push(_StackMark()),
    "POP": lambda machine, value: machine.pop(),
    "POP_MARK": lambda machine, value: machine.to_mark(),
    "DUP": lambda machine, value: machine.duplicate(),
    "EMPTY_LIST": lambda machine, value: machine.collect([]),
    "LIST": lambda machine, value: machine.collect(machine.to_mark()),
    "APPEND": lambda machine, value: machine.extend(machine.take(1)),
    "APPENDS": lambda machine, value: machine.extend(machine.to_mark()),
    "EMPTY_DICT": lambda machine, value: machine.collect({}),
    "DICT": lambda machine, value: machine.dictionary(machine.to_mark()),
    "SETITEM": lambda machine, value: machine.set_items(machine.take(2)),
    "SETITEMS": lambda machine, value: machine.set_items(machine.to_mark()),
    "EMPTY_TUPLE": lambda machine, value: machine.collect(()),
    "TUPLE": lambda machine, value: machine.collect(tuple(machine.to_mark())),
    "TUPLE1": lambda machine, value: machine.collect(tuple(machine.take(1))),
    "TUPLE2": lambda machine, value: machine.collect(tuple(machine.take(2))),
    "TUPLE3": lambda machine, value: machine.collect(tuple(machine.take(3))),
    "EMPTY_SET": lambda machine, value: machine.other([]),
    "ADDITEMS": lambda machine, value: machine.add_items(),
    "FROZENSET": lambda machine, value: machine.other(machine.to_mark()),
    "GLOBAL": lambda machine, value: machine.name(*value.split(" ", 1)),
    "STACK_GLOBAL": lambda machine, value: machine.name(*machine.take(2)),
    "REDUCE": lambda machine, value: machine.call(),
    "BUILD": lambda machine, value: machine.build(),
    "BINPERSID": lambda machine, value: machine.storage(),
}
"""The action of each instruction that PyTorch writes, by its name."""


MAX_PICKLE = 16 << 20
"""Bytes of instructions, which name tensors and do not hold them."""

_WHOLE_OBJECT = "it holds a whole module or other objects, and only tensors are read"


def load(
    content: bytes,
    at: int,
    budget: ModelBudget,
    storages: dict[str, Stored],
    *,
    legacy: bool = False,
) -> tuple[Any, int]:
    """Returns the object of the pickle that begins at `at`, and where the pickle ends.

    `storages` receives all storages that it names. Raises ModelError for damage, for more than the
    budget allows, and for anything but plain numbers, strings, lists, dictionaries with names and
    tensors.
    """
    machine = PickleMachine(budget, storages, legacy)
    try:
        window = _Window(content, at)
        for action, argument in _instructions(window, budget):
            action(machine, argument)
        return machine.result(), window.tell()
    except DamagedError as error:
        raise ModelError(error.sentence.of(budget.name)) from None
    except IndexError:
        raise ModelError(f"{budget.name}: damaged: its pickle takes more than there is") from None


class _Window:
    """The bytes that a pickle may take, read without copying all of them."""

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
    """Returns the actions of all instructions with their arguments; one unknown refuses all."""
    found: list[tuple[Action, Any]] = []
    try:
        for instruction, argument, _ in pickletools.genops(cast(IO[bytes], window)):
            budget.take_steps()
            if instruction.name in ("NEWOBJ", "NEWOBJ_EX"):
                raise DamagedError(_WHOLE_OBJECT, _STATE_DICT)
            action = ACTIONS.get(instruction.name)
            if action is None:
                what = f"its pickle has the instruction {instruction.name}"
                raise DamagedError(what, _STATE_DICT)
            found.append((action, argument))
    except ModelError:
        raise
    except Exception as error:  # pickletools raises anything for damage
        raise DamagedError("damaged: not a whole pickle") from error
    return found
