"""Chaos for a minute and a half on real parts, always with the same faults."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.redis_server import needs_redis

SEED = 32


@pytest.mark.kafka
@pytest.mark.nightly
@needs_redis
@pytest.mark.timeout(600)
def test_nothing_is_lost_under_faults_and_everybody_goes_on() -> None:
    """Kept for the night, as it starts three brokers for two minutes. Simulation (tests/simulation) finds most of what this would;
    tests/real has a test for each of these faults alone."""
    command = [sys.executable, "-m", "tests.chaos", "--duration", "90s", "--seed", str(SEED)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=550, check=False)
    assert ended.returncode == 0, ended.stdout
    assert "Fault " in ended.stdout, ended.stdout
