"""Where a limit is said to be set: its entry and line in the settings file, or the change that was made while proxies run."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from proxy.config.limits import table_of
from proxy.config.load import load_settings
from proxy.config.models import Settings
from proxy.config.workers import settings_of_worker
from proxy.observe.limit_sources import LimitSources
from quota.entity import Entity
from quota.overrides import Table
from quota.tenants import owner_of

FILE = """\
upstream: {bootstrap_servers: [kafka:9092]}
quotas:
  entities:
    - user: etl
      cluster_request_rate: 5
      cluster_producer_byte_rate: 1MiB
    - {user: <default>, cluster_request_rate: 9}
  topic_rates:
    topics: {orders: {bytes_in: 1MiB}}
tenants:
  shop:
    users: [ann]
    cluster_request_rate: 7
"""


def sources(settings: Settings, dynamic: Table) -> LimitSources:
    positions = {Entity(it.user, it.client_id): i for i, it in enumerate(settings.quotas.entities)}
    limits = {**table_of(settings), **dynamic}
    return LimitSources(lambda: positions, lambda: limits, lambda: dynamic, settings.place)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    file = tmp_path / "settings.yaml"
    file.write_text(FILE)
    return load_settings(file)


def test_the_line_of_the_settings_file_is_named(settings: Settings, tmp_path: Path) -> None:
    of, file = sources(settings, {}).of, tmp_path / "settings.yaml"
    name = "quotas.entities[0].cluster_request_rate: user etl"
    assert of("request_rate", Entity("etl", None)) == (name, f"{file}:5")
    assert of("producer_byte_rate", Entity("etl", None))[1] == f"{file}:6"
    assert of("request_rate", Entity("ann", None)) == ("quotas.entities[1].cluster_request_rate: user <default>", f"{file}:7")
    assert of("topic_producer_byte_rate", Entity(None, None, "orders")) == ("quotas.topic_rates", f"{file}:8")
    assert of("tenant_request_rate", owner_of("shop")) == ("tenants.shop.cluster_request_rate", f"{file}:13")


def test_what_was_set_while_proxies_run_has_no_line(settings: Settings) -> None:
    dynamic = {Entity("etl", None): {"cluster_request_rate": 4.0}, owner_of("shop"): {"cluster_request_rate": 3.0}}
    of = sources(settings, dynamic).of
    assert of("request_rate", Entity("etl", None)) == ("quotas alter cluster_request_rate: user etl", None)
    assert of("tenant_request_rate", owner_of("shop")) == ("quotas alter cluster_request_rate: tenant shop", None)


def test_workers_know_the_lines_and_settings_without_a_file_have_none(settings: Settings, tmp_path: Path) -> None:
    key = ("tenants", "shop", "cluster_request_rate")
    one: Settings = pickle.loads(pickle.dumps(settings_of_worker(settings, 0, 2)))  # noqa: S301  (as a supervisor hands them over)
    assert one.place(key) == f"{tmp_path / 'settings.yaml'}:13"
    assert load_settings(None).place(key) is None


def test_settings_are_the_same_wherever_they_stand(settings: Settings, tmp_path: Path) -> None:
    moved = tmp_path / "moved.yaml"
    moved.write_text("# a comment\n" + FILE)
    assert load_settings(moved) == settings
