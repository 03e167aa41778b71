"""Generates SPIR-V from the syntax of kernels.

Functions are inlined, loops marked for it are unrolled, and constants are folded, so that tests of
macros leave nothing behind, and arrays of registers are indexed by constants. Addresses are numbers
of 64 bits; pointers to variables exist while the code is generated only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from waifu2x.backends.vulkan.compiler import module as op
from waifu2x.backends.vulkan.compiler import syntax
from waifu2x.backends.vulkan.compiler.module import BYTES, Instruction, Module
from waifu2x.backends.vulkan.compiler.preprocessor import tokens_of
from waifu2x.backends.vulkan.compiler.syntax import (
    BOOL,
    FLOAT,
    INT,
    LONG,
    Declare,
    Function,
    KernelSyntaxError,
    Parser,
    Statements,
    Type,
)

_PREDEFINED: Mapping[str, str | int] = {"__OPENCL_VERSION__": 120}
_MOST_UNROLLED = 4096
_ARITHMETIC = {
    "+": (op.I_ADD, op.F_ADD),
    "-": (op.I_SUB, op.F_SUB),
    "*": (op.I_MUL, op.F_MUL),
    "/": (op.S_DIV, op.F_DIV),
}
# Signed and ordered; a number that is none is unequal to all.
_COMPARISONS = {
    "==": (170, 180),
    "!=": (171, 183),
    ">": (173, 186),
    ">=": (175, 190),
    "<": (177, 184),
    "<=": (179, 188),
}
# Functions of GLSL.std.450; of a number that is none, `fmax` and `fmin` make the other one.
_OF_FLOATS = {
    "exp": 27,
    "sqrt": 31,
    "rint": 2,
    "fma": 50,
    "fmax": 80,
    "fmin": 79,
    "clamp": 81,
}
_OF_INTEGERS = {"min": 39, "max": 42}
# x P(x^2) / Q(x^2) of up to 4, where erf(4) = 1 - 2e-8: Eigen's.
_ERF_P = (
    -2.72614225801306e-10,
    2.77068142495902e-08,
    -2.10102402082508e-06,
    -5.69250639462346e-05,
    -7.34990630326855e-04,
    -2.95459980854025e-03,
    -1.60960333262415e-02,
)
_ERF_Q = (
    -1.45660718464996e-05,
    -2.13374055278905e-04,
    -1.68282697438203e-03,
    -7.37332916720468e-03,
    -1.42647390514189e-02,
)
_SHORT = ("uchar", "ushort", "bool")
_NON_PRIVATE = 0x20
"""The flag of loads and stores of memory that other work-items see."""
_ALL = 0x7F800000
"""The bits of a float's exponent."""


class Register(NamedTuple):
    """A value in a register, or a constant, which has no number yet."""

    type: Type
    number: int = 0
    constant: float | None = None


class Variable(NamedTuple):
    """A variable, or an array of them."""

    number: int
    storage: int
    type: Type
    dimensions: Sequence[int]
    parts: dict[int, int]
    """The variables of an array of matrices, by their places."""


class Pointer(NamedTuple):
    """A place in memory: in a variable, or at an address."""

    type: Type
    """The type of what it points to."""
    root: Variable | None
    offset: Register
    """In elements of `type` from the start of the root; the address if there is none."""
    dimensions: Sequence[int] = ()
    """Those of the array that it points to."""


class _Unrolled:
    """The counter of an unrolled loop."""

    def __init__(self, value: Register) -> None:
        self.value = value


class _Loop(NamedTuple):
    """The loop around a statement: where `continue` leads to, 0 in an unrolled one."""

    label: int


class CompiledSource(NamedTuple):
    """A compiled file."""

    words: bytes
    codes: Mapping[str, str]
    """The types of each kernel's arguments: see `launch.Arguments`."""


def compile_kernels(text: str, macros: Mapping[str, str | int], most_pushed: int) -> CompiledSource:
    """Returns the program of a file of `kernels/`. Kernels whose arguments take more than
    `most_pushed` bytes read them at an address. Raises KernelSyntaxError."""
    functions = Parser(tokens_of(text, {**_PREDEFINED, **macros})).functions()
    matrix = None
    if "HAS_UNITS" in macros:
        matrix = int(macros["MATRIX_M"]), int(macros["MATRIX_N"]), int(macros["MATRIX_K"])
    module = Module(matrix)
    by_name = {function.name: function for function in functions}
    codes = {}
    for function in functions:
        if function.group:
            _Kernel(module, by_name, most_pushed).add(function)
            codes[function.name] = "".join(_code(each.type) for each in function.parameters)
    return CompiledSource(module.words(), codes)


def _code(own: Type) -> str:
    return "P" if own.space else "f" if own == FLOAT else "i"


def places_of(types: Sequence[Type]) -> tuple[list[int], int]:
    """Returns the offsets of a kernel's arguments, aligned as in C, and their bytes together."""
    offsets, end = [], 0
    for own in types:
        size = 8 if own.space else BYTES[own.scalar]
        end = -(-end // size) * size
        offsets.append(end)
        end += size
    return offsets, end


def _changed(node: Any) -> set[str]:
    """Returns the names of variables that are assigned to, or whose address is taken."""
    found: set[str] = set()
    if isinstance(node, syntax.Assign) and isinstance(node.target, syntax.Reference):
        found.add(node.target.name)
    if isinstance(node, syntax.Unary) and node.operator == "&":
        base = node.operand
        while isinstance(base, syntax.Index):
            base = base.base
        found.add(base.name)
    if isinstance(node, tuple | list):
        for part in node:
            if isinstance(part, tuple | list):
                found |= _changed(part)
    return found


def _returns(node: Any) -> int:
    """Returns how many return statements a piece of syntax has."""
    if isinstance(node, syntax.Return):
        return 1
    if not isinstance(node, tuple | list):
        return 0
    return sum(_returns(part) for part in node if isinstance(part, tuple | list))


def _leaves(block: Statements) -> bool:
    """Returns whether a block ends with `return` or `continue`."""
    if not block.statements:
        return False
    last = block.statements[-1]
    if isinstance(last, Statements):
        return _leaves(last)
    return isinstance(last, syntax.Return | syntax.Continue)


class _Kernel:
    """Generates the code of one kernel."""

    def __init__(self, module: Module, functions: Mapping[str, Function], most_pushed: int) -> None:
        self._module = module
        self._functions = functions
        self._most_pushed = most_pushed
        self._code: list[Instruction] = []
        self._locals: list[Instruction] = []
        self._globals: list[int] = []
        self._by_declaration: dict[int, Variable] = {}
        self._results: dict[str, Declare] = {}
        """The declarations of the variables for what functions return."""
        self._made: dict[int, tuple[str, Register, Register]] = {}
        """The sums and products of integers, by their numbers."""
        self._scopes: list[dict[str, Any]] = [{}]
        self._changed: set[str] = set()
        self._loops: list[_Loop] = []
        self._label = 0
        self._is_open = True
        """Whether the current block has no end yet."""
        self._risks = 0
        """How many instructions there are that must not run where their test fails."""
        self._result: Variable | None = None
        self._returned: Register | Pointer | None = None

    def add(self, kernel: Function) -> None:
        """Adds a kernel to the module."""
        start = self._module.new()
        self._begin(start)
        self._changed = _changed(kernel.body)
        types = [each.type for each in kernel.parameters]
        for parameter, value in zip(kernel.parameters, self._arguments(types), strict=True):
            self._bind(parameter, value)
        self._block(kernel.body.statements)
        inputs = [self._module.local_id(), self._module.group_id()]
        branch: list[Instruction] = [(op.BRANCH, start)]
        code = [*self._locals, *branch, *self._code]
        self._module.add_entry(kernel.name, kernel.group, inputs + self._globals, code)

    def _arguments(self, types: Sequence[Type]) -> Iterator[Register]:
        offsets, end = places_of(types)
        if end <= self._most_pushed:
            pushed = self._module.push_constants(types, offsets)
        else:
            pushed = self._module.push_constants([LONG], [0])
        self._globals.append(pushed)
        if end <= self._most_pushed:
            for number, own in enumerate(types):
                yield Register(own, self._load_member(pushed, number, own))
            return
        base = Register(LONG, self._load_member(pushed, 0, LONG))
        for offset, own in zip(offsets, types, strict=True):
            address = self._binary("+", base, Register(LONG, 0, offset))
            read = self._load(Pointer(LONG if own.space else own, None, address))
            yield Register(own, read.number)

    def _load_member(self, struct: int, member: int, own: Type) -> int:
        pointer = self._module.pointer(op.PUSH_CONSTANT, self._module.type(own))
        place = self._emit(op.ACCESS_CHAIN, pointer, struct, self._module.integer(member))
        return self._emit(op.LOAD, self._module.type(own), place)

    # Instructions

    def _emit(self, opcode: int, typed: int, *operands: int) -> int:
        number = self._module.new()
        self._code.append((opcode, typed, number, *operands))
        return number

    def _begin(self, label: int) -> None:
        self._code.append((op.LABEL, label))
        self._label, self._is_open = label, True

    def _branch(self, label: int) -> None:
        if self._is_open:
            self._code.append((op.BRANCH, label))
        self._is_open = False

    @contextmanager
    def _captured(self, label: int) -> Iterator[list[Instruction]]:
        """Yields a list for the code made inside, as of a block with that label."""
        outside, before, code = self._code, self._label, list[Instruction]()
        self._code, self._label = code, label
        yield code
        self._code, self._label = outside, before

    @contextmanager
    def _scope(self) -> Iterator[None]:
        self._scopes.append({})
        yield
        self._scopes.pop()

    def _call_extended(self, own: Type, function: int, *values: Register) -> Register:
        operands = [self._number(value) for value in values]
        typed = self._module.type(own)
        return Register(
            own, self._emit(op.EXT_INST, typed, self._module.extended, function, *operands)
        )

    # Values

    def _number(self, value: Register) -> int:
        """Returns the number of a value, which a constant gets here."""
        if value.constant is None:
            return value.number
        own, constant = value.type, value.constant
        if own.width > 1:
            part = self._number(value._replace(type=Type(own.scalar)))
            return self._module.declare(44, *[part] * own.width, typed=self._module.type(own))
        if own.scalar == "bool":
            return self._module.truth(bool(constant))
        if own.scalar == "float":
            return self._module.number(constant)
        return self._module.integer(int(constant), "long" if own == LONG or own.space else "int")

    def _convert(self, value: Register, own: Type) -> Register:
        """Converts a value, as C's assignment and casts do; a scalar becomes all of a vector."""
        if own.scalar == "half" and not own.space:  # registers hold floats
            own = Type("float", own.width)
        if value.type == own:
            return value
        if own.is_matrix:
            number = self._number(self._convert(value, FLOAT))
            return Register(own, self._emit(op.COMPOSITE_CONSTRUCT, self._module.type(own), number))
        if own.width > 1 and value.type.width == 1:
            part = self._convert(value, Type(own.scalar))
            if part.constant is not None:
                return part._replace(type=own)
            typed, number = self._module.type(own), self._number(part)
            return Register(own, self._emit(op.COMPOSITE_CONSTRUCT, typed, *[number] * own.width))
        if value.type.width != own.width:
            raise KernelSyntaxError(f"{value.type} is no {own}")
        source, target = value.type.scalar, own.scalar
        if value.constant is not None:
            return self._converted_constant(value.constant, own)
        if target == "bool":
            zero = Register(value.type, 0, 0)
            return self._compare("!=", value, zero)
        if source == "bool":
            one, zero = Register(INT, 0, 1), Register(INT, 0, 0)
            return self._convert(self._select(value, one, zero), own)
        if source == "float":
            made = LONG if target == "long" else INT
            opcode, own = op.F_TO_S, Type(made.scalar, own.width)
            converted = Register(own, self._emit(opcode, self._module.type(own), value.number))
            return converted._replace(type=Type(target, own.width))
        if target == "float":
            opcode = op.S_TO_F
        elif (source == "long") != (target == "long"):
            opcode = op.S_CONVERT
            if target in _SHORT:
                return self._convert(self._convert(value, INT), own)
        elif target in _SHORT:
            mask = Register(INT, 0, (1 << 8 * BYTES[target]) - 1)
            masked = self._emit(
                op.BITWISE_AND, self._module.type(INT), value.number, self._number(mask)
            )
            return Register(own, masked)
        else:  # registers hold short integers as int
            return value._replace(type=own)
        return Register(own, self._emit(opcode, self._module.type(own), self._number(value)))

    def _converted_constant(self, constant: float, own: Type) -> Register:
        if own.scalar == "float":
            return Register(own, 0, float(constant))
        if own.scalar == "bool":
            return Register(own, 0, bool(constant))
        whole = math.trunc(constant)
        if own.scalar in _SHORT:
            whole &= (1 << 8 * BYTES[own.scalar]) - 1
        return Register(own, 0, whole)

    def _alike(self, left: Register, right: Register) -> tuple[Register, Register]:
        """Converts both operands to the type in which C computes with them."""
        scalars = {left.type.scalar, right.type.scalar}
        scalar = next((name for name in ("float", "long") if name in scalars), "int")
        own = Type(scalar, max(left.type.width, right.type.width))
        return self._convert(left, own), self._convert(right, own)

    def _binary(self, operator: str, left: Register, right: Register) -> Register:
        left, right = self._alike(left, right)
        if operator in _COMPARISONS:
            return self._compare(operator, left, right)
        own = left.type
        is_float = own.scalar == "float"
        if not is_float:
            found = self._folded(operator, left, right)
            if found is not None:
                return found
            if operator in "/%":
                return self._divided(operator, left, right)
        opcode = _ARITHMETIC[operator][is_float]
        made = self._emit(opcode, self._module.type(own), self._number(left), self._number(right))
        if is_float and operator != "/":
            self._module.exact(made)
        elif not is_float:
            self._made[made] = (operator, left, right)
        return Register(own, made)

    def _folded(self, operator: str, left: Register, right: Register) -> Register | None:
        """Returns what is known of integers without computing, or None."""
        one, other = left.constant, right.constant
        if one is not None and other is not None:
            return Register(left.type, 0, syntax.folded(operator, int(one), int(other)))
        if (operator in "+-" and other == 0) or (operator in "*/" and other == 1):
            return left
        if (operator == "+" and one == 0) or (operator == "*" and one == 1):
            return right
        if (operator == "*" and 0 in (one, other)) or (operator == "%" and other == 1):
            return Register(left.type, 0, 0)
        return None

    def _divided(self, operator: str, left: Register, right: Register) -> Register:
        """Divides; the instruction for remainders leaves those of negative numbers open."""
        if right.constant is None:
            self._risks += 1
        typed = self._module.type(left.type)
        quotient = self._emit(op.S_DIV, typed, self._number(left), self._number(right))
        if operator == "/":
            return Register(left.type, quotient)
        whole = self._emit(op.I_MUL, typed, quotient, self._number(right))
        return Register(left.type, self._emit(op.I_SUB, typed, self._number(left), whole))

    def _exact(self, value: Register, factor: int) -> Register | None:
        """Returns a multiple of a factor divided by it; None if it is not known to be one."""
        if value.constant is not None:
            quotient, rest = divmod(int(value.constant), factor)
            return None if rest else value._replace(constant=quotient)
        operator, left, right = self._made.get(value.number, ("", value, value))
        if operator == "*":
            if (exact := self._exact(right, factor)) is not None:
                return self._binary("*", left, exact)
            exact = self._exact(left, factor)
            return None if exact is None else self._binary("*", exact, right)
        if not operator or (exact := self._exact(left, factor)) is None:
            return None
        other = self._exact(right, factor)
        return None if other is None else self._binary(operator, exact, other)

    def _split(self, value: Register, factor: int) -> tuple[Register, Register]:
        """Returns a place divided by a power of two, and the rest. The known multiples in a sum are
        taken out, so that places that differ by a constant still do."""
        zero = Register(INT, 0, 0)
        if (exact := self._exact(value, factor)) is not None:
            return exact, zero
        operator, left, right = self._made.get(value.number, ("", value, value))
        for one, other in ((left, right), (right, left)) if operator == "+" else ():
            if (exact := self._exact(one, factor)) is not None:
                quotient, rest = self._split(other, factor)
                return self._binary("+", exact, quotient), rest
        typed, number = self._module.type(INT), self._number(value)
        bits, mask = (self._module.integer(n) for n in (factor.bit_length() - 1, factor - 1))
        quotient = Register(INT, self._emit(op.SHIFT_RIGHT, typed, number, bits))
        return quotient, Register(INT, self._emit(op.BITWISE_AND, typed, number, mask))

    def _compare(self, operator: str, left: Register, right: Register) -> Register:
        own = Type("bool", left.type.width)
        if left.constant is not None and right.constant is not None:
            holds = syntax.folded(operator, left.constant, right.constant)  # type: ignore[arg-type]
            return Register(own, 0, bool(holds))
        opcode = _COMPARISONS[operator][left.type.scalar == "float"]
        typed = self._module.type(own)
        return Register(own, self._emit(opcode, typed, self._number(left), self._number(right)))

    def _select(self, test: Register, yes: Register, no: Register) -> Register:
        numbers = [self._number(each) for each in (test, yes, no)]
        return Register(yes.type, self._emit(op.SELECT, self._module.type(yes.type), *numbers))

    def _truth(self, node: Any) -> Register:
        return self._convert(self._value(node), BOOL)

    # Memory

    def _variable(self, declaration: Declare) -> Variable:
        """Returns the variable of a declaration, the same wherever it is inlined or unrolled."""
        found = self._by_declaration.get(id(declaration))
        if found is None:
            own = declaration.type
            if own.space not in ("", "global"):
                raise KernelSyntaxError(f"{declaration.name}: a pointer into variables is changed")
            typed = self._module.type(own)
            if declaration.dimensions and not own.is_matrix:
                typed = self._module.array(typed, math.prod(declaration.dimensions))
            if declaration.is_shared:
                pointer = self._module.pointer(op.WORKGROUP, typed)
                number = self._module.declare(op.VARIABLE, op.WORKGROUP, typed=pointer)
                self._globals.append(number)
                storage = op.WORKGROUP
            else:
                storage = op.PRIVATE
                # Drivers keep arrays of matrices in memory: each is a variable of its own.
                number = 0 if own.is_matrix and declaration.dimensions else self._local(typed)
            found = Variable(number, storage, own, declaration.dimensions, {})
            self._by_declaration[id(declaration)] = found
        return found

    def _local(self, typed: int) -> int:
        """Returns a new variable of a type."""
        number, pointer = self._module.new(), self._module.pointer(op.PRIVATE, typed)
        self._locals.append((op.VARIABLE, pointer, number, op.PRIVATE))
        return number

    def _place(self, pointer: Pointer) -> int:
        """Returns the number of a place in a variable."""
        root, offset = pointer.root, pointer.offset
        assert root is not None
        if root.type.is_matrix and root.dimensions:
            if offset.constant is None:
                raise KernelSyntaxError("a matrix of an array has no known place")
            number = int(offset.constant)
            if number not in root.parts:
                root.parts[number] = self._local(self._module.type(root.type))
            return root.parts[number]
        indices = []
        if pointer.type.width < root.type.width and not root.type.space:
            offset, part = self._split(offset, root.type.width)
            indices = [part]
        if root.dimensions:
            indices.insert(0, offset)
        if not indices:
            return root.number
        if any(index.constant is None for index in indices):
            self._risks += 1
        typed = self._module.pointer(root.storage, self._module.type(pointer.type))
        return self._emit(op.ACCESS_CHAIN, typed, root.number, *map(self._number, indices))

    def _address(self, pointer: Pointer) -> tuple[int, int]:
        """Returns the number of a place at an address, and its alignment."""
        self._risks += 1
        own = pointer.type
        typed = self._module.pointer(op.GLOBAL, self._module.type(own))
        size = 8 if own.space else BYTES[own.scalar] * own.width
        return self._emit(op.U_TO_PTR, typed, self._number(pointer.offset)), size

    def _load(self, pointer: Pointer) -> Register:
        own = pointer.type
        if pointer.dimensions:
            raise KernelSyntaxError("an array is no value")
        typed = self._module.type(own)
        if pointer.root is None:
            place, size = self._address(pointer)
            number = self._emit(op.LOAD, typed, place, 2, size)
        else:
            number = self._emit(op.LOAD, typed, self._place(pointer), *self._access(pointer.root))
        if own.scalar == "half" and not own.space:
            own = Type("float", own.width)
            number = self._emit(op.F_CONVERT, self._module.type(own), number)
        if own.scalar in ("uchar", "ushort") and not own.space:
            number = self._emit(op.U_CONVERT, self._module.type(INT), number)
        return Register(own, number)

    def _store(self, pointer: Pointer, value: Register) -> None:
        own = pointer.type
        number = self._number(self._convert(value, own))
        if own.scalar in ("uchar", "ushort"):
            number = self._emit(op.U_CONVERT, self._module.type(own), number)
        if own.scalar == "half" and not own.space:
            number = self._emit(op.F_CONVERT, self._module.type(own), number)
            self._module.nearest(number)
        self._risks += 1
        if pointer.root is None:
            place, size = self._address(pointer)
            self._code.append((op.STORE, place, number, 2, size))
        else:
            access = self._access(pointer.root)
            self._code.append((op.STORE, self._place(pointer), number, *access))

    def _access(self, root: Variable) -> tuple[int, ...]:
        """Returns how the other model of memory says that barriers order loads and stores."""
        is_ordered = root.storage == op.WORKGROUP and self._module.matrix
        return (_NON_PRIVATE,) if is_ordered else ()

    def _moved(self, pointer: Pointer, by: Register) -> Pointer:
        """Returns a pointer `by` elements further."""
        step = math.prod(pointer.dimensions)
        if pointer.root is None:
            step *= BYTES[pointer.type.scalar] * pointer.type.width
            by = self._convert(by, LONG)
        by = self._binary("*", by, Register(by.type, 0, step))
        return pointer._replace(offset=self._binary("+", pointer.offset, by))

    def _cast_pointer(self, pointer: Pointer, own: Type) -> Pointer:
        width, before = own.width, pointer.type.width
        if pointer.root is None or width == before:
            return pointer._replace(type=own)
        if width > pointer.root.type.width:
            raise KernelSyntaxError("a variable is read as a wider vector")
        if width > before:
            return pointer._replace(
                type=own, offset=self._split(pointer.offset, width // before)[0]
            )
        offset = self._binary("*", pointer.offset, Register(INT, 0, before // width))
        return pointer._replace(type=own, offset=offset)

    # Expressions

    def _value(self, node: Any) -> Register:
        found = self._evaluate(node)
        if isinstance(found, Pointer) or found.type.space:
            raise KernelSyntaxError(f"a pointer is no value: {node}")
        return found

    def _pointer(self, node: Any) -> Pointer:
        found = self._evaluate(node)
        if isinstance(found, Register):
            if not found.type.space:
                raise KernelSyntaxError(f"no pointer: {node}")
            return Pointer(found.type.pointed, None, found._replace(type=LONG))
        return found

    def _evaluate(self, node: Any) -> Register | Pointer:
        """Returns the value of an expression, or the pointer that it is."""
        evaluate: Callable[[Any], Register | Pointer] = getattr(
            self, f"_evaluate_{type(node).__name__.lower()}"
        )
        return evaluate(node)

    def _evaluate_literal(self, node: syntax.Literal) -> Register:
        return Register(node.type, 0, node.value)

    def _find(self, name: str) -> Any:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        raise KernelSyntaxError(f"unknown name {name}")

    def _evaluate_reference(self, node: syntax.Reference) -> Register | Pointer:
        found = self._find(node.name)
        if isinstance(found, _Unrolled):
            return found.value
        if not isinstance(found, Variable):
            return found  # type: ignore[no-any-return]
        place = Pointer(found.type, found, Register(INT, 0, 0), tuple(found.dimensions[1:]))
        return place if found.dimensions else self._load(place)

    def _target(self, node: Any) -> Pointer:
        """Returns the place that an expression stands for."""
        if isinstance(node, syntax.Reference):
            found = self._find(node.name)
            if not isinstance(found, Variable):
                raise KernelSyntaxError(f"{node.name} is no variable")
            return Pointer(found.type, found, Register(INT, 0, 0))
        if isinstance(node, syntax.Index):
            pointer = self._moved(self._pointer(node.base), self._value(node.index))
            return pointer._replace(dimensions=pointer.dimensions[1:])
        if isinstance(node, syntax.Unary) and node.operator == "*":
            return self._pointer(node.operand)
        raise KernelSyntaxError(f"no place: {node}")

    def _evaluate_index(self, node: syntax.Index) -> Register | Pointer:
        base = self._pointer(node.base)
        pointer = self._moved(base, self._value(node.index))
        if base.dimensions:
            return pointer._replace(dimensions=base.dimensions[1:])
        return self._load(pointer)

    def _evaluate_unary(self, node: syntax.Unary) -> Register | Pointer:
        if node.operator == "&":
            return self._target(node.operand)
        if node.operator == "*":
            return self._load(self._pointer(node.operand))
        if node.operator == "!":
            truth = self._truth(node.operand)
            if truth.constant is not None:
                return truth._replace(constant=not truth.constant)
            typed = self._module.type(BOOL)
            return Register(BOOL, self._emit(op.LOGICAL_NOT, typed, truth.number))
        value = self._value(node.operand)
        if value.constant is not None:
            return value._replace(constant=-value.constant)
        if value.type.scalar in _SHORT:
            value = self._convert(value, INT)
        opcode = op.F_NEGATE if value.type.scalar == "float" else op.S_NEGATE
        return Register(value.type, self._emit(opcode, self._module.type(value.type), value.number))

    def _evaluate_binary(self, node: syntax.Binary) -> Register | Pointer:
        if node.operator in ("&&", "||"):
            is_and = node.operator == "&&"
            yes = node.right if is_and else syntax.Literal(1, INT)
            no = syntax.Literal(0, INT) if is_and else node.right
            return self._chosen(node.left, yes, no, self._truth)
        left = self._evaluate(node.left)
        right = self._value(node.right)
        if isinstance(left, Register) and left.type.space:
            left = Pointer(left.type.pointed, None, left._replace(type=LONG))
        if isinstance(left, Pointer):
            by = (
                right
                if node.operator == "+"
                else self._binary("-", Register(right.type, 0, 0), right)
            )
            return self._moved(left, by)
        return self._binary(node.operator, left, right)

    def _evaluate_ternary(self, node: syntax.Ternary) -> Register:
        return self._chosen(node.test, node.yes, node.no, self._value)

    def _chosen(self, test: Any, yes: Any, no: Any, value: Callable[[Any], Register]) -> Register:
        """Returns one of two values; a vector of tests chooses each part for itself. Only the code
        of the one chosen runs, unless neither can do harm."""
        truth = self._value(test)
        if truth.type.width > 1:
            return self._select(truth, *self._alike(value(yes), value(no)))
        truth = self._convert(truth, BOOL)
        if truth.constant is not None:
            return value(yes if truth.constant else no)
        labels = self._module.new(), self._module.new(), self._module.new()
        risks = self._risks
        codes, values, ends = [], [], []
        for node, label in zip((yes, no), labels, strict=False):
            with self._captured(label) as code:
                values.append(value(node))
                ends.append(self._label)
            codes.append(code)
        for number, other in ((0, 1), (1, 0)):  # one may make the other wider, too
            with self._captured(ends[number]) as code:
                values[number] = self._alike_in(values[number], values[other])
            codes[number] += code
        own = values[0].type
        if self._risks == risks:
            self._code += codes[0] + codes[1]
            return self._select(truth, *values)
        self._code.append((op.SELECTION_MERGE, labels[2], 0))
        self._code.append((op.BRANCH_CONDITIONAL, truth.number, labels[0], labels[1]))
        numbers = [self._number(each) for each in values]
        for label, code in zip(labels, codes, strict=False):
            self._code += [(op.LABEL, label), *code, (op.BRANCH, labels[2])]
        self._begin(labels[2])
        sources = (numbers[0], ends[0], numbers[1], ends[1])
        return Register(own, self._emit(op.PHI, self._module.type(own), *sources))

    def _alike_in(self, value: Register, other: Register) -> Register:
        return value if value.type == other.type else self._alike(value, other)[0]

    def _evaluate_assign(self, node: syntax.Assign) -> Register | Pointer:
        if isinstance(node.target, syntax.Reference):
            found = self._find(node.target.name)
            if isinstance(found, _Unrolled):
                value = self._value(node.value)
                if node.operator:
                    value = self._binary(node.operator, found.value, value)
                found.value = value
                return value
        place = self._target(node.target)
        if place.type.space:
            return self._assign_pointer(node, place)
        value = self._value(node.value)
        before = value
        if node.operator:
            before = self._load(place)
            value = self._binary(node.operator, before, value)
        value = self._convert(value, place.type)
        self._store(place, value)
        return before if node.is_after else value

    def _assign_pointer(self, node: syntax.Assign, place: Pointer) -> Pointer:
        """Assigns to a variable that holds an address."""
        if not node.operator:
            before = after = self._pointer(node.value)
        else:
            held = self._load(place)
            before = Pointer(place.type.pointed, None, held._replace(type=LONG))
            by = self._value(node.value)
            if node.operator == "-":
                by = self._binary("-", Register(by.type, 0, 0), by)
            after = self._moved(before, by)
        self._store(place._replace(type=LONG), after.offset)
        return before if node.is_after else after

    def _evaluate_member(self, node: syntax.Member) -> Register:
        value = self._value(node.base)
        own = Type(value.type.scalar)
        typed, part = self._module.type(own), "xyzw".index(node.field)
        return Register(own, self._emit(op.COMPOSITE_EXTRACT, typed, self._number(value), part))

    def _evaluate_cast(self, node: syntax.Cast) -> Register | Pointer:
        if node.type.space:
            return self._cast_pointer(self._pointer(node.operand), node.type.pointed)
        return self._convert(self._value(node.operand), node.type)

    # Functions

    def _evaluate_functioncall(self, node: syntax.FunctionCall) -> Register | Pointer:
        name = node.name
        if name in self._functions:
            return self._inlined(self._functions[name], node.arguments)
        if name in ("barrier", "sub_group_barrier"):
            # Acquire and release the group's memory; the other model also makes it seen.
            scope = 2 if name == "barrier" else 3
            semantics = 0x6108 if self._module.matrix else 0x108
            numbers = [self._module.integer(each) for each in (scope, scope, semantics)]
            self._code.append((op.BARRIER, *numbers))
            self._risks += 1
            return Register(Type("void"))
        if name in ("get_sub_group_id", "get_sub_group_local_id"):
            is_lane = "local" in name
            variable = self._module.lane_id() if is_lane else self._module.subgroup_id()
            if variable not in self._globals:
                self._globals.append(variable)
            return Register(INT, self._emit(op.LOAD, self._module.type(INT), variable))
        if name in ("get_local_id", "get_group_id"):
            variable = self._module.local_id() if "local" in name else self._module.group_id()
            typed = self._module.pointer(op.INPUT, self._module.type(INT))
            direction = self._number(self._value(node.arguments[0]))
            place = self._emit(op.ACCESS_CHAIN, typed, variable, direction)
            return Register(INT, self._emit(op.LOAD, self._module.type(INT), place))
        if name == "sizeof":
            own = self._pointer(node.arguments[0].operand).type
            return Register(INT, 0, BYTES[own.scalar] * own.width)
        if name in ("load_a", "load_b", "store_c"):
            return self._move_matrix(name, *node.arguments)
        values = [self._value(argument) for argument in node.arguments]
        if name == "multiply_matrices":
            own = values[2].type
            numbers = [value.number for value in values]
            made = self._emit(op.MATRIX_MULTIPLY, self._module.type(own), *numbers)
            return Register(own, made)
        if name == "isfinite":
            return self._is_finite(self._convert(values[0], FLOAT))
        if name in _OF_INTEGERS and len(values) == 2:
            left, right = self._alike(*values)
            return self._call_extended(left.type, _OF_INTEGERS[name], left, right)
        own = Type("float", max(value.type.width for value in values))
        values = [self._convert(value, own) for value in values]
        if name == "tanh":
            return self._tanh(values[0])
        if name == "erf":
            return self._erf(values[0])
        if name not in _OF_FLOATS:
            raise KernelSyntaxError(f"unknown function {name}")
        return self._call_extended(own, _OF_FLOATS[name], *values)

    def _move_matrix(self, name: str, place: Any, step: Any, stored: Any = None) -> Register:
        """Loads or stores a matrix; `step` is from a row to the next, in what `place` points to."""
        pointer = self._pointer(place)
        if pointer.root is None:
            number, size = self._address(pointer)
            access: tuple[int, ...] = (2, size)
        else:
            number, access = self._place(pointer), self._access(pointer.root)
        stride, by_rows = self._number(self._value(step)), self._module.integer(0)
        self._risks += 1
        if stored is not None:
            value = self._value(stored).number
            self._code.append((op.MATRIX_STORE, number, value, by_rows, stride, *access))
            return Register(Type("void"))
        own = Type("matrix_" + name[-1])
        typed = self._module.type(own)
        return Register(own, self._emit(op.MATRIX_LOAD, typed, number, by_rows, stride, *access))

    def _is_finite(self, value: Register) -> Register:
        """Tests the exponent's bits: drivers may take every number for finite."""
        typed = self._module.type(INT)
        bits = self._emit(op.BITCAST, typed, self._number(value))
        exponent = Register(
            INT, self._emit(op.BITWISE_AND, typed, bits, self._module.integer(_ALL))
        )
        return self._compare("!=", exponent, Register(INT, 0, _ALL))

    def _tanh(self, value: Register) -> Register:
        """Returns 1 - 2 / (exp(2 x) + 1): that of drivers may overflow."""
        one, two = (Register(FLOAT, 0, number) for number in (1.0, 2.0))
        power = self._call_extended(value.type, _OF_FLOATS["exp"], self._binary("*", value, two))
        return self._binary("-", one, self._binary("/", two, self._binary("+", power, one)))

    def _erf(self, value: Register) -> Register:
        own = value.type
        ends = (self._convert(Register(FLOAT, 0, each), own) for each in (-4.0, 4.0))
        near = self._call_extended(own, _OF_FLOATS["clamp"], value, *ends)
        square = self._binary("*", near, near)

        def polynomial(factors: Sequence[float]) -> Register:
            made, *rest = (self._convert(Register(FLOAT, 0, each), own) for each in factors)
            for factor in rest:
                made = self._call_extended(own, _OF_FLOATS["fma"], made, square, factor)
            return made

        above = self._binary("*", near, polynomial(_ERF_P))
        return self._binary("/", above, polynomial(_ERF_Q))

    def _inlined(self, function: Function, arguments: Sequence[Any]) -> Register | Pointer:
        """Generates a function's body in place of its call."""
        values = [self._evaluate(argument) for argument in arguments]
        outside = self._scopes, self._changed, self._loops, self._result, self._returned
        self._scopes, self._changed = [{}], _changed(function.body)
        self._loops, self._returned, self._result = [], None, None
        if _returns(function.body) > 1:
            own = self._results.setdefault(
                function.name, Declare(function.type, "", (), None, False)
            )
            self._result = self._variable(own)
        for parameter, value in zip(function.parameters, values, strict=True):
            if isinstance(value, Register) and not parameter.type.space:
                value = self._convert(value, parameter.type)
            self._bind(parameter, value)
        self._block(function.body.statements)
        made = self._returned or Register(Type("void"))
        if self._result is not None:
            made = self._load(Pointer(function.type, self._result, Register(INT, 0, 0)))
        elif isinstance(made, Register) and function.type.scalar != "void":
            made = self._convert(made, function.type)
        self._scopes, self._changed, self._loops, self._result, self._returned = outside
        return made

    def _bind(self, declaration: Declare, value: Register | Pointer) -> None:
        """Names a value, or a new variable with it if the name is assigned to."""
        name = declaration.name
        if name not in self._changed:
            self._scopes[-1][name] = value
            return
        variable = self._scopes[-1][name] = self._variable(declaration)
        place = Pointer(declaration.type, variable, Register(INT, 0, 0))
        if declaration.type.space:
            place = place._replace(type=LONG)
            value = (value.offset if isinstance(value, Pointer) else value)._replace(type=LONG)
        assert isinstance(value, Register)
        self._store(place, value)

    # Statements

    def _block(self, statements: Sequence[Any]) -> None:
        for number, statement in enumerate(statements):
            if not self._is_open:
                return
            rest = statements[number + 1 :]
            if isinstance(statement, syntax.If) and _leaves(statement.yes) and rest:
                # The statements behind it are done otherwise.
                no = Statements([*statement.no.statements, *rest])
                self._statement_if(statement._replace(no=no))
                return
            if isinstance(statement, Statements) and _leaves(statement):
                self._block([*statement.statements])
                return
            if isinstance(statement, syntax.Return | syntax.Continue):
                self._leave(statement)
                return
            self._statement(statement)

    def _leave(self, statement: Any) -> None:
        """Generates a jump that ends its function's or loop's code, so that none is needed."""
        if isinstance(statement, syntax.Continue):
            if self._loops[-1].label:
                self._branch(self._loops[-1].label)
            return
        if statement.value is None:
            return
        self._returned = self._evaluate(statement.value)
        if self._result is not None:
            assert isinstance(self._returned, Register)
            place = Pointer(self._result.type, self._result, Register(INT, 0, 0))
            self._store(place, self._returned)

    def _statement(self, statement: Any) -> None:
        if isinstance(statement, Statements):
            with self._scope():
                self._block(statement.statements)
        elif isinstance(statement, syntax.If):
            self._statement_if(statement)
        elif isinstance(statement, syntax.For):
            with self._scope():
                self._statement_for(statement)
        elif isinstance(statement, Declare):
            self._declare(statement)
        else:
            self._evaluate(statement)

    def _declare(self, statement: Declare) -> None:
        name, value = statement.name, statement.value
        if not statement.dimensions:
            if value is not None:
                found = self._evaluate(value)
                if isinstance(found, Register) and not statement.type.space:
                    found = self._convert(found, statement.type)
                self._bind(statement, found)
                return
            if name not in self._changed:
                raise KernelSyntaxError(f"{name} gets no value")
        variable = self._scopes[-1][name] = self._variable(statement)
        for number, element in enumerate(value or ()):
            place = Pointer(variable.type, variable, Register(INT, 0, number))
            self._store(place, self._value(element))

    def _statement_if(self, statement: syntax.If) -> None:
        truth = self._truth(statement.test)
        if truth.constant is not None:
            with self._scope():
                self._block((statement.yes if truth.constant else statement.no).statements)
            return
        self._risks += 1
        labels = self._module.new(), self._module.new(), self._module.new()
        self._code.append((op.SELECTION_MERGE, labels[2], 0))
        self._code.append((op.BRANCH_CONDITIONAL, truth.number, labels[0], labels[1]))
        for label, block in zip(labels, (statement.yes, statement.no), strict=False):
            self._begin(label)
            with self._scope():
                self._block(block.statements)
            self._branch(labels[2])
        self._begin(labels[2])

    def _statement_for(self, loop: syntax.For) -> None:
        if loop.is_unrolled:
            self._unroll(loop)
            return
        self._changed |= _changed(loop)
        self._block(loop.start.statements)
        self._risks += 1
        header, test, body, step, end = (self._module.new() for _ in range(5))
        self._branch(header)
        self._begin(header)
        self._code.append((op.LOOP_MERGE, end, step, 2))
        self._branch(test)
        self._begin(test)
        truth = self._truth(loop.test)
        self._code.append((op.BRANCH_CONDITIONAL, self._number(truth), body, end))
        self._begin(body)
        self._loops.append(_Loop(step))
        with self._scope():
            self._block(loop.body.statements)
        self._loops.pop()
        self._branch(step)
        self._begin(step)
        for each in loop.step:
            self._evaluate(each)
        self._branch(header)
        self._begin(end)

    def _unroll(self, loop: syntax.For) -> None:
        """Generates a loop's body once for each value of its counter, which must be known."""
        (counter,) = loop.start.statements
        held = self._scopes[-1][counter.name] = _Unrolled(self._value(counter.value))
        for _ in range(_MOST_UNROLLED):
            truth = self._truth(loop.test)
            if truth.constant is None or held.value.constant is None:
                raise KernelSyntaxError("a loop that is to be unrolled has no known end")
            if not truth.constant:
                return
            self._loops.append(_Loop(0))
            with self._scope():
                self._block(loop.body.statements)
            self._loops.pop()
            for each in loop.step:
                self._evaluate(each)
        raise KernelSyntaxError("a loop that is to be unrolled is too long")
