"""Fixtures: a copy of the sources with one more quota, and proxies that run from it in front of a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from localkafka import LocalCluster
from tests.example.copies import ChangedProxy, Copy


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tmp_path_factory.mktemp("copy"))


@pytest.fixture
def start(copy: Copy, kafka3: LocalCluster, tmp_path: Path) -> Iterator[Any]:
    """Starts proxies: a name, settings of `quotas`, other settings."""
    with ExitStack() as stack:

        def started(name: str, quotas: dict[str, Any], **settings: Any) -> ChangedProxy:
            made = ChangedProxy(copy, tmp_path / name, kafka3.bootstrap_servers, proxy_id=name, quotas=quotas, **settings)
            return stack.enter_context(made)

        yield started
