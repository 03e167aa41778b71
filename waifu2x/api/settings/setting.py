"""Describes a setting: the columns of the table."""

from __future__ import annotations

from typing import Any, Literal

from waifu2x.api.settings.kinds import FLAG, Kind
from waifu2x.system.lazy_dataclass import dataclass

USUAL = "Options"
IN_AND_OUT = "Input and output"
SIZE = "Size (instead of -s)"
FILE = "Result file"
COMPUTING = "Model and device"
MESSAGES = "Messages"
HEADINGS = (USUAL, IN_AND_OUT, SIZE, FILE, COMPUTING, MESSAGES)
"""Headings of options in helps and man pages, in order."""


@dataclass(frozen=True)
class Setting:
    """Something that can be chosen: an option of commands, and what else the columns say."""

    key: str
    """Its long name: of the option, of the variable, in the settings file."""
    help: str
    commands: str
    """Those that take it, with blanks between."""
    kind: Kind = FLAG
    default: str | None = None
    """As on the command line; None: nothing is chosen unless it is given."""
    metavar: str = ""
    letter: str = ""
    own_name: str = ""
    """The name of the argument in Python where it is not the key's."""
    heading: str = USUAL
    joint: tuple[str, str] | None = None
    """The option that follows it in the same line of helps, and the line's text."""
    completion: str = ""
    """A function of `cli.completions`, or the suffix of files."""
    shows_default: bool = False
    """Whether the help appends the default; other texts say it themselves."""
    repeated: bool = False
    """Whether the option may be given several times."""
    one_run: str = ""
    """Why no settings file or variable may choose it; empty if they may."""
    group: str = ""
    """Members of a group exclude each other; a stronger one makes weaker ones void."""
    partner: str = ""
    """The member of the group that it goes together with."""
    void_by: str = ""
    """A group whose members make it void if they are stronger."""
    api: Literal["", "upscaler", "file"] = ""
    """Whether an Upscaler takes it, or the functions that make files."""
    http: str = ""
    """Its description as a parameter of requests for jobs; empty if it is none."""

    @property
    def name(self) -> str:
        """The name in Python."""
        return self.own_name or self.key.replace("-", "_")

    @property
    def is_of_films(self) -> bool:
        """Whether it is for films alone. Other commands that make films take it, too."""
        return self.commands.split()[0] == "video"

    @property
    def parameter(self) -> str:
        """The name in requests, which are for pictures and films alike."""
        return f"film_{self.name}" if self.is_of_films else self.name

    @property
    def option(self) -> str:
        """The option of the command line, in its short form."""
        return f"-{self.letter}" if self.letter else f"--{self.key}"

    @property
    def is_flag(self) -> bool:
        """Whether it is yes or no."""
        return self.kind is FLAG

    def chooses(self, value: Any) -> bool:
        """Returns whether a value is another than the default."""
        usual = None if self.default is None else self.kind.parse(self.default)
        return value is not None and value is not False and value != usual
