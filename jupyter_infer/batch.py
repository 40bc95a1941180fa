"""Several requests in flight that were asked for together."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import overload

from jupyter_infer.errors import ConfigError, PromptError
from jupyter_infer.handle import RequestHandle
from jupyter_infer.result import Refused, Result
from jupyter_infer.results import Results

__all__ = ["BatchHandle"]


class BatchHandle(Sequence[RequestHandle | Refused]):
    """What `Session.submit_batch` returns: a handle a prompt, in order; a prompt that cannot run is `Refused`."""

    def __init__(self, handles: Sequence[RequestHandle | Refused]) -> None:
        self._handles = tuple(handles)
        self._running = [handle for handle in self._handles if isinstance(handle, RequestHandle)]

    @overload
    def __getitem__(self, index: int) -> RequestHandle | Refused: ...
    @overload
    def __getitem__(self, index: slice) -> BatchHandle: ...
    def __getitem__(self, index: int | slice) -> RequestHandle | Refused | BatchHandle:
        return BatchHandle(self._handles[index]) if isinstance(index, slice) else self._handles[index]

    def __len__(self) -> int:
        return len(self._handles)

    @property
    def done(self) -> bool:
        """Whether all requests are over."""
        return all(handle.done for handle in self._running)

    def cancel(self) -> None:
        """Abort the requests before the engine's next step."""
        for handle in self._running:
            handle.cancel()

    def result(self, timeout: float | None = None) -> Results:
        """Return the `Results` once all requests are over.

        Raises
        ------
        TimeoutError
            If they are not over within `timeout` seconds.
        EngineFailed
            If the engine broke.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        items: list[Result | Refused] = []
        for handle in self._handles:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                items.append(handle if isinstance(handle, Refused) else handle.result(left))
            except (PromptError, ConfigError) as error:  # the engine itself refused it
                items.append(Refused(handle.prompt, error))
        return Results(items)

    def __repr__(self) -> str:
        over = sum(handle.done for handle in self._running)
        return f"BatchHandle({over} of {len(self._running)} done; .result() waits, .cancel() stops)"
