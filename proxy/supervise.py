"""Restarts background work that ends, and logs errors that no task waits for. In: work that should never end; errors of callbacks
and tasks. Out: work that is started again, or a proxy that stops; a line in the operations log in either case.

If work keeps ending, the proxy would be only half alive. It then stops with a critical line and exit code 1, so that its service
manager starts it again. Threads are not supervised here: the usage log's thread goes on after any error (`observe.writer`), and the
thread that looks at file systems hands its error to the task that waits for it (`upstream.volumes`)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from proxy.observe.operations import Log

PAUSE: Final = 1.0
"""Seconds until work that ended is started again."""
RESTARTS: Final = 5
WITHIN: Final = 60.0
"""Seconds; work that ends once more within them, after as many restarts, ends the proxy."""
LOG_INTERVAL: Final = 10.0
"""Seconds in which an error that no task waits for is logged once: a client may be able to cause it with every request."""
MAX_KINDS: Final = 100
"""Kinds of such errors that are counted apart."""

Work = Callable[[], Coroutine[Any, Any, None]]


class Supervisor:
    """One per proxy. Made on the event loop."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._loop = asyncio.get_running_loop()
        self.failed = asyncio.Event()
        """Something cannot be kept going: the proxy is to end."""
        self._logged_until: dict[str, float] = {}
        self._unlogged = 0
        self._loop.set_exception_handler(self._unhandled)

    def keep(self, name: str, work: Work, *, once: bool = False) -> asyncio.Task[None]:
        """Keep this going until the task is cancelled. `once`: it may end by itself, but not by an error."""
        task = self._loop.create_task(self._keep(name, work, once=once), name=name)
        task.add_done_callback(self._ended)
        return task

    async def _keep(self, name: str, work: Work, *, once: bool) -> None:
        ends: deque[float] = deque(maxlen=RESTARTS)
        while True:
            error = await _outcome(work)
            if error is None and once:
                return
            now = self._loop.time()
            if len(ends) == RESTARTS and now - ends[0] < WITHIN:
                self._fail(name, error, f"it ended {RESTARTS + 1} times within {WITHIN:g} s; the proxy stops")
                return
            ends.append(now)
            detail = f"it is started again in {PAUSE:g} s" + ("" if error else "; it ended by itself")
            self._log.error("internal error", task=name, detail=detail, exc_info=error)
            await asyncio.sleep(PAUSE)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """What keeps work going fails itself: nothing is left that could go on."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(task.get_name(), error, "the proxy stops")

    def _fail(self, name: str, error: BaseException | None, detail: str) -> None:
        self.failed.set()
        self._log.critical("internal error", task=name, detail=detail, exc_info=error)

    def _unhandled(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The loop's exception handler: an error in a callback, a protocol, or a task that is not awaited."""
        error, message = context.get("exception"), str(context.get("message"))
        if type(error).__module__.startswith("aiokafka"):  # it is imported only where a topic is configured
            return  # aiokafka leaves a future behind for every batch that fails; the caller got the error already
        kind, now = f"{type(error).__name__} {message}", self._loop.time()
        self._logged_until = {known: until for known, until in self._logged_until.items() if until > now}
        if kind in self._logged_until or len(self._logged_until) >= MAX_KINDS:
            self._unlogged += 1
            return
        self._logged_until[kind] = now + LOG_INTERVAL
        unlogged, self._unlogged = self._unlogged, 0
        self._log.error("internal error", detail=message, not_told=unlogged, exc_info=error)


def tell_end(task: asyncio.Task[Any]) -> None:
    """Done callback of a task that is not awaited: an error that ends it is logged at once."""
    if not task.cancelled() and (error := task.exception()) is not None:
        task.get_loop().call_exception_handler({"message": f"{task.get_name()} ended", "exception": error, "task": task})


async def _outcome(work: Work) -> BaseException | None:
    """Do it to its end. What went wrong; None if it ended by itself."""
    try:
        await work()
    except asyncio.CancelledError as e:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return e  # something that it waited for was cancelled, not the task itself
    except Exception as e:
        return e
    return None
