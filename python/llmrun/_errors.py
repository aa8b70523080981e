"""What goes wrong."""

from __future__ import annotations

import enum


class ErrorCode(enum.IntEnum):
    """What kind of thing went wrong; the exit codes of the command line tools (docs/exit_codes.md)."""

    USAGE = 2  # an argument is unknown or out of range
    MALFORMED = 3  # a file breaks its format
    IO = 4  # the system refused a read or a write
    RESOURCE = 5  # memory or context would not suffice
    UNSUPPORTED = 6  # valid, but outside what this engine does
    NONFINITE = 7  # NaN or Inf where only numbers may stand
    INTEGRITY = 8  # content differs from what was promised


class Error(Exception):
    """An error of the engine, with its parts.

    `field` is the argument, metadata key or tensor that is wrong, `message` says "found V, need RULE", `file` and `offset` (bytes)
    say where, `hint` what you can do. Parts that do not apply are "" or None.
    """

    def __init__(self, code: int, field: str, message: str, offset: int | None, file: str, hint: str, text: str):
        super().__init__(text)
        self.code = ErrorCode(code)
        self.field = field
        self.message = message
        self.offset = offset
        self.file = file
        self.hint = hint
        self._parts = (code, field, message, offset, file, hint, text)

    @property
    def found(self) -> str:
        """What stands in `message` between "found" and "need"; "" where it has another form."""
        return self.message.removeprefix("found ").partition(", need ")[0] if self.message.startswith("found ") else ""

    @property
    def need(self) -> str:
        """The rule behind "need" in `message`; "" where it has none."""
        return self.message.partition(", need ")[2]

    def __reduce__(self):
        return type(self), self._parts


class FileError(Error, OSError):
    """A file or network read or write that the system refused: a missing file, above all."""


class ArgumentError(Error, ValueError):
    """An argument or a field of a request is out of range."""


class UnknownArgumentError(Error, TypeError):
    """A field of a request has a name that is not known."""


def error_of(code: int, field: str, message: str, *rest) -> Error:
    """The error of these parts."""
    kind = {ErrorCode.IO: FileError, ErrorCode.USAGE: ArgumentError}.get(ErrorCode(code), Error)
    if kind is ArgumentError and message.startswith("found a field that is not supported"):
        kind = UnknownArgumentError
    return kind(code, field, message, *rest)
