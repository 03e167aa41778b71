"""Names are the field's own, and none means two things: those that are gone stay gone."""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "waifu2x"


@functools.cache
def modules(folder: str) -> dict[str, ast.Module]:
    """The modules of a folder, by their paths."""
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text())
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


GONE = {
    # steps and nodes
    "product": "conv",
    "ProductStep": "ConvStep",
    "ProductArguments": "ConvArguments",
    "tensor_product": "tensor_conv",
    "Move": "a class for each thing that is done",
    "DenseStep": "Linear",
    "fold": "space-to-depth",
    "Average": "GlobalAvgPool",
    "AverageArguments": "AvgPoolArguments",
    "DenseLayer": "Fp32LinearStep",
    "Fp32AverageStep": "Fp32AvgPoolStep",
    "MapRoom": "MapMemory",
    "MoveArguments": "PlanewiseArguments",
    "TensorAverageStep": "TensorAvgPoolStep",
    "moves": "planewise",
    "means": "avg_pool",
    "tensor_average": "tensor_avg_pool",
    "tensor_move": "tensor_planewise",
    # kernels
    "NoRoomError": "MapMemoryError",
    "PIECE": "VECTOR_VALUES",
    "product_peak": "matrix_peak",
    "follows": "epilogue",
    "pack_follows": "pack_epilogue",
    "visits": "K-blocks",
    "spread": "taps as columns, device pool",
    "has_windows": "sparse taps",
    "loose": "decoupled",
    "teams": "consumer groups",
    "OLD": "SM75",
    # geometry
    "Spot": "output coordinate",
    "reach": "radius",
    "around": "halo",
    "turns": "tta",
    "turned": "transformed",
    # engines
    "Stage": "compiled model",
    "Bound": "bound plan",
    "Way": "options",
    "Taken": "scoped allocation",
    "Spares": "free list",
    "spares": "free list",
    "Workspace": "memory pool",
    "Flight": "task batch",
    "flight": "task batch",
    "land": "release",
    "board": "work queue",
    "bell": "wakeup",
    "bells": "wakeups",
    "nap": "backoff",
    "Room": "memory semaphore",
    "Deal": "scheduler",
    "Pace": "rate estimator",
    "Lasting": "session",
    "lasting": "session",
    "road": "engine",
    # the command line and files
    "Wishes": "output options",
    "wishes": "output options",
    "Note": "notice",
    "notes": "notices",
    "Account": "reporter",
    "account": "reporter",
    "Page": "HTML report",
    "closeness": "accuracy check",
    "Form": "layout",
    "Forms": "layouts",
    "forms": "layouts",
}
"""Names of modules, classes, functions, fields and arguments, with or without a leading underscore,
and what stands in their place."""

GONE_MACROS = {
    "AHEAD": "PREFETCHED",
    "DENSE": "LINEAR",
    "FOLD": "SPACE_TO_DEPTH",
    "FOLLOWS": "EPILOGUE",
    "LOOSE": "DECOUPLED",
    "MOVED": "WRITTEN",
    "OLD": "SM75",
    "PIECES": "VECTORS",
    "REACH": "RADIUS",
    "SHUFFLE": "DEPTH_TO_SPACE",
    "SPREAD": "TAP_COLUMNS",
    "TEAMS": "CONSUMERS",
    "TURN": "TRANSFORM",
    "TURNED": "TRANSFORMED",
    "UNSHUFFLE": "SPACE_TO_DEPTH",
    "VISITS": "K_BLOCKS",
    "WINDOWS": "SPARSE_TAPS",
}

GONE_FROM_KERNELS = {
    "Average": "AvgPool",
    "Move": "Planewise",
    "Product": "Conv",
    "Spot": "OutputCoordinate",
    "folded": "space-to-depth",
    "kept": "stored",
    "moves": "planewise steps",
    "piece": "vector",
    "pieces": "vectors",
    "products": "convolutions, matrix products",
    "real": "valid",
    "shuffled": "depth-to-space",
    "spot": "output_coordinate",
    "team": "consumer group",
    "teams": "consumer groups",
    "turned": "transformed",
    "unshuffled": "space-to-depth",
    "upright": "untransformed",
    "visit": "K-block",
    "visits": "K-blocks",
}
"""Words of kernels, code and prose alike; matrix products, small ones first, are products."""


def names_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of each class, function, field and argument that a module defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.lineno, node.name
            for inner in node.body:
                if isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
                    yield inner.lineno, inner.target.id
                elif isinstance(inner, ast.Assign):
                    for target in inner.targets:
                        if isinstance(target, ast.Name):
                            yield inner.lineno, target.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def docstrings_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring, those of fields and constants among them."""
    for node in ast.walk(tree):
        for statement in getattr(node, "body", []) if not isinstance(node, ast.expr) else []:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                text = statement.value.value
                if isinstance(text, str):
                    yield statement.lineno, text.strip()


def test_old_names_are_gone() -> None:
    found = [
        f"{path}:{line}: {name}: {GONE[name.lstrip('_')]}"
        for path, tree in modules("waifu2x").items()
        for line, name in (*names_of(tree), (1, Path(path).stem))
        if name.lstrip("_") in GONE
    ]
    assert not found, "\n".join(found)


def test_old_macros_are_gone() -> None:
    found = [
        f"{path.name}:{number}: {macro}: {GONE_MACROS[macro]}"
        for path in sorted((ROOT / "kernels").iterdir())
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for macro in re.findall(r"\b[A-Z][A-Z0-9_]+\b", line)
        if macro in GONE_MACROS
    ]
    assert not found, "\n".join(found)


def test_old_words_of_kernels_are_gone() -> None:
    """In their code and prose."""
    found = [
        f"{path.name}:{number}: {word}: {GONE_FROM_KERNELS[word]}"
        for path in sorted((ROOT / "kernels").iterdir())
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for word in re.findall(r"(?<!matrix )(?<![Ss]mall )\b[A-Za-z]+\b", line)
        if word in GONE_FROM_KERNELS
    ]
    assert not found, "\n".join(found)


GAP = r"\s+(?:(?:#|//|\*)\s+)?"
"""Between two words of a comment, which may stand in two lines."""
DIALECT = re.compile(
    rf"\b(?:whoever|whomever|so{GAP}many|of{GAP}which|of{GAP}whom)\b", re.IGNORECASE
)
"""Words that a sentence of this project does without: it names who acts, and counts."""
VERBLESS_COMMENT = re.compile(r"(?<![#\"])(?:# |// |/\*\*? )(?:What|Of)\b")
PLACES = ".ci .github benchmarks docs examples kernels man release tests waifu2x"
PROSE = ".1 .cl .css .cu .cuh .h .html .js .md .py .sh .toml .yml run long Dockerfile"
"""Ends of the names of files that hold prose."""


@functools.cache
def written() -> dict[str, str]:
    """The texts of the project by their paths, but for the record of changes and this file."""
    inner = [path for place in PLACES.split() for path in (ROOT / place).rglob("*")]
    return {
        path.relative_to(ROOT).as_posix(): path.read_text()
        for path in sorted([*ROOT.iterdir(), *inner])
        if path.name.endswith(tuple(PROSE.split())) and path.is_file()
        if path not in (ROOT / "CHANGELOG.md", Path(__file__))
    }


def matches(pattern: re.Pattern[str], suffixes: str = "") -> str:
    """Path, line and text of each match, in files of all kinds or of `suffixes`."""
    return "\n".join(
        f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {text[match.start() :][:80]}"
        for path, text in written().items()
        if not suffixes or path.endswith(tuple(suffixes.split()))
        for match in pattern.finditer(text)
    )


def test_docstrings_begin_with_what_a_thing_is_or_does() -> None:
    """An editor shows them alone: "Of the result." says nothing there, and "What is kept." makes
    the reader look for a verb."""
    found = [
        f"{path}:{line}: {text.splitlines()[0]}"
        for folder in ("waifu2x", "benchmarks", "examples", "release", "tests")
        for path, tree in modules(folder).items()
        for line, text in docstrings_of(tree)
        if re.match(r"(Of|See|What)\b", text)
    ]
    assert not found, "\n".join(found)


def test_comments_begin_with_a_subject() -> None:
    found = matches(VERBLESS_COMMENT, ".py .cl .cu .cuh .h .js .sh .toml .yml .ci/run .ci/long")
    assert not found, found


def test_no_sentence_leans_on_what_it_does_not_name() -> None:
    found = matches(DIALECT)
    assert not found, found


def test_a_name_of_a_class_means_one_thing() -> None:
    places = defaultdict(list)
    for path, tree in modules("waifu2x").items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path}:{node.lineno}")
    found = {name: where for name, where in places.items() if len(where) > 1}
    assert not found


def test_the_top_of_the_package_is_read_at_a_glance() -> None:
    modules = {path.stem for path in PACKAGE.glob("*.py")}
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    entries = (modules - {"__init__", "__main__"}) | folders
    assert len(entries) <= 12, sorted(entries)
