"""Settings of the storage quota: each mistake is told with its key, and what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.config.limits import limits_of
from quota.kinds.storage import Below, Scope, StorageLimits
from tests.config.test_load import load, mistake


def storage(tmp_path: Path, text: str) -> StorageLimits | None:
    return limits_of(load(tmp_path, f"quotas:\n  storage:\n    {text}\n")).option(StorageLimits)


def test_the_example_of_the_design(tmp_path: Path) -> None:
    text = "{source: cluster, check_interval: PT1M, min_available_ratio: 0.1, fallback_throttle_factor: 0.5,"
    text += " throttle_factor_validity: PT2M, scope: volume}"
    tenth = Below(ratio=0.1)
    assert storage(tmp_path, text) == StorageLimits(tenth, tenth, fallback=0.5, validity=120.0, scope=Scope.VOLUME)


@pytest.mark.parametrize(
    ("text", "hard", "soft"),
    [
        ("{min_available_bytes: 1GB}", Below(10**9), Below(10**9)),
        ("{min_available_ratio: 0}", Below(ratio=0.0), Below(ratio=0.0)),
        ("{min_available_ratio: 1}", Below(ratio=1.0), Below(ratio=1.0)),
        ("{hard: {min_available_bytes: 1GB}}", Below(10**9), Below(10**9)),
        ("{hard: {min_available_bytes: 1GB}, soft: {min_available_bytes: 5GB}}", Below(10**9), Below(5 * 10**9)),
        ("{hard: {min_available_bytes: 1GB}, soft: {min_available_ratio: 0.05}}", Below(10**9), Below(ratio=0.05)),
        ("{source: local, log_dirs: [/a], max_used: {hard: 100, soft: 60}}", Below(0.0), Below(40.0)),
        ("{source: local, log_dirs: [/a], max_used: {hard: 100}}", Below(0.0), Below(0.0)),
    ],
)
def test_limits(tmp_path: Path, text: str, hard: Below, soft: Below) -> None:
    found = storage(tmp_path, text)
    assert found is not None
    assert (found.hard, found.soft) == (hard, soft)


@pytest.mark.parametrize(
    "text", ["{check_interval: PT0S}", "{check_interval: 0}", "{check_interval: PT0S, min_available_ratio: 0.1}"]
)
def test_no_interval_is_off_and_needs_no_limit(tmp_path: Path, text: str) -> None:
    assert storage(tmp_path, text) is None


def test_without_the_section_it_is_off(tmp_path: Path) -> None:
    assert limits_of(load(tmp_path, "quotas: {}")).option(StorageLimits) is None


S = "quotas.storage"


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        ("{}", S, "no limit is set"),
        ("{min_available_bytes: 1GB, min_available_ratio: 0.1}", S, "set exactly one limit"),
        ("{min_available_bytes: 1GB, hard: {min_available_ratio: 0.1}}", S, "`min_available_bytes` and `hard`"),
        ("{soft: {min_available_bytes: 1GB}}", S, "`soft` is set without `hard`"),
        ("{min_available_bytes: 1GB, soft: {min_available_bytes: 2GB}}", S, "needs `hard`"),
        ("{hard: {}}", "quotas.storage.hard", "exactly one of `min_available_bytes` and `min_available_ratio`"),
        ("{hard: {min_available_bytes: 1, min_available_ratio: 0.1}}", "quotas.storage.hard", "exactly one of"),
        ("{hard: {min_available_bytes: 2GB}, soft: {min_available_bytes: 1GB}}", S, "below `hard.min_available_bytes`"),
        ("{hard: {min_available_ratio: 0.2}, soft: {min_available_ratio: 0.1}}", S, "`soft.min_available_ratio` 0.1"),
        ("{min_available_ratio: 1.01}", "quotas.storage.min_available_ratio", "less than or equal to 1"),
        ("{min_available_ratio: -0.1}", "quotas.storage.min_available_ratio", "greater than or equal to 0"),
        ("{min_available_ratio: .nan}", "quotas.storage.min_available_ratio", "finite"),
        ("{min_available_bytes: -5}", "quotas.storage.min_available_bytes", "a size, such as"),
        ("{min_available_bytes: 10%}", "quotas.storage.min_available_bytes", "a size, such as"),
        ("{min_available_ratio: 0.1, fallback_throttle_factor: 2}", "quotas.storage.fallback_throttle_factor", "or equal"),
        ("{min_available_ratio: 0.1, check_interval: -PT1M}", "quotas.storage.check_interval", "a duration, such as"),
        ("{min_available_ratio: 0.1, check_interval: P1W}", "quotas.storage.check_interval", "a duration, such as"),
        ("{min_available_ratio: 0.1, throttle_factor_validity: P1M}", "quotas.storage.throttle_factor_validity", "a duration"),
        ("{min_available_ratio: 0.1, throttle_factor_validity: P1Y}", "quotas.storage.throttle_factor_validity", "a duration"),
        ("{min_available_ratio: 0.1, throttle_factor_validity: -1s}", "quotas.storage.throttle_factor_validity", "a duration"),
        ("{min_available_ratio: 0.1, check_timeout: 0}", "quotas.storage.check_timeout", "greater than 0"),
        ("{min_available_ratio: 0.1, scope: topic}", "quotas.storage.scope", "'cluster' or 'volume'"),
        ("{min_available_ratio: 0.1, release_margin: -1}", "quotas.storage.release_margin", "greater than or equal to 0"),
        ("{min_available_ratio: 0.1, log_dirs: [/a]}", S, "`log_dirs` is for `source: local`"),
        ("{max_used: {hard: 1GB}}", S, "`max_used` is for `source: local`"),
        ("{source: local, min_available_ratio: 0.1}", S, "needs `log_dirs`"),
        ("{source: local, log_dirs: [/a], min_available_ratio: 0.1, scope: volume}", S, "`scope: volume` needs"),
        ("{source: local, log_dirs: [/a], max_used: {hard: 1, soft: 2}}", "quotas.storage.max_used", "`soft` 2 is above `hard` 1"),
        ("{source: local, log_dirs: [/a], max_used: {soft: 2}}", "quotas.storage.max_used.hard", "required"),
        ("{min_available_ratios: 0.1}", "quotas.storage.min_available_ratios", "`min_available_ratio` is probably meant"),
    ],
)  # fmt: skip
def test_mistakes(tmp_path: Path, text: str, key: str, says: str) -> None:
    told = mistake(tmp_path, f"quotas:\n  storage: {text}\n")
    assert "line 2" in told
    assert f"`{key}`" in told
    assert says in told
