"""Exceptions that users can meet. A message is one sentence: whose, what is wrong, what to do.

Waifu2xError ├── ModelError a model file or folder ├── ImageError a picture that cannot be read or
handled ├── BackendError a backend or device that is missing or cannot do what was asked │ ├──
UnavailableError its library or device is not here: `auto` goes on to the next │ │ ├──
NotInstalledError software that it needs was never installed │ │ └── NoDeviceError it has devices,
but none of the number that was asked for │ ├── DeviceMemoryError its device has too little free
memory for what was asked │ └── DeviceError its device has stopped working: so does `auto`, in the
middle of a batch ├── StoreError a URL that cannot be used ├── ClusterError a cluster that cannot be
reached, or does not do what was asked ├── OutputError a result that cannot be written │ └──
ExistsError its file is there already, and is not to be replaced └── FaultError a fault of this
program
"""

from __future__ import annotations

LESS_MEMORY = "use a smaller scale, or -m upconv_7, which needs a sixth of cunet's memory"
"""Advice for messages about too little memory."""


class Waifu2xError(Exception):
    """Base of every error that this package raises on purpose. Its text is one line that a terminal
    can show, whichever characters the names in it have."""

    def __str__(self) -> str:
        return printable(super().__str__())


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

    def __init__(self, fault: str, remedy: str = "use another backend") -> None:
        """The message is `fault` and `remedy`."""
        super().__init__(f"{fault}: {remedy}")
        self.fault = fault
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[DeviceError], tuple[str, str]]:
        # Pickling would otherwise call the class with the message.
        return type(self), (self.fault, self.remedy)


class StoreError(Waifu2xError):
    """A URL names what is not there, or its kind is not supported."""


class ClusterError(Waifu2xError):
    """A cluster or its workers are missing, or do not do what was asked of them."""


class OutputError(Waifu2xError):
    """A result cannot be written where it should go."""


class ExistsError(OutputError):
    """The file of a result is there already, and is not to be replaced."""

    def __init__(self, path: object, remedy: str = "use --overwrite or --skip-existing") -> None:
        """The message is `path` and `remedy`."""
        super().__init__(f"{path}: exists already: {remedy}")
        self.path = str(path)
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[ExistsError], tuple[str, str]]:
        return type(self), (self.path, self.remedy)


class FaultError(Waifu2xError):
    """A fault of this program, in a process whose traceback is seen in a log alone, with
    --verbose."""

    def __init__(self, what: str) -> None:
        """The message is `what` and how to report it."""
        super().__init__(
            f"{what}: this is a fault of waifu2x: please report it, with what `--verbose` adds and "
            "what `waifu2x --version -v` says"
        )
        self.what = what

    def __reduce__(self) -> tuple[type[FaultError], tuple[str]]:
        return type(self), (self.what,)


def shortage(error: BaseException) -> str:
    """Returns what the system has refused, and what to do, if an error of Python says that; else an
    empty text. A library that was there at the start is missing for lack of memory, mostly."""
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return "no thread can be started: free some memory, or allow more (ulimit -u, ulimit -v)"
    if isinstance(error, EOFError):  # the process that starts others has ended
        return "no process can be started: free some memory, or allow more files (ulimit -n)"
    if isinstance(error, ImportError):
        return f"a library cannot be loaded: {error}: free some memory, or install it again"
    return ""


def printable(message: str) -> str:
    """Returns a message as one line, with invisible characters escaped. Names of files, and text
    inside files, come from strangers and may hold line breaks and control sequences."""
    if message.isprintable():
        return message
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in message
    )
