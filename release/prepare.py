"""Makes the tree ready for a version: its number, and its section of the changelog, of today.

python -m release.prepare 1.2.3
"""

from __future__ import annotations

import datetime
import re
import sys

from release import project


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    if len(arguments) != 1 or not project.is_version(arguments[0]):
        print(__doc__, file=sys.stderr)
        return 2
    (new,) = arguments
    today = datetime.datetime.now(datetime.UTC).date()
    text = project.CHANGELOG.read_text(encoding="utf-8")
    try:
        changed = with_section(text, new, today)
    except ValueError as error:
        print(f"CHANGELOG.md: {error}", file=sys.stderr)
        return 1
    project.CHANGELOG.write_text(changed, encoding="utf-8")
    project.set_version(new)
    print(f"Now: git commit -am 'Version {new}' && git tag v{new} && git push --tags origin main")
    return 0


def with_section(text: str, new: str, day: datetime.date) -> str:
    """A changelog in which what was unreleased is a version's, and nothing is unreleased.

    Raises ValueError if there is nothing to release, or the version is there.
    """
    if f"## [{new}]" in text:
        raise ValueError(f"{new} has a section")
    found = re.search(r"^## \[Unreleased\]\n(.*?)(?=^## |^\[[^\]]+\]: |\Z)", text, re.M | re.S)
    if not found or not found[1].strip():
        raise ValueError("nothing is unreleased")
    text = text.replace("## [Unreleased]\n", f"## [Unreleased]\n\n## [{new}] - {day}\n", 1)
    link = re.search(r"^\[Unreleased\]: (\S+)/compare/(v\S+)\.\.\.HEAD$", text, re.M)
    if link:
        line = f"[Unreleased]: {link[1]}/compare/v{new}...HEAD\n"
        return text.replace(link[0], line + f"[{new}]: {link[1]}/compare/{link[2]}...v{new}")
    link = re.search(r"^\[Unreleased\]: (\S+)/commits/main$", text, re.M)
    if not link:
        raise ValueError("it ends without a link for [Unreleased]")
    line = f"[Unreleased]: {link[1]}/compare/v{new}...HEAD\n"
    return text.replace(link[0], line + f"[{new}]: {link[1]}/releases/tag/v{new}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
