"""Progress on stderr: a bar on a terminal, silence otherwise."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


class Bar:
    """A listener that draws a transient progress bar; leaves the terminal as it found it."""

    def __init__(self, shown: bool) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[what]}"),
            TimeElapsedColumn(), console=Console(stderr=True), transient=True, disable=not shown,
        )  # fmt: skip
        self._task: object = None
        self.finished: list[str] = []
        self.current: str | None = None

    def __enter__(self) -> Bar:
        """Start drawing."""
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop drawing, on an interruption too."""
        self._progress.stop()

    def start(self, block: object, chunks: int) -> None:
        """See ``sweep.Listener``."""
        self.current = str(block)
        self._id = self._progress.add_task(str(block), total=chunks, what="")

    def advance(self, what: str) -> None:
        """See ``sweep.Listener``."""
        self._progress.update(self._id, advance=1, what=what)

    def tell(self, what: str) -> None:
        """Say what is being done, without a step."""
        self._progress.update(self._id, what=what)

    def finish(self, block: object) -> None:
        """See ``sweep.Listener``."""
        self.finished.append(str(block))
        self.current = None
        self._progress.remove_task(self._id)
