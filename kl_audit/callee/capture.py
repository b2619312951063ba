"""Call code of others without letting it print: what it says is kept, not shown."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Heard:
    """What was printed and warned while a ``quiet`` block ran; filled when the block ends."""

    text: str = ""
    warnings: list[str] = field(default_factory=list)

    @property
    def printed(self) -> str | None:
        """The first line printed that is not empty, or None."""
        return next((line.strip() for line in self.text.splitlines() if line.strip()), None)


@contextlib.contextmanager
def quiet() -> Iterator[Heard]:
    """Keep what Python code writes to stdout and stderr, and its warnings, from the terminal.

    Not thread-safe, as the standard streams are global; and what C code writes to the file
    descriptors themselves is not caught.
    """
    heard = Heard()
    stream = io.StringIO()
    with (
        warnings.catch_warnings(record=True) as caught,
        contextlib.redirect_stdout(stream),
        contextlib.redirect_stderr(stream),
    ):
        warnings.simplefilter("always")
        try:
            yield heard
        finally:
            heard.text = stream.getvalue()
            heard.warnings = [f"{w.category.__name__}: {_first_line(str(w.message))}" for w in caught]


def _first_line(text: str) -> str:
    return text.strip().split("\n")[0]
