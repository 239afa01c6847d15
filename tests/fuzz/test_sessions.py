"""Hundreds of broken dialogues per API, always the same ones; four times as many at night."""

from collections import Counter

import pytest

from tests import properties
from tests.fuzz.sessions import KEYS, one

PER_API = properties.share(1000)


@pytest.mark.parametrize("key", KEYS)
def test_any_input_gives_forwarded_bytes_or_one_report_and_a_close(key):
    outcomes = [one(key, seed) for seed in range(PER_API)]
    ends = Counter(outcome.end for outcome in outcomes)
    assert ends["forwarded"] > PER_API // 40, "so many are broken that nothing is tested behind the first check"
    assert ends["closed"] > 0
    assert sum(outcome.frames for outcome in outcomes) > PER_API * 1.3
