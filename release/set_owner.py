"""Puts the account that the project is published under into every address, once.

python -m release.set_owner ACCOUNT
"""

from __future__ import annotations

import re
import sys

from release import project


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    if len(arguments) != 1 or not re.fullmatch(r"[A-Za-z0-9](?:-?[A-Za-z0-9])*", arguments[0]):
        print(__doc__, file=sys.stderr)
        return 2
    for path, text in project.tracked_texts().items():
        changed = project.with_owner(text, arguments[0])
        if changed != text:
            path.write_text(changed, encoding="utf-8")
            print(path.relative_to(project.ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
