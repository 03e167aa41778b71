"""Whether a tag may be published: the version, the changelog and the addresses agree with it.

python -m release.check v1.2.3 [--notes FILE]      FILE gets the changelog's section
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from release import project


def faults(tag: str) -> list[str]:
    """Lists, a sentence each, what has to be done before the tag can be published."""
    found = []
    version = project.version()
    if not project.is_version(version):
        found.append(f"waifu2x/__init__.py: {version} is no version: run release.prepare")
    if tag != f"v{version}":
        found.append(
            f"the tag is {tag}, the version {version}: run release.prepare, then tag v{version}"
        )
    if project.notes(version) is None:
        found.append(f"CHANGELOG.md has no section [{version}] with a date: run release.prepare")
    for path, text in project.tracked_texts().items():
        name = path.relative_to(project.ROOT)
        if project.with_owner(text, "") != text:
            found.append(
                f"{name}: an address has {project.PLACEHOLDER} in it: run release.set_owner"
            )
        elif str(name) == "README.md" and project.PLACEHOLDER in text:
            found.append(f"{name} explains {project.PLACEHOLDER}: take that sentence out")
    return found


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tag")
    parser.add_argument("--notes", type=Path)
    options = parser.parse_args(arguments)
    found = faults(options.tag)
    for fault in found:
        print(fault, file=sys.stderr)
    if found:
        return 1
    if options.notes:
        options.notes.write_text(project.notes(project.version()) or "", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
