"""What a writer has done beside the task's thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Errand(Generic[Result]):
    """Something done once on a thread of its own."""

    def __init__(self, do: Callable[[], Result], name: str) -> None:
        self._do = do
        self._result: Result | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"strom-kafka-{name}", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Whether it is done, or failed."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def result(self) -> Result:
        """Once it is done. Raises its error."""
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def _run(self) -> None:
        try:
            self._result = self._do()
        except BaseException as error:
            self._error = error
