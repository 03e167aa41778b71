"""Builds modules of SPIR-V 1.5: types, constants and instructions, each with its number."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence

from waifu2x.backends.vulkan.compiler.syntax import Type

# Instructions, by the names of the specification without "Op".
EXT_INST, CAPABILITY, TYPE_STRUCT = 12, 17, 30
CONSTANT, FUNCTION, FUNCTION_END, VARIABLE, LOAD, STORE, ACCESS_CHAIN = 43, 54, 56, 59, 61, 62, 65
DECORATE, MEMBER_DECORATE, COMPOSITE_CONSTRUCT, COMPOSITE_EXTRACT = 71, 72, 80, 81
F_TO_S, S_TO_F, U_CONVERT, S_CONVERT, F_CONVERT, U_TO_PTR = 110, 111, 113, 114, 115, 120
BITCAST = 124
S_NEGATE, F_NEGATE, I_ADD, F_ADD, I_SUB, F_SUB, I_MUL, F_MUL = (
    126,
    127,
    128,
    129,
    130,
    131,
    132,
    133,
)
S_DIV, F_DIV, LOGICAL_EQUAL, LOGICAL_OR, LOGICAL_AND, LOGICAL_NOT = 135, 136, 164, 166, 167, 168
SELECT, I_EQUAL, F_EQUAL, SHIFT_RIGHT, BITWISE_AND = 169, 170, 180, 195, 199
BARRIER, PHI, LOOP_MERGE, SELECTION_MERGE = 224, 245, 246, 247
LABEL, BRANCH, BRANCH_CONDITIONAL, RETURN = 248, 249, 250, 253
MATRIX_LOAD, MATRIX_STORE, MATRIX_MULTIPLY = 4457, 4458, 4459

# Storage classes.
INPUT, WORKGROUP, PRIVATE, PUSH_CONSTANT, GLOBAL = 1, 4, 7, 9, 5349

BYTES = {"int": 4, "long": 8, "float": 4, "half": 2, "uchar": 1, "ushort": 2}
_SHADER, _FLOAT16, _INT64, _SUBGROUPS, _STORAGE16, _STORAGE8 = 1, 9, 11, 61, 4433, 4448
_MEMORY_MODEL, _ADDRESSES, _MATRICES = 5345, 5347, 6022
_SUBGROUP_SCOPE = 3
_WIDTHS = {"int": 32, "long": 64, "uchar": 8, "ushort": 16}
_VERSION = 0x00010500
_NO_CONTRACTION, _BUILT_IN, _OFFSET, _BLOCK, _ROUNDING = 42, 11, 35, 2, 39
_LOCAL_INVOCATION_ID, _WORKGROUP_ID, _SUBGROUP_ID, _SUBGROUP_INVOCATION_ID = 27, 26, 40, 41

Word = int
Instruction = tuple[int, ...]


def text(value: str) -> list[int]:
    """Returns the words of a string."""
    data = value.encode() + b"\0"
    return list(array("I", data + b"\0" * (-len(data) % 4)))


class Module:
    """A module under way. Methods return the numbers of what they make, the same for the same."""

    def __init__(self, matrix: tuple[int, int, int] | None = None) -> None:
        """`matrix`: rows of a product of matrices, its columns, and the length of its sums. With
        them, memory has another model."""
        self.matrix = matrix
        self._last = 0
        self._numbers: dict[object, int] = {}
        self._capabilities = {_SHADER, _INT64, _ADDRESSES}
        if matrix:
            self._capabilities |= {_FLOAT16, _SUBGROUPS, _MEMORY_MODEL, _MATRICES}
        self._decorations: list[Instruction] = []
        self._declared: list[Instruction] = []
        self._entries: list[tuple[str, int, int, list[int]]] = []
        self._code: list[Instruction] = []
        self.extended = self.new()

    def new(self) -> int:
        """Returns a number that is not used yet."""
        self._last += 1
        return self._last

    def declare(self, opcode: int, *words: int, typed: int = 0) -> int:
        """Returns the type, constant or variable of an instruction; `typed` is its type, if any."""
        key = (opcode, typed, *words)
        if key not in self._numbers or opcode == VARIABLE:
            number = self._numbers[key] = self.new()
            self._declared.append((opcode, *([typed] if typed else []), number, *words))
        return self._numbers[key]

    def type(self, own: Type) -> int:
        """Returns the type of a value in memory."""
        if own.space:
            own = Type("long")
        if own.width > 1:
            return self.declare(23, self.type(Type(own.scalar)), own.width)
        if own.scalar == "void":
            return self.declare(19)
        if own.scalar == "bool":
            return self.declare(20)
        if own.is_matrix:
            return self._matrix("abc".index(own.scalar[-1]))
        if own.scalar in ("float", "half"):
            self._capabilities |= {_STORAGE16} if own.scalar == "half" else set()
            return self.declare(22, 8 * BYTES[own.scalar])
        self._capabilities |= {"uchar": {_STORAGE8}, "ushort": {_STORAGE16}}.get(own.scalar, set())
        return self.declare(21, _WIDTHS[own.scalar], 0)

    def _matrix(self, use: int) -> int:
        assert self.matrix is not None
        m, n, k = self.matrix
        rows, columns = ((m, k), (k, n), (m, n))[use]
        part = self.type(Type("float" if use == 2 else "half"))
        return self.declare(4456, part, *map(self.integer, (_SUBGROUP_SCOPE, rows, columns, use)))

    def pointer(self, storage: int, pointed: int) -> int:
        """Returns the type of a pointer."""
        return self.declare(32, storage, pointed)

    def integer(self, value: int, scalar: str = "int") -> int:
        """Returns a constant."""
        words = [value & 0xFFFFFFFF]
        if scalar == "long":
            words.append(value >> 32 & 0xFFFFFFFF)
        return self.declare(CONSTANT, *words, typed=self.type(Type(scalar)))

    def number(self, value: float) -> int:
        """Returns a constant."""
        (word,) = struct.unpack("<I", struct.pack("<f", value))
        return self.declare(CONSTANT, word, typed=self.type(Type("float")))

    def truth(self, value: bool) -> int:
        """Returns a constant."""
        return self.declare(41 if value else 42, typed=self.type(Type("bool")))

    def array(self, element: int, count: int) -> int:
        """Returns the type of an array without a layout in memory."""
        return self.declare(28, element, self.integer(count))

    def built_in(self, name: int, count: int = 3) -> int:
        """Returns the variable of three numbers, or one, that the device sets."""
        typed = self.type(Type("int"))
        if count > 1:
            typed = self.declare(23, typed, count)
        found = self._numbers.get(("built in", name))
        if found is None:
            found = self.declare(VARIABLE, INPUT, typed=self.pointer(INPUT, typed))
            self._numbers["built in", name] = found
            self._decorations.append((DECORATE, found, _BUILT_IN, name))
        return found

    def local_id(self) -> int:
        """Returns the variable of a work-item's place in its group."""
        return self.built_in(_LOCAL_INVOCATION_ID)

    def group_id(self) -> int:
        """Returns the variable of a group's number."""
        return self.built_in(_WORKGROUP_ID)

    def subgroup_id(self) -> int:
        """Returns the variable of the number of a subgroup in its group."""
        return self.built_in(_SUBGROUP_ID, 1)

    def lane_id(self) -> int:
        """Returns the variable of a work-item's place in its subgroup."""
        return self.built_in(_SUBGROUP_INVOCATION_ID, 1)

    def push_constants(self, members: Sequence[Type], offsets: Sequence[int]) -> int:
        """Returns the variable of a kernel's arguments."""
        struct_type = self.new()
        self._declared.append((TYPE_STRUCT, struct_type, *map(self.type, members)))
        self._decorations.append((DECORATE, struct_type, _BLOCK))
        for number, offset in enumerate(offsets):
            self._decorations.append((MEMBER_DECORATE, struct_type, number, _OFFSET, offset))
        pointer = self.pointer(PUSH_CONSTANT, struct_type)
        return self.declare(VARIABLE, PUSH_CONSTANT, typed=pointer)

    def exact(self, number: int) -> None:
        """Has a product or a sum rounded by itself, wherever it stands."""
        self._decorations.append((DECORATE, number, _NO_CONTRACTION))

    def nearest(self, number: int) -> None:
        """Has a number of 16 bits that is stored rounded to the nearest, half to even."""
        self._decorations.append((DECORATE, number, _ROUNDING, 0))

    def add_entry(
        self, name: str, group: int, variables: list[int], code: list[Instruction]
    ) -> None:
        """Adds a kernel with the variables that it uses and its code behind the first label."""
        void = self.type(Type("void"))
        own, label = self.new(), self.new()
        self._entries.append((name, own, group, variables))
        self._code += [(FUNCTION, void, own, 0, self.declare(33, void)), (LABEL, label)]
        self._code += [*code, (RETURN,), (FUNCTION_END,)]

    def words(self) -> bytes:
        """Returns the module."""
        head: list[Instruction] = [(CAPABILITY, each) for each in sorted(self._capabilities)]
        if self.matrix:
            head.append((10, *text("SPV_KHR_cooperative_matrix")))
        head += [(11, self.extended, *text("GLSL.std.450")), (14, 5348, 3 if self.matrix else 1)]
        for name, number, _, variables in self._entries:
            head.append((15, 5, number, *text(name), *variables))
        for _, number, group, _ in self._entries:
            head.append((16, number, 17, group, 1, 1))
        words = array("I", [0x07230203, _VERSION, 0, self._last + 1, 0])
        for part in (head, self._decorations, self._declared, self._code):
            for opcode, *operands in part:
                words.append(len(operands) + 1 << 16 | opcode)
                words.extend(operands)
        return words.tobytes()
