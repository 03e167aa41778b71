"""Exceptions that users can meet, and the form of every message: `NAME: problem; remedy`.

Waifu2xError
├── ModelError            a model file or folder
├── ImageError            a picture that cannot be read or handled
├── BackendError          a backend or device that is missing or cannot do what was asked
│   ├── UnavailableError      its library or device is not here: `auto` goes on to the next
│   │   ├── NotInstalledError     software that it needs was never installed
│   │   └── NoDeviceError         it has devices, but none of the number that was asked for
│   ├── DeviceMemoryError     its device has too little free memory for what was asked
│   └── DeviceError           its device has stopped working: so does `auto`, midway
├── StoreError            a URL that cannot be used
├── ClusterError          a cluster that cannot be reached, or does not do what was asked
├── OutputError           a result that cannot be written
│   └── ExistsError           its file is there already, and is not to be replaced
└── FaultError            a fault of this program
"""

from __future__ import annotations

import copy
from typing import TypeVar

_Error = TypeVar("_Error", bound="Waifu2xError")
LESS_MEMORY = "use a smaller scale, or the model upconv_7, which needs a sixth of cunet's memory"
"""The remedy of messages about too little memory."""


class Sentence(str):
    """A message as one line, `problem; remedy`, that knows its two parts."""

    problem: str
    """Begins with the name of the file or device that it is about, if there is one."""
    remedy: str
    """An imperative, or empty."""

    def __new__(cls, problem: object, remedy: str = "") -> Sentence:
        """Joins both parts, with their invisible characters escaped. A `Sentence` is both."""
        if isinstance(problem, Sentence):
            remedy, problem = problem.remedy, problem.problem
        told, advice = printable(str(problem)), printable(remedy)
        sentence = super().__new__(cls, f"{told}; {advice}" if advice else told)
        sentence.problem, sentence.remedy = told, advice
        return sentence

    def __reduce__(self) -> tuple[type[Sentence], tuple[str, str]]:
        return type(self), (self.problem, self.remedy)

    def of(self, name: object) -> Sentence:
        """Returns the sentence with a name before it."""
        return Sentence(f"{name}: {self.problem}", self.remedy)


class Waifu2xError(Exception):
    """Base of every error that this package raises on purpose. Its text is a `Sentence`: one line
    that a terminal can show, whichever characters the names in it have."""

    def __init__(self, problem: object = "", remedy: str = "") -> None:
        """`problem` begins with the name of what it is about, `remedy` with an imperative. A
        `Sentence` has both."""
        if isinstance(problem, Sentence):
            remedy, problem = problem.remedy, problem.problem
        super().__init__(problem, remedy)
        self.problem = str(problem)
        self.remedy = remedy

    @property
    def sentence(self) -> Sentence:
        """The whole message."""
        return Sentence(self.problem, self.remedy)

    def of(self: _Error, name: object) -> _Error:
        """Returns an equal error whose message begins with a name."""
        named = copy.copy(self)
        named.problem = f"{name}: {self.problem}"
        return named

    def __str__(self) -> str:
        return str(self.sentence)


class ModelError(Waifu2xError):
    """A model file or folder is missing, damaged or unsuitable."""


class ImageError(Waifu2xError):
    """A picture cannot be read, or is of a kind that cannot be handled."""


class BackendError(Waifu2xError):
    """A backend or device is missing, or cannot do what was asked of it."""


class UnavailableError(BackendError):
    """A backend's library or device is not here, which is no fault: `auto` takes the next one."""


class NotInstalledError(UnavailableError):
    """Software that a backend needs was never installed."""


class NoDeviceError(UnavailableError):
    """A backend has no device of the number that was asked for."""


class DeviceMemoryError(BackendError):
    """A device has too little free memory for what was asked: less of it, or later, may fit."""


class DeviceError(BackendError):
    """A device has stopped working, or cannot be opened: nothing runs on it in this process."""

    def __init__(self, problem: object, remedy: str = "use another backend") -> None:
        super().__init__(problem, remedy)


class StoreError(Waifu2xError):
    """A URL names what is not there, or its kind is not supported."""


class ClusterError(Waifu2xError):
    """A cluster or its workers are missing, or do not do what was asked of them."""


class OutputError(Waifu2xError):
    """A result cannot be written where it should go."""


class ExistsError(OutputError):
    """The file of a result is there already, and is not to be replaced."""

    def __init__(self, path: object, remedy: str = "use --overwrite or --skip-existing") -> None:
        """`path` is the file's."""
        super().__init__(f"{path}: it exists already", remedy)
        self.args = (str(path), remedy)  # a copy in another process is made of them
        self.path = str(path)


_REPORT = "report it, with what `--verbose` adds and what `waifu2x --version -v` says"


class FaultError(Waifu2xError):
    """A fault of this program, in a process whose traceback is seen in a log alone, with
    --verbose."""

    def __init__(self, problem: object) -> None:
        super().__init__(f"{problem}: this is a fault of waifu2x", _REPORT)
        self.args = (problem,)  # a copy in another process is made of it


def shortage(error: BaseException) -> Sentence | None:
    """Returns what the system has refused, and what to do, if an error of Python says that. A
    library that was there at the start is missing for lack of memory, mostly."""
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return Sentence(
            "no thread can be started", "free some memory, or allow more (ulimit -u, ulimit -v)"
        )
    if isinstance(error, EOFError):  # the process that starts others has ended
        return Sentence(
            "no process can be started", "free some memory, or allow more files (ulimit -n)"
        )
    if isinstance(error, ImportError):
        return Sentence(
            f"a library cannot be loaded: {error}", "free some memory, or install it again"
        )
    return None


def printable(message: str) -> str:
    """Returns a message as one line, with invisible characters escaped. Names of files, and text
    inside files, come from strangers and may hold line breaks and control sequences."""
    if message.isprintable():
        return message
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in message
    )
