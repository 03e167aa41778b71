"""Parses the part of OpenCL C that kernels are written in."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple


class KernelSyntaxError(Exception):
    """Says what in a kernel is not of the language. Never reaches users: see `build`."""


class Type(NamedTuple):
    """A scalar, a vector, or what a pointer points to."""

    scalar: str
    width: int = 1
    """Scalars of a vector."""
    space: str = ""
    """For a pointer, "global", "local" or "private": where it points to."""

    @property
    def is_matrix(self) -> bool:
        """Whether a subgroup holds it together."""
        return self.scalar in MATRICES

    @property
    def pointed(self) -> Type:
        """The type that it points to."""
        return Type(self.scalar, self.width)


INT, LONG, FLOAT, BOOL = Type("int"), Type("long"), Type("float"), Type("bool")
_SCALARS = {
    "void": "void",
    "char": "uchar",
    "bool": "bool",
    "int": "int",
    "long": "long",
    "size_t": "long",
    "uchar": "uchar",
    "ushort": "ushort",
    "float": "float",
    "half": "half",
}
MATRICES = ("matrix_a", "matrix_b", "matrix_c")
"""The left and the right factor of a product of matrices, and its sums."""
TYPES = {name: Type(scalar) for name, scalar in _SCALARS.items()} | {
    f"{scalar}{width}": Type(scalar, width) for scalar in ("float", "half") for width in (2, 4)
}
TYPES |= {name: Type(name) for name in MATRICES}
_QUALIFIERS = {"const", "restrict", "__global", "__local", "inline"}
_SPACES = {"__global": "global", "__local": "local"}


class Literal(NamedTuple):
    value: float
    type: Type


class Reference(NamedTuple):
    name: str


class Unary(NamedTuple):
    operator: str
    """`-`, `!`, `*` or `&`."""
    operand: Any


class Binary(NamedTuple):
    operator: str
    left: Any
    right: Any


class Ternary(NamedTuple):
    test: Any
    yes: Any
    no: Any


class Assign(NamedTuple):
    operator: str
    """That of a compound assignment; empty for a plain one."""
    target: Any
    value: Any
    is_after: bool = False
    """Whether its value is that before the assignment, as of `x++`."""


class FunctionCall(NamedTuple):
    name: str
    arguments: Sequence[Any]


class Index(NamedTuple):
    base: Any
    index: Any


class Member(NamedTuple):
    base: Any
    field: str


class Cast(NamedTuple):
    type: Type
    operand: Any


class Declare(NamedTuple):
    type: Type
    name: str
    dimensions: Sequence[int]
    value: Any
    """An expression, a list of them for an array, or None."""
    is_shared: bool
    """Whether the group's work-items share it."""


class If(NamedTuple):
    test: Any
    yes: Statements
    no: Statements


class For(NamedTuple):
    start: Statements
    test: Any
    step: Sequence[Any]
    body: Statements
    is_unrolled: bool


class Return(NamedTuple):
    value: Any


class Continue(NamedTuple):
    pass


class Statements(NamedTuple):
    statements: Sequence[Any]


class Function(NamedTuple):
    name: str
    type: Type
    parameters: Sequence[Declare]
    body: Statements
    group: int
    """Work-items of a group of a kernel; 0 for any other function."""


_LEVELS = (
    ("||",),
    ("&&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
    ("+", "-"),
    ("*", "/", "%"),
)
_INTEGERS: Mapping[str, Callable[[int, int], int]] = {
    "||": lambda a, b: int(bool(a or b)),
    "&&": lambda a, b: int(bool(a and b)),
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b),
    ">": lambda a, b: int(a > b),
    "<=": lambda a, b: int(a <= b),
    ">=": lambda a, b: int(a >= b),
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "%": lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1),
}


def folded(operator: str, left: int, right: int) -> int:
    """Returns what C makes of two integers. Raises KernelSyntaxError for a division by zero."""
    try:
        return _INTEGERS[operator](left, right)
    except ZeroDivisionError:
        raise KernelSyntaxError("a constant is divided by zero") from None


def constant(node: Any) -> int:
    """Returns the value of an expression of integers. Raises KernelSyntaxError for others."""
    if isinstance(node, Literal) and node.type == INT:
        return int(node.value)
    if isinstance(node, Binary):
        return folded(node.operator, constant(node.left), constant(node.right))
    if isinstance(node, Ternary):
        return constant(node.yes if constant(node.test) else node.no)
    if isinstance(node, Unary) and node.operator in "-!":
        value = constant(node.operand)
        return -value if node.operator == "-" else int(not value)
    raise KernelSyntaxError(f"not a constant: {node}")


class Parser:
    """Parses tokens without macros."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = tokens
        self._place = 0
        self._types = dict(TYPES)

    def functions(self) -> list[Function]:
        """Returns the functions of a file. Raises KernelSyntaxError."""
        found = []
        while self._place < len(self._tokens):
            if self._accept("typedef"):
                self._typedef()
            elif not self._accept(";"):
                found.append(self._function())
        return found

    def _peek(self) -> str:
        return self._tokens[self._place] if self._place < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._place += 1
        return token

    def _accept(self, token: str) -> bool:
        if self._peek() != token:
            return False
        self._place += 1
        return True

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            near = " ".join(self._tokens[max(self._place - 8, 0) : self._place + 4])
            raise KernelSyntaxError(f"{token} is missing: {near}")

    def _typedef(self) -> None:
        own = self._type()
        name = self._next()
        if self._accept("["):
            if constant(self.expression()) < 0:
                raise KernelSyntaxError(f"{name} does not hold")
            self._expect("]")
        self._types[name] = own
        self._expect(";")

    def _function(self) -> Function:
        group = 0
        if self._accept("__kernel"):
            for token in ("__attribute__", "(", "(", "reqd_work_group_size", "("):
                self._expect(token)
            group = constant(self.expression())
            while not self._accept("void"):
                self._place += 1
            own = TYPES["void"]
        else:
            own = self._type()
        name = self._next()
        self._expect("(")
        parameters = []
        while not self._accept(")"):
            parameters.append(self._declarator(self._type(), with_value=False))
            self._accept(",")
        self._expect("{")
        return Function(name, own, parameters, self._block(), group)

    def _is_type(self) -> bool:
        return self._peek() in self._types or self._peek() in _QUALIFIERS

    def _type(self) -> Type:
        """Parses a type with its qualifiers, without the stars of a pointer."""
        own, space = None, ""
        while self._is_type():
            token = self._next()
            space = _SPACES.get(token, space)
            own = self._types.get(token, own)
        if own is None:
            raise KernelSyntaxError(f"a type is missing before {self._peek()}")
        return Type(own.scalar, own.width, own.space or space)

    def _declarator(self, own: Type, *, with_value: bool) -> Declare:
        """Parses a name with what makes it a pointer or an array, and its value."""
        is_pointer = self._accept("*")
        while self._accept("restrict") or self._accept("const"):
            pass
        name, dimensions = self._next(), []
        while self._accept("["):
            dimensions.append(constant(self.expression()))
            self._expect("]")
        is_shared = own.space == "local" and not is_pointer
        own = own._replace(space=own.space or "private") if is_pointer else own.pointed
        value = None
        if with_value and self._accept("="):
            if self._accept("{"):
                value = []
                while not self._accept("}"):
                    value.append(self.expression())
                    self._accept(",")
            else:
                value = self.expression()
        return Declare(own, name, dimensions, value, is_shared)

    def _block(self) -> Statements:
        """Parses statements up to the closing brace."""
        statements: list[Any] = []
        while not self._accept("}"):
            statements += self._statement()
        return Statements(statements)

    def _body(self) -> Statements:
        """Parses one statement, or those in braces."""
        return Statements(self._statement())

    def _statement(self) -> list[Any]:
        if self._accept("{"):
            return [self._block()]
        if self._accept(";"):
            return []
        if self._accept("if"):
            self._expect("(")
            test = self.expression()
            self._expect(")")
            yes = self._body()
            return [If(test, yes, self._body() if self._accept("else") else Statements(()))]
        if self._peek() in ("for", "_Pragma"):
            return [self._loop()]
        if self._accept("return"):
            value = None if self._peek() == ";" else self.expression()
            self._expect(";")
            return [Return(value)]
        if self._accept("continue"):
            self._expect(";")
            return [Continue()]
        if self._is_type():
            return self._declarations()
        found = self._expressions()
        self._expect(";")
        return found

    def _expressions(self) -> list[Any]:
        """Parses expressions with commas between them, each for what it does."""
        found = [self.expression()]
        while self._accept(","):
            found.append(self.expression())
        return found

    def _declarations(self) -> list[Any]:
        own = self._type()
        found = [self._declarator(own, with_value=True)]
        while self._accept(","):
            found.append(self._declarator(own, with_value=True))
        self._expect(";")
        return list(found)

    def _loop(self) -> For:
        is_unrolled = False
        if self._accept("_Pragma"):
            self._expect("(")
            is_unrolled = self._next() == '"unroll"'
            self._expect(")")
        self._expect("for")
        self._expect("(")
        start = Statements(self._statement())
        test = self.expression()
        self._expect(";")
        step = self._expressions()
        self._expect(")")
        return For(start, test, step, self._body(), is_unrolled)

    def expression(self) -> Any:
        """Parses an expression. Raises KernelSyntaxError."""
        left = self._ternary()
        token = self._peek()
        if token == "=" or (len(token) == 2 and token[1] == "=" and token[0] in "+-*/%"):
            self._next()
            return Assign(token[:-1], left, self.expression())
        return left

    def _ternary(self) -> Any:
        test = self._binary(0)
        if not self._accept("?"):
            return test
        yes = self.expression()
        self._expect(":")
        return Ternary(test, yes, self._ternary())

    def _binary(self, level: int) -> Any:
        if level == len(_LEVELS):
            return self._unary()
        left = self._binary(level + 1)
        while self._peek() in _LEVELS[level]:
            operator = self._next()
            left = Binary(operator, left, self._binary(level + 1))
        return left

    def _unary(self) -> Any:
        if self._peek() in ("-", "!", "*", "&"):
            operator = self._next()
            operand = self._unary()
            if operator == "-" and isinstance(operand, Literal):
                return operand._replace(value=-operand.value)
            return Unary(operator, operand)
        if self._peek() == "(" and self._is_cast():
            self._next()
            own = self._type()
            if self._accept("*"):
                own = own._replace(space=own.space or "private")
            self._expect(")")
            return Cast(own, self._unary())
        return self._postfix()

    def _is_cast(self) -> bool:
        following = self._tokens[self._place + 1 : self._place + 2]
        return bool(following) and (following[0] in self._types or following[0] in _QUALIFIERS)

    def _postfix(self) -> Any:
        found = self._primary()
        while True:
            if self._accept("["):
                found = Index(found, self.expression())
                self._expect("]")
            elif self._accept("."):
                found = Member(found, self._next())
            elif self._peek() in ("++", "--"):
                found = Assign(self._next()[0], found, Literal(1, INT), is_after=True)
            else:
                return found

    def _primary(self) -> Any:
        token = self._next()
        if token == "(":
            found = self.expression()
            self._expect(")")
            return found
        if token[:1].isdigit() or token[:1] == ".":
            return _number(token)
        if not (token[:1].isalpha() or token[:1] == "_"):
            self._place -= 1
            self._expect("an expression")
        if not self._accept("("):
            return Reference(token)
        arguments = []
        while not self._accept(")"):
            arguments.append(self.expression())
            self._accept(",")
        return FunctionCall(token, arguments)


def _number(token: str) -> Literal:
    if token.lower().startswith("0x"):
        return Literal(int(token, 16), INT)
    if token.isdigit():
        return Literal(int(token), INT)
    value = float(token.rstrip("fF"))
    if not math.isfinite(value):
        raise KernelSyntaxError(f"no finite number: {token}")
    return Literal(value, FLOAT)
