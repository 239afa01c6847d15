"""What is limited by user and by address is limited for all workers of a proxy together, on a cluster with logins."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from localkafka import LocalCluster
from tests.real.proxies import wait_until
from tests.real.tenancy import logged_in, upstream
from tests.real.test_workers import WORKERS, workers

pytestmark = pytest.mark.kafka

GONE = (OSError, EOFError)


def test_a_limit_of_a_user_holds_for_all_workers_together(tenants3: LocalCluster, tmp_path: Path) -> None:
    """However many log in at once, and again after some have gone."""
    limits = {"max_connections_per_principal": 4}
    with workers(tenants3, tmp_path, limits=limits, upstream=upstream()) as proxy, ExitStack() as stack:

        def served(_: int = 0, user: str = "tenant") -> ExitStack | None:
            own = stack.enter_context(ExitStack())
            try:
                connection = own.enter_context(logged_in(proxy.bootstrap, user))
                connection.decoded(3, 9, topics=[])
            except GONE:
                own.close()
                return None
            return own

        with ThreadPoolExecutor(20) as pool:
            there = [it for it in pool.map(served, range(20)) if it is not None]
        assert len(there) <= 4
        there += [it for it in (served() for _ in range(8)) if it is not None]
        assert len(there) == 4
        assert served(user="other") is not None
        for one in there[:2]:
            one.close()
        wait_until(lambda: served() is not None, "one more to be let in")
        wait_until(lambda: served() is not None, "another one")
        assert served() is None
        assert proxy.metric("limit_hits_total", limit="max_connections_per_principal") >= WORKERS


def test_rates_of_connections_hold_for_all_workers_together(tenants3: LocalCluster, tmp_path: Path) -> None:
    """Of an address, before its login, and of a user."""
    rate, burst, refusals, seconds = 2, 10, 20, 4
    quotas = {"connections": {"per_address": rate}}
    with workers(tenants3, tmp_path, quotas=quotas, upstream=upstream()) as proxy:
        began, served, refused = time.monotonic(), 0, 0
        while refused < refusals:
            try:
                with logged_in(proxy.bootstrap, None) as connection:
                    connection.decoded(18, 3, client_software_name="x", client_software_version="1")
                    served += 1
            except GONE:
                refused += 1
            assert time.monotonic() < began + 90, f"{served} are let in, and {refused} refused"
        took = time.monotonic() - began
        assert rate * burst <= served <= rate * (burst + took) + 2 * WORKERS, f"{served} in {took:.1f} s"
    entities = [{"user": "tenant", "cluster_connection_rate": rate}]
    with workers(tenants3, tmp_path / "user", quotas={"entities": entities}, upstream=upstream()) as proxy:
        began = time.monotonic()
        for _ in range(rate * (burst + seconds)):
            with logged_in(proxy.bootstrap, "tenant") as connection:
                connection.decoded(3, 9, topics=[])
        took = time.monotonic() - began
        proxy.wait_for("over quota", quota="connection_rate", action="throttle")
        assert took >= seconds - 2 * WORKERS / rate, f"{rate * (burst + seconds)} in {took:.1f} s"
