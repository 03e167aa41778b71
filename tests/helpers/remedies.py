"""Collects the remedies that the program's messages name, from its source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "waifu2x"
_MADE = re.compile(r"(?:Error|Sentence|BadParameter)$")
_OF_PYTHON = {"FileExistsError", "FileNotFoundError", "IsADirectoryError", "OSError"}
"""Errors whose second argument is no remedy."""
_VERBS = "choose|download|end|for|give|leave|look|make|name|remove|run|see|send|set|try|use"
_WITHIN = re.compile(rf"; ((?:{_VERBS}|did you mean)\b.*?)\.?$", re.DOTALL)
"""The remedy within a text of one argument, as in errors of click."""


def remedies() -> dict[str, str]:
    """Returns each remedy and the file that names it last. A value within is {}; a remedy that is a
    constant or comes from elsewhere is its expression in angle brackets."""
    return {
        remedy: path.relative_to(PACKAGE).as_posix()
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        for remedy in _of(node)
    }


def _of(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef) and node.name == "__init__":
        # The usual remedy of a class of errors.
        for argument, value in zip(
            reversed(node.args.args), reversed(node.args.defaults), strict=False
        ):
            if argument.arg == "remedy" and ast.literal_eval(value):
                yield from _texts(value)
    if not isinstance(node, ast.Call):
        return
    called = node.func
    name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
    if not _MADE.search(name) or name in _OF_PYTHON:
        return
    if len(node.args) > 1:
        yield from _texts(node.args[1])
    elif node.args and (told := list(_texts(node.args[0]))) and (found := _WITHIN.search(told[0])):
        yield found[1]


def _texts(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.IfExp):
        yield from _texts(node.body)
        yield from _texts(node.orelse)
    elif isinstance(node, ast.JoinedStr):
        yield "".join(
            str(each.value) if isinstance(each, ast.Constant) else "{}" for each in node.values
        )
    elif not isinstance(node, ast.Constant):
        yield f"<{ast.unparse(node)}>"
    elif node.value:
        yield str(node.value)


def messages() -> Iterator[tuple[str, str]]:
    """Yields the file and the text of each message, with {} for values."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = node.func
            name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
            if _MADE.search(name) or name in ("tell", "error", "refused"):
                for text in _texts(node.args[0]):
                    yield path.relative_to(PACKAGE).as_posix(), text
