"""Turns the text of a kernel into tokens, with its directives obeyed and its macros replaced."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from waifu2x.backends.vulkan.compiler.syntax import KernelSyntaxError, Parser, constant

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TOKEN = re.compile(
    r"\s*([A-Za-z_]\w*|0[xX][0-9a-fA-F]+|(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?[fF]?"
    r'|"[^"]*"|##|\+\+|--|[-+*/%<>=!]=|&&|\|\||.)'
)
_PARAMETERS = re.compile(r"(\w+)\(([\w\s,]*)\)(.*)", re.DOTALL)


class Macro(NamedTuple):
    """A macro: the names of its parameters, None if it has no list of them, and its tokens."""

    parameters: list[str] | None
    body: list[str]


def tokens_of(text: str, defined: Mapping[str, str | int]) -> list[str]:
    """Returns the tokens of a text without `#include`. `defined` maps macros, with their parameters
    in parentheses if they have any, to their text. Raises KernelSyntaxError."""
    preprocessor = _Preprocessor()
    for name, value in defined.items():
        preprocessor.define(f"{name} {value}")
    return preprocessor.run(text)


def _split(text: str) -> list[str]:
    return _TOKEN.findall(text.strip())


class _Preprocessor:
    def __init__(self) -> None:
        self._macros: dict[str, Macro] = {}

    def define(self, text: str) -> None:
        """Defines a macro from what follows `#define`."""
        found = _PARAMETERS.match(text)
        if found:
            name, parameters, body = found.groups()
            self._macros[name] = Macro(_split(parameters.replace(",", " ")), _split(body))
        else:
            name, *body = _split(text)
            self._macros[name] = Macro(None, body)

    def run(self, text: str) -> list[str]:
        """Returns the tokens of a text."""
        made: list[str] = []
        pending: list[str] = []
        # Whether lines count, and whether a branch was taken already, for each open `#if`.
        open_ifs: list[tuple[bool, bool]] = []
        for line in _COMMENT.sub(" ", text).replace("\\\n", " ").split("\n"):
            if not line.lstrip().startswith("#"):
                if all(counts for counts, _ in open_ifs):
                    pending += _split(line)
                continue
            made += self._expanded(pending)
            pending = []
            word, _, rest = line.strip()[1:].strip().partition(" ")
            if word in ("if", "ifdef", "ifndef"):
                is_live = all(counts for counts, _ in open_ifs) and self._holds(word, rest)
                open_ifs.append((is_live, is_live))
            elif word in ("elif", "else"):
                _, was_taken = open_ifs.pop()
                is_live = all(counts for counts, _ in open_ifs) and not was_taken
                is_live = is_live and (word == "else" or self._holds("if", rest))
                open_ifs.append((is_live, was_taken or is_live))
            elif word == "endif":
                open_ifs.pop()
            elif not all(counts for counts, _ in open_ifs) or word == "pragma":
                continue
            elif word == "define":
                self.define(rest.strip())
            else:
                raise KernelSyntaxError(f"unknown directive #{word} {rest}")
        return made + self._expanded(pending)

    def _holds(self, word: str, rest: str) -> bool:
        if word != "if":
            return (rest.strip() in self._macros) == (word == "ifdef")
        rest = re.sub(
            r"defined\s*\(?\s*(\w+)\s*\)?", lambda m: str(int(m[1] in self._macros)), rest
        )
        tokens = self._expanded(_split(rest))
        zeros = ["0" if token[0].isalpha() or token[0] == "_" else token for token in tokens]
        return constant(Parser(zeros).expression()) != 0

    def _expanded(self, tokens: list[str], used: frozenset[str] = frozenset()) -> list[str]:
        """Returns tokens with macros replaced, except those of `used`."""
        made: list[str] = []
        place = 0
        while place < len(tokens):
            token = tokens[place]
            macro = self._macros.get(token) if token not in used else None
            place += 1
            if macro is None:
                made.append(token)
            elif macro.parameters is None:
                made += self._expanded(macro.body, used | {token})
            elif tokens[place : place + 1] == ["("]:
                arguments, place = _arguments(tokens, place)
                if len(arguments) != len(macro.parameters) and macro.parameters:
                    raise KernelSyntaxError(f"macro {token} has {len(arguments)} arguments")
                values = [self._expanded(argument, used) for argument in arguments]
                by_name = dict(zip(macro.parameters, values, strict=False))
                body = _pasted(part for word in macro.body for part in by_name.get(word, [word]))
                made += self._expanded(body, used | {token})
            else:
                made.append(token)
        return made


def _arguments(tokens: list[str], first: int) -> tuple[list[list[str]], int]:
    """Returns the arguments of a macro, whose parenthesis opens at `first`, and the place behind
    them."""
    found: list[list[str]] = [[]]
    depth = 0
    for place in range(first, len(tokens)):
        token = tokens[place]
        depth += (token == "(") - (token == ")")
        if not depth:
            return found, place + 1
        if token == "," and depth == 1:
            found.append([])
        elif place > first:
            found[-1].append(token)
    raise KernelSyntaxError("a macro's arguments do not end")


def _pasted(tokens: Iterable[str]) -> list[str]:
    """Returns tokens with those on both sides of `##` as one."""
    made: list[str] = []
    is_pasting = False
    for token in tokens:
        if token == "##":
            is_pasting = True
        elif is_pasting:
            made[-1] += token
            is_pasting = False
        else:
            made.append(token)
    return made
