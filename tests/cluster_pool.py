"""The clusters that tests of several files share. In: a name, and how that cluster is made. Out: it, running.

Even a broker that has nothing to do takes some 2 % of a core, more over a whole run than its start takes. So in a worker of
pytest-xdist a cluster ends with the last file of those that come one after the other and ask for it; `tests/parallel.py` sees to it
that they do. Without workers it lasts to the end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, ExitStack

import pytest

from localkafka import LocalCluster
from tests.parallel import clusters_of


class ClusterPool:
    """A plugin of pytest."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[LocalCluster, ExitStack]] = {}

    def get(self, name: str, make: Callable[[], AbstractContextManager[LocalCluster]]) -> LocalCluster:
        """The cluster of this name; it is made where it does not run."""
        if name not in self._running:
            stack = ExitStack()
            self._running[name] = stack.enter_context(make()), stack
        return self._running[name][0]

    def end_others(self, needed: Collection[str]) -> None:
        """End all but these."""
        for name in self._running.keys() - set(needed):
            self._running.pop(name)[1].close()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> object:
        """After the last test of a file, and what it shared with the others."""
        try:
            return (yield)
        finally:
            if nextitem is not None and nextitem.path != item.path and hasattr(item.config, "workerinput"):
                self.end_others(clusters_of(nextitem.path.read_text()))

    def pytest_sessionfinish(self) -> None:
        self.end_others(())
