"""The Bloom filter: what it knows it knows, it grows, and is wrong as rarely as was asked."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.hashing import murmur3
from quota.state import BadState, Reader, Writer
from quota.windows.bloom import FIRST, BloomFilter, Layer, shape

IDS = st.integers(0, 2**63 - 1)


def test_the_hash_is_murmur3_of_the_eight_bytes_and_always_the_same():
    assert murmur3(5) == (3585649857798878737, 16939812867961558538)
    assert murmur3(2**63 - 1) != murmur3(0)


@given(st.lists(IDS, max_size=200))
def test_an_id_that_was_added_is_known_and_new_at_most_once(ids):
    one, real = BloomFilter(0.01, murmur3, first=8), set()
    for id in ids:
        assert not one.add(id) or id not in real
        real.add(id)
        assert id in one
        assert not one.add(id)
    assert one.count <= len(real)
    assert all(id in one for id in real)


@pytest.mark.parametrize(("capacity", "rate", "layers"), [(256, 0.01, 40), (256, 0.001, 40), (5000, 0.02, 2), (5000, 0.3, 2)])
def test_a_full_layer_is_wrong_as_often_as_it_is_made_for(capacity, rate, layers):
    """On average: a small one is by chance fuller or emptier than theory has it."""
    random, wrong, expected, trials = Random(capacity), 0, 0.0, 200_000 // layers
    for _ in range(layers):
        layer = Layer(capacity, rate)
        for _ in range(capacity):
            layer.put(*murmur3(random.getrandbits(63)))
        expected += layer.rate() / layers
        wrong += sum(layer.has(*murmur3(random.getrandbits(63))) for _ in range(trials))
    assert expected == pytest.approx(rate, rel=0.05)
    assert wrong / trials / layers == pytest.approx(rate, rel=0.1)


@pytest.mark.parametrize("numbers", ["random", "one after the other"])
@pytest.mark.parametrize("asked", [0.05, pytest.param(0.01, marks=pytest.mark.nightly), 0.001])
def test_all_layers_together_are_wrong_no_more_often_than_asked(numbers, asked):
    """7 layers, filled until the last is full: that is when they are wrong most often."""
    random, one, real = Random(7), BloomFilter(asked, murmur3), set()
    while one.count < FIRST * (2**7 - 1):
        id = random.getrandbits(63) if numbers == "random" else len(real)
        real.add(id)
        one.add(id)
    assert len(one.layers) == 7
    assert len(real) * (1 - asked) <= one.count <= len(real)
    assert one.estimate() == pytest.approx(len(real), rel=0.002)
    trials = 50_000
    wrong = sum((random.getrandbits(63) if numbers == "random" else 2**40 + i) in one for i in range(trials))
    assert 0 < wrong / trials <= asked
    assert one.rate() <= asked


def test_a_layer_has_the_bits_that_theory_asks_for():
    bits, hashes = shape(1000, 0.01)
    assert hashes == 7
    assert bits == pytest.approx(9585, rel=0.01)
    assert bits % 8 == 0


def test_without_room_it_takes_more_than_it_is_for_says_so_and_never_counts_too_much():
    one = BloomFilter(0.01, murmur3)
    size = one.size_bytes
    for id in range(20 * FIRST):
        one.add(id, room=0)
    assert one.size_bytes == size
    assert one.overfull
    assert one.count < 20 * FIRST
    assert all(id in one for id in range(20 * FIRST))
    assert one.rate() > 0.5


def test_the_estimate_makes_up_for_what_is_taken_for_known():
    one = BloomFilter(0.01, murmur3)
    for id in range(6 * FIRST):
        one.add(id, room=0)
    assert one.count < 0.98 * 6 * FIRST
    assert one.estimate() == pytest.approx(6 * FIRST, rel=0.05)


def test_when_there_is_room_again_it_grows_and_nothing_new_is_wrong_in_the_new_layer():
    one = BloomFilter(0.01, murmur3)
    for id in range(3 * FIRST):
        one.add(id, room=0)
    one.add(10**6)
    assert len(one.layers) == 2
    assert one.size_bytes == sum(len(layer.bits) for layer in one.layers)
    assert one.overfull


@pytest.mark.parametrize(("rate", "first"), [(0, 1), (1, 1), (float("nan"), 1), (0.1, 0)])
def test_what_makes_no_filter_is_refused(rate, first):
    with pytest.raises(ValueError, match="rate"):
        BloomFilter(rate, murmur3, first)


def saved(one: BloomFilter) -> Reader:
    out = Writer()
    one.save(out)
    return Reader(out.sealed(b"test"), b"test", 1 << 24)


def test_what_is_saved_comes_back_the_same():
    one = BloomFilter(0.01, murmur3)
    for id in range(5000):
        one.add(id * 7)
    data = saved(one)
    other = BloomFilter.restore(data, 0.01, murmur3)
    data.end()
    assert (other.count, other.size_bytes, other.rate(), other.estimate()) == (
        one.count,
        one.size_bytes,
        one.rate(),
        one.estimate(),
    )
    assert all(id * 7 in other for id in range(5000))
    for id in range(20_000):
        assert one.add(id) == other.add(id)


def test_a_filter_of_another_rate_does_not_come_back():
    one = BloomFilter(0.01, murmur3)
    one.add(1)
    with pytest.raises(BadState):
        BloomFilter.restore(saved(one), 0.001, murmur3)


def test_an_empty_filter_does_not_come_back():
    with pytest.raises(BadState):
        BloomFilter.restore(saved(BloomFilter(0.01, murmur3)), 0.01, murmur3)
