"""Names of topic ids, read a little at a time from what passes by."""

from uuid import UUID

from proxy.cluster import topics as module
from proxy.cluster.topics import SLICE, Topics
from tests.messages import part_of, response


def metadata(version: int, *topics: tuple[str | None, int], number: int = 1) -> bytes:
    """A response with (name, id)."""
    from random import Random

    from kio.index import load_response_schema

    from tests.messages import make

    schema = part_of(load_response_schema(3, version), "topics")
    made = tuple(make(schema, Random(1), name=name, topic_id=UUID(int=i), partitions=()) for name, i in topics)
    return response(3, version, number, brokers=(), topics=made)


def key(i: int) -> bytes:
    return UUID(int=i).bytes


def drain(topics: Topics) -> int:
    rounds = 1
    while topics.work():
        rounds += 1
    return rounds


def test_names_are_learnt_and_changed_and_kept():
    topics = Topics()
    assert topics.learn(metadata(12, ("orders", 1), ("users", 2)), 12)
    assert topics.name(key(1)) is None
    drain(topics)
    assert (topics.name(key(1)), topics.name(key(2)), topics.name(key(3))) == ("orders", "users", None)
    topics.learn(metadata(12, ("orders", 3)), 12)
    drain(topics)
    assert topics.name(key(3)) == topics.name(key(1)) == "orders"
    assert len(topics) == 3


def test_a_large_response_is_read_a_slice_at_a_time():
    topics = Topics()
    topics.learn(metadata(12, *((f"t{i}", i + 1) for i in range(SLICE * 3 + 1))), 12)
    assert topics.work()
    assert len(topics) == SLICE
    assert drain(topics) >= 3
    assert len(topics) == SLICE * 3 + 1
    assert not topics.work()


def test_a_response_like_an_earlier_one_is_not_read_again():
    topics = Topics()
    assert topics.learn(metadata(12, ("orders", 1), number=1), 12)
    assert not topics.learn(metadata(12, ("orders", 1), number=2), 12)
    assert topics.learn(metadata(12, ("orders", 2), number=3), 12)


def test_versions_without_ids_teach_nothing():
    topics = Topics()
    assert not topics.learn(response(3, 9), 9)
    assert not topics.work()


def test_topics_without_a_name_or_an_id_teach_nothing():
    topics = Topics()
    topics.learn(metadata(12, (None, 1), ("orders", 0)), 12)
    drain(topics)
    assert len(topics) == 0


def test_what_cannot_be_read_does_no_harm_to_what_can():
    topics = Topics()
    topics.learn(metadata(12, ("orders", 1))[:-20], 12)
    topics.learn(metadata(12, ("users", 2)), 12)
    drain(topics)
    assert topics.name(key(2)) == "users"


def test_a_response_that_was_pushed_out_of_the_queue_is_read_when_it_comes_again():
    """A burst of answers must not make the proxy deaf to the ones it had no time for."""
    topics = Topics()
    frames = [metadata(12, (f"t{i}", i + 1)) for i in range(module.MAX_WAITING + 4)]
    for _ in range(3):
        for frame in frames:
            topics.learn(frame, 12)
        drain(topics)
        for frame in reversed(frames):
            topics.learn(frame, 12)
        drain(topics)
    assert len(topics) == len(frames)


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "MAX_TOPICS", 3)
    topics = Topics()
    for i in range(6):
        topics.learn(metadata(12, (f"t{i}", i + 1)), 12)
        drain(topics)
    assert len(topics) == 3
    assert topics.name(key(6)) == "t5"
