"""Who hears of another proxy before the same cluster, without a ledger, says so once."""

from __future__ import annotations

from typing import Any, cast

import orjson
import pytest

from proxy.cluster.quota_records import BY
from proxy.config.models import Settings
from proxy.process.alone import SEEN_FOR, Alone
from proxy.upstream.quota_relay import Kept
from tests.clients.proxied import Recorder


def record(proxy: object) -> Kept:
    return Kept(1, b"key", b"value", [(BY, orjson.dumps({"principal": "User:admin", "proxy": proxy}))])


@pytest.mark.parametrize(("kind", "told"), [("local", 1), ("kafka", 0)])
def test_another_proxy_that_alters_quotas_is_told_once_and_forgotten_after_a_while(kind: str, told: int) -> None:
    now, log = [0.0], Recorder()
    alone = Alone(Settings.model_validate({"proxy_id": "one", "ledger": {"kind": kind}}), cast(Any, log), lambda: now[0])
    alone.tell()
    alone.altered([record("one"), record(None), record(7), Kept(2, b"", None, [(BY, b"nonsense")])])
    assert alone.reason is None
    alone.altered([record("two"), record("two")])
    alone.altered([record("two")])
    assert len(log.find("quotas are not shared")) == told
    assert (alone.reason is not None) == bool(told)
    assert not told or "proxy two stands before the same cluster" in str(alone.reason)
    now[0] = SEEN_FOR
    assert alone.reason is None
