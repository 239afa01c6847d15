"""Settings of the ledger: what is wrong is told with its key, and what would be right; a password never is."""

from pathlib import Path

import pytest

from proxy.config.load import SettingsError, load_settings


@pytest.mark.parametrize(
    ("ledger", "said"),
    [
        ("{kind: redis}", "`kind: redis` needs `servers`"),
        ("{kind: redis, servers: ['redis://:geheim@redis:6379']}", "an address, such as"),
        ("{kind: redis, servers: [a:1, b:2]}", "`mode: single` takes one of `servers`, not 2"),
        ("{kind: redis, servers: [a:1], mode: sentinel}", "`mode: sentinel` and `sentinel_master` belong together"),
        ("{kind: redis, servers: [a:1], mode: cluster, database: 3}", "a cluster has no database but 0"),
        ("{kind: redis, servers: [a:1], username: proxy}", "`username` needs `password_file` or `password`"),
        ("{kind: redis, servers: [a:1], password: geheim, password_file: x}", "set either `password_file` or `password`"),
        ("{kind: redis, servers: [a:1], stale_after: 100ms}", "`stale_after` 0.1s is less than two times `sync_interval`"),
        ("{kind: redis, servers: [a:1], sync_interval: 1ms}", "`ledger.sync_interval`"),
        ("{kind: redis, servers: [a:1], password: [geheim]}", "`ledger.password`"),
        ("{kind: valkey}", "'redis'"),
        ("{kind: kafka, servers: [a:1]}", "`servers` are those of a Redis"),
        ("{kind: kafka, shards: 2}", "leave out `shards`"),
        ("{kind: kafka, topic: 'a topic'}", "`ledger.topic`"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, ledger: str, said: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(f"upstream: {{bootstrap_servers: [kafka:9092]}}\nledger: {ledger}\n")
    with pytest.raises(SettingsError) as refused:
        load_settings(file)
    assert said in str(refused.value)
    assert "line 2" in str(refused.value)
    assert "geheim" not in str(refused.value)


def test_a_password_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("ledger: {kind: redis, servers: ['[::1]:6379'], username: proxy, password: geheim}\n")
    settings = load_settings(file, {"upstream": {"bootstrap_servers": ["kafka:9092"]}})
    assert settings.ledger.servers[0].host == "::1"
    assert "geheim" not in repr(settings)
