"""`waifu2x completion SHELL`: scripts for shells, and what they call at each TAB.

click finds what may stand at the cursor, and each parameter completes its values. click's own
scripts complete no files beside words, break words at `:`, `=` and `@`, and cut descriptions at
commas: the scripts here replace them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)

from waifu2x.api.settings.kinds import OneOf
from waifu2x.cli.command import Command
from waifu2x.cli.options.option import Choice
from waifu2x.cli.output.report import show

_VARIABLE = "_WAIFU2X_COMPLETE"
_EXPANDED = re.compile(r"(?<!\\)\$")
"""Where the shell inserts a value into a word."""
_BLANKS = " \t\n"

_BASH = """\
# Completion of waifu2x in bash: source this from ~/.bashrc, or put it into
# ~/.local/share/bash-completion/completions/waifu2x
%(complete_func)s() {
    local line kind=
    COMPREPLY=()
    while IFS= read -r line; do
        if [[ -z $kind ]]; then kind=$line; else COMPREPLY+=("$line"); fi
    done < <(COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_WORD="$2" %(complete_var)s=bash_complete \\
        "${1/#\\~\\//$HOME/}" 2>/dev/null)
    # The shell of macOS (3.2) has no compopt.
    case $kind in
        files) compopt -o filenames 2>/dev/null ;;
        shell) compopt -o bashdefault -o default 2>/dev/null ;;
    esac
    case ${#COMPREPLY[@]},${COMPREPLY[0]} in
        1,*/ | 1,*=) compopt -o nospace 2>/dev/null ;;
    esac
    return 0
}

if type compopt >/dev/null 2>&1; then
    complete -o nosort -F %(complete_func)s %(prog_name)s 2>/dev/null ||
        complete -F %(complete_func)s %(prog_name)s
else
    complete -o filenames -F %(complete_func)s %(prog_name)s
fi
"""

_ZSH = """\
#compdef %(prog_name)s
# Completion of waifu2x in zsh: put this into a folder of $fpath as _waifu2x, or source it from
# ~/.zshrc after compinit.
_%(prog_name)s() {
    local -a plain described response
    local program type key descr
    program=${~${(Q)words[1]}}
    response=("${(@f)$(COMP_WORDS="${(F)words[1,CURRENT]}" COMP_CWORD=$((CURRENT - 1)) \\
        %(complete_var)s=zsh_complete "$program" 2>/dev/null)}")
    [[ $words[CURRENT] == --*=* ]] && compset -P 1 '*='
    for type key descr in $response; do
        case $type in
            plain)
                if [[ $descr == _ ]]; then plain+=("$key"); else described+=("$key:$descr"); fi ;;
            dir) _path_files -/ ;;
            file) if [[ $key == _ ]]; then _path_files; else _path_files -g "$key *(-/)"; fi ;;
        esac
    done
    (( $#described )) && _describe -V waifu2x described
    (( $#plain )) && compadd -V waifu2x-plain -a plain
}

# As a file of $fpath this is the body of a function, which has just been replaced.
if [[ $funcstack[1] == _%(prog_name)s ]]; then
    _%(prog_name)s "$@"
else
    compdef _%(prog_name)s %(prog_name)s
fi
"""

_FISH = """\
# Completion of waifu2x in fish: put this into ~/.config/fish/completions/waifu2x.fish
function %(complete_func)s
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -lx COMP_WORDS (string join \\n -- $words | string collect)
    set -lx COMP_CWORD $current
    set -lx %(complete_var)s fish_complete
    set -l start (string match -r '^--[^=]*=' -- $current; or echo)
    set -l path (string replace -r '^--[^=]*=' '' -- $current)
    for completion in ($words[1] 2>/dev/null)
        set -l parts (string split -m 1 , -- $completion)
        switch $parts[1]
            case plain
                echo $parts[2]
            case dir
                printf '%%s\\n' $start(complete -C "'' $path" | string match -r '^[^\\t]*/$')
            case file
                printf '%%s\\n' $start(complete -C "'' $path" | \\
                    string match -ri '^[^\\t]*(?:/|'$parts[2]')(?=\\t|$).*')
        end
    end
end

complete --no-files --command %(prog_name)s --arguments '(%(complete_func)s)'
"""


class Bash(BashComplete):
    """Bash, which quotes completions that are declared as files."""

    source_template = _BASH

    def source(self) -> str:
        """Returns the script. click's own looks for the version of any bash that it finds."""
        return ShellComplete.source(self)

    def get_completion_args(self) -> tuple[list[str], str]:
        """Returns the words before the cursor and the one under it, as the program would get them.
        Bash itself breaks words at `:` and `=`, so they are made from the line."""
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)
        return (words[1:-1], words[-1]) if _last_word(line) else (words[1:], "")

    def complete(self) -> str:
        """Returns a line with the kind of the others, which replace what bash takes for the word.
        The kind is `files` or `words`, or `shell` if bash is to look for files by itself."""
        raw = _last_word(os.environ["COMP_LINE"])
        word = os.environ.get("COMP_WORD", "")
        kept = raw[: len(raw) - len(word)] if raw.endswith(word) else ""
        kept = next(iter(split_arg_string(kept)), "")
        args, incomplete = self.get_completion_args()
        items = self.get_completions(args, incomplete)
        is_files = any(item.type in ("file", "dir") for item in items)
        if is_files and _EXPANDED.search(raw) and not raw.startswith("'"):
            return "shell"
        found: list[str] = []
        for item in items:
            found += [item.value] if item.type == "plain" else _paths(item)
        values = [value.removeprefix(kept) for value in dict.fromkeys(found) if _fits_a_line(value)]
        return "\n".join(["files" if is_files else "words", *values])

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        """Returns items for the whole word: `--model=cunet/art` for `--model=cu`."""
        return _whole(super().get_completions(args, incomplete), incomplete)


class Zsh(ZshComplete):
    """Zsh, which completes paths itself."""

    source_template = _ZSH

    def get_completion_args(self) -> tuple[list[str], str]:
        """Returns the words before the cursor and the one under it, as the program would get
        them."""
        words = [_unquoted(word) for word in os.environ["COMP_WORDS"].split("\n")]
        return words[1:-1], words[-1]

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Formats three lines: type; value, or a pattern for files; description."""
        if item.type == "file":
            suffixes = "|".join(item.suffixes)
            return f"file\n*(#i)({suffixes})(-.)\n_" if suffixes else "file\n_\n_"
        # zsh splits value and description at the first colon.
        value = item.value.replace(":", "\\:") if item.help else item.value
        return f"{item.type}\n{value}\n{item.help or '_'}"


class Fish(FishComplete):
    """Fish, which completes paths itself."""

    source_template = _FISH

    def get_completion_args(self) -> tuple[list[str], str]:
        """Returns the words before the cursor and the one under it, as the program would get
        them."""
        return os.environ["COMP_WORDS"].split("\n")[1:], _unquoted(os.environ["COMP_CWORD"])

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        """Returns items for the whole word: `--model=cunet/art` for `--model=cu`."""
        return _whole(super().get_completions(args, incomplete), incomplete)

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Formats type and value, or an expression for the ends of files, and a description."""
        if item.type == "file":
            return "file," + "|".join(re.escape(suffix) for suffix in item.suffixes)
        return f"{item.type},{item.value}" + (f"\t{item.help}" if item.help else "")


SHELLS: dict[str, type[ShellComplete]] = {"bash": Bash, "zsh": Zsh, "fish": Fish}


def register() -> None:
    """Makes click use these classes when a script asks for completions."""
    for name, shell in SHELLS.items():
        add_completion_class(shell, name)


@click.command(cls=Command, short_help="Print a script that makes a shell complete waifu2x.")
@click.argument("shell", metavar="|".join(SHELLS), type=Choice(OneOf(tuple(SHELLS))))
def completion(shell: str) -> None:
    """Print a script that makes a shell complete commands, options, files, models and devices.

    \b
    bash: waifu2x completion bash > ~/.local/share/bash-completion/completions/waifu2x
    zsh:  waifu2x completion zsh > ~/.zfunc/_waifu2x    (a folder of $fpath)
    fish: waifu2x completion fish > ~/.config/fish/completions/waifu2x.fish

    Without bash-completion, as on macOS: `source <(waifu2x completion bash)` in ~/.bashrc.
    """
    from waifu2x.cli import cli

    show(SHELLS[shell](cli, {}, "waifu2x", _VARIABLE).source().rstrip("\n"))


def _whole(items: list[CompletionItem[str]], incomplete: str) -> list[CompletionItem[str]]:
    """Prepends the option that the word begins with."""
    option, equals, _ = incomplete.partition("=")
    if not (equals and option.startswith("-")):
        return items
    start = option + equals
    return [
        CompletionItem(
            start + item.value, item.type, item.help, suffixes=item.suffixes, start=start
        )
        for item in items
    ]


def _paths(item: CompletionItem[Any]) -> Iterator[str]:
    """Yields the paths that begin like an item's value: folders, and files that it wants."""
    start: str = item.start or ""
    head, slash, tail = item.value.removeprefix(start).rpartition("/")
    suffixes = item.suffixes or ("",)
    try:
        with os.scandir(Path(head + slash).expanduser() if slash else ".") as entries:
            found = sorted(
                (entry.name, entry.is_dir())
                for entry in entries
                if entry.name.startswith(tail) and (tail or not entry.name.startswith("."))
            )
    except (OSError, RuntimeError, ValueError):
        return
    for name, is_folder in found:
        if is_folder:
            yield f"{start}{head}{slash}{name}/"
        elif item.type == "file" and name.lower().endswith(tuple(suffixes)):
            yield f"{start}{head}{slash}{name}"


def _fits_a_line(value: str) -> bool:
    """Returns whether a shell can be sent a value: names of files may be any bytes."""
    return "\n" not in value and not any("\ud800" <= each <= "\udfff" for each in value)


def _last_word(line: str) -> str:
    """Returns the last word of a line as it is written, with its quotes; empty after a blank."""
    start, quote, escaped = 0, "", False
    for at, character in enumerate(line):
        if escaped:
            escaped = False
        elif character == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in _BLANKS:
            start = at + 1
    return line[start:]


def _unquoted(word: str) -> str:
    """Removes the quotes of a word; the last may be open."""
    return next(iter(split_arg_string(word)), "")
