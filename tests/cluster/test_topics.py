"""Names of topic ids and sizes of topics, read a little at a time from what passes by."""

import functools
from random import Random
from uuid import UUID

import pytest
from kio.index import load_response_schema

from proxy.cluster import topics as module
from proxy.cluster.topics import SLICE, Topics
from quota.kinds.bytes_in import BytesIn, TopicLimits
from tests.messages import make, part_of, response


def metadata(version: int, *topics: tuple[str | None, int], number: int = 1, partitions: int = 0) -> bytes:
    """A response with (name, id); id 0 is one that is not there (error 3)."""
    schema = part_of(load_response_schema(3, version), "topics")
    part = part_of(schema, "partitions")
    parts = tuple(make(part, Random(i)) for i in range(partitions))
    made = tuple(
        make(schema, Random(1), name=name, topic_id=UUID(int=i), error_code=0 if i else 3, partitions=parts if i else ())
        for name, i in topics
    )
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


def learn(topics: Topics, frame: bytes, version: int = 12) -> None:
    topics.learn(frame, version)
    drain(topics)


@pytest.mark.parametrize("version", [10, 11, 12, 13])
def test_sizes_are_learnt_and_changed(version):
    topics = Topics()
    assert topics.size("orders") is None
    learn(topics, metadata(version, ("orders", 1), ("users", 2), partitions=3), version)
    learn(topics, metadata(version, ("users", 2), ("others", 3), partitions=200), version)
    assert [topics.size(name) for name in ("orders", "users", "others", "nobody")] == [3, 200, 200, None]


def test_a_topic_that_was_made_again_has_the_size_of_the_new_one():
    topics = Topics()
    learn(topics, metadata(12, ("orders", 1), partitions=3))
    learn(topics, metadata(12, ("orders", 2), partitions=5))
    assert topics.size("orders") == 5
    assert topics.name(key(1)) == topics.name(key(2)) == "orders"


def test_a_topic_that_was_deleted_is_forgotten():
    topics = Topics()
    learn(topics, metadata(12, ("orders", 1), ("users", 2), partitions=3))
    topics.forget("orders")
    topics.forget("orders")
    topics.forget("nobody")
    assert (topics.size("orders"), topics.size("users")) == (None, 3)
    assert topics.name(key(1)) == "orders", "answers about the deleted topic still pass by"
    learn(topics, metadata(12, ("orders", 5), partitions=4))
    assert topics.size("orders") == 4


@pytest.mark.parametrize("version", [10, 12])
def test_an_answer_that_a_topic_is_not_there_makes_it_forgotten(version):
    topics = Topics()
    learn(topics, metadata(version, ("orders", 1), ("users", 2), partitions=3), version)
    learn(topics, metadata(version, ("orders", 0), ("others", 3), partitions=6), version)
    assert [topics.size(name) for name in ("orders", "users", "others")] == [None, 3, 6]


def test_an_answer_that_does_not_name_a_topic_leaves_it_known():
    topics = Topics()
    learn(topics, metadata(12, ("orders", 1), partitions=3))
    learn(topics, metadata(12, ("users", 2), partitions=3))
    assert topics.size("orders") == 3


def test_the_same_answer_makes_a_topic_forgotten_as_often_as_it_comes():
    topics = Topics()
    gone = metadata(12, ("orders", 0))
    for i in range(1, 4):
        learn(topics, metadata(12, ("orders", i), partitions=i))
        assert topics.size("orders") == i
        learn(topics, gone)
        assert topics.size("orders") is None


def test_the_same_long_answer_makes_a_topic_forgotten_as_often_as_it_comes():
    """The one that is not there stands in its first slice, the rest is read later."""
    topics = Topics()
    gone = metadata(12, ("orders", 0), *((f"t{i}", 100 + i) for i in range(SLICE * 2)))
    for i in range(1, 4):
        learn(topics, metadata(12, ("orders", i), partitions=i))
        assert topics.learn(gone, 12)
        assert topics.work()
        learn(topics, metadata(12, ("users", i)))
        assert topics.size("orders") is None


def test_answers_are_heeded_in_the_order_in_which_they_came():
    topics = Topics()
    topics.learn(metadata(12, ("orders", 1), partitions=3), 12)
    topics.learn(metadata(12, ("orders", 0)), 12)
    drain(topics)
    assert topics.size("orders") is None
    topics.learn(metadata(12, ("orders", 0)), 12)
    topics.learn(metadata(12, ("orders", 2), partitions=4), 12)
    drain(topics)
    assert topics.size("orders") == 4


def test_a_topic_is_known_again_when_the_same_answer_about_it_comes_again():
    """A broker that lags behind, or a client that may not see it, is told that it is not there; it is all the same."""
    topics = Topics()
    there = metadata(12, ("orders", 1), partitions=3)
    learn(topics, there)
    learn(topics, metadata(12, ("orders", 0)))
    learn(topics, there)
    assert topics.size("orders") == 3


def test_a_topic_that_was_not_deleted_after_all_is_known_again():
    """The broker refused to delete it, and answers as before."""
    topics = Topics()
    there = metadata(12, ("orders", 1), partitions=3)
    learn(topics, there)
    topics.forget("orders")
    learn(topics, there)
    assert topics.size("orders") == 3


def test_versions_without_ids_teach_no_size():
    topics = Topics()
    schema = part_of(load_response_schema(3, 9), "topics")
    topic = make(schema, Random(1), name="orders", partitions=(make(part_of(schema, "partitions"), Random(1)),))
    assert not topics.learn(response(3, 9, brokers=(), topics=(topic,)), 9)
    drain(topics)
    assert topics.size("orders") is None


def test_a_topic_without_a_name_teaches_no_size_and_does_no_harm():
    topics = Topics()
    learn(topics, metadata(12, ("orders", 1), partitions=3))
    learn(topics, metadata(12, (None, 0), (None, 7), partitions=2))
    assert (topics.size(""), topics.size("orders"), len(topics)) == (None, 3, 1)


def test_memory_of_sizes_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "MAX_TOPICS", 3)
    topics = Topics()
    for i in range(6):
        learn(topics, metadata(12, (f"t{i}", i + 1), partitions=2))
    assert [topics.size(f"t{i}") for i in range(6)] == [None, None, None, 2, 2, 2]
    learn(topics, metadata(12, ("t4", 5), partitions=9))
    assert [topics.size(f"t{i}") for i in range(3, 6)] == [2, 9, 2], "one that is known takes no place"


def test_memory_of_answers_is_bounded_though_topics_come_and_go(monkeypatch):
    monkeypatch.setattr(module, "MAX_REMEMBERED", 3)
    topics = Topics()
    for i in range(8):
        learn(topics, metadata(12, (f"t{i}", 0)))
        learn(topics, metadata(12, (f"t{i}", i + 1), partitions=1))
    assert len(topics._seen) <= 3
    assert topics.size("t7") == 1


class Watch:
    """The topics that there are, as they come and go."""

    def __init__(self) -> None:
        self.there: list[str] = []

    def topic_came(self, name: str) -> None:
        assert name not in self.there
        self.there.append(name)

    def topic_went(self, name: str) -> None:
        self.there.remove(name)


@pytest.mark.parametrize("version", [9, 12])
def test_who_watches_is_told_of_topics_that_come_and_go(version):
    watch = Watch()
    topics = Topics(watch)
    many = [f"t{i}" for i in range(SLICE * 2)]
    topics.learn_all(all_topics(version, many), version)
    drain(topics)
    assert watch.there == many
    topics.learn_size("orders", 3)
    topics.learn_size("orders", 6)
    assert watch.there == [*many, "orders"], "it was created here, before any broker says so"
    topics.forget("orders")
    topics.forget("orders")
    assert watch.there == many
    topics.learn_all(all_topics(version, many[1:]), version)
    drain(topics)
    assert watch.there == many[1:], "deleted elsewhere"
    topics.learn_all(all_topics(version, many), version)
    drain(topics)
    assert sorted(watch.there) == sorted(many), "and made again"


def all_topics(version: int, names: list[str]) -> bytes:
    schema = part_of(load_response_schema(3, version), "topics")
    ids = [{"topic_id": UUID(int=i + 1)} if version >= 10 else {} for i in range(len(names))]
    made = tuple(
        make(schema, Random(1), name=name, error_code=0, partitions=(), **given) for name, given in zip(names, ids, strict=True)
    )
    return response(3, version, 1, brokers=(), topics=made)


def test_what_clients_ask_for_makes_no_topic_go():
    watch = Watch()
    topics = Topics(watch)
    topics.learn_all(metadata(12, ("orders", 1), ("users", 2)), 12)
    drain(topics)
    topics.learn(metadata(12, ("bills", 3)), 12)
    drain(topics)
    assert watch.there == ["orders", "users", "bills"]
    topics.learn(metadata(12, ("orders", 0)), 12)
    drain(topics)
    assert watch.there == ["users", "bills"], "a broker says that it is not there"


# ---------------------------------------------------------------------- what tells nothing

NOT_AUTHORIZED, UNKNOWN_TOPIC_ID = 29, 100


def said(name: str | None, error: int, topic_id: int = 0, version: int = 12) -> bytes:
    """A response with an error about one topic."""
    schema = part_of(load_response_schema(3, version), "topics")
    made = make(schema, Random(1), name=name, topic_id=UUID(int=topic_id), error_code=error, partitions=())
    return response(3, version, 1, brokers=(), topics=(made,))


@pytest.mark.parametrize("error", [NOT_AUTHORIZED, 5, 17, -1])
def test_an_answer_that_a_client_may_not_see_a_topic_says_nothing_about_it(error):
    watch = Watch()
    topics = Topics(watch)
    learn(topics, metadata(12, ("orders", 1), partitions=3))
    learn(topics, said("orders", error))
    assert (topics.size("orders"), watch.there) == (3, ["orders"])
    learn(topics, said("secret", error, 7))
    assert (topics.size("secret"), topics.name(key(7))) == (None, None), "nor that it is there"


def test_an_unknown_topic_id_makes_no_topic_go():
    topics = Topics()
    learn(topics, metadata(12, ("orders", 1), partitions=3))
    learn(topics, said(None, UNKNOWN_TOPIC_ID, 1))
    assert topics.size("orders") == 3


def test_what_clients_ask_for_does_not_push_the_proxy_s_own_answer_out_of_the_queue():
    topics = Topics()
    topics.learn_all(all_topics(12, ["orders"]), 12)
    for i in range(module.MAX_WAITING * 3):
        topics.learn(metadata(12, (f"t{i}", i + 10)), 12)
    assert len(topics._waiting) <= module.MAX_WAITING
    drain(topics)
    assert topics.size("orders") == 0


def learn_all(topics: Topics, *names: str) -> None:
    topics.learn_all(all_topics(12, list(names)), 12)
    drain(topics)


def test_what_the_proxy_itself_may_not_see_is_not_gone():
    """An identity without Describe gets an answer without the topic, again and again."""
    watch = Watch()
    topics = Topics(watch)
    learn(topics, metadata(12, ("orders", 1), partitions=3))
    learn_all(topics)
    learn_all(topics, "other")
    assert watch.there == ["orders", "other"]
    assert topics.size("orders") == 3


def test_a_topic_that_a_client_heard_of_goes_with_the_answer_after_the_next():
    """The proxy's identity lost its right, or the topic went after the client had asked: who knows."""
    watch = Watch()
    topics = Topics(watch)
    learn_all(topics, "orders")
    learn(topics, metadata(12, ("orders", 1), partitions=4))
    learn_all(topics)
    assert watch.there == ["orders"]
    learn_all(topics)
    assert watch.there == []


def test_brokers_that_are_behind_do_not_bring_a_deleted_topic_back():
    """Clients and the proxy ask several brokers, and some hear of it later than the one that deleted it."""
    watch = Watch()
    topics = Topics(watch)
    learn_all(topics, "orders", "users")
    topics.deleted("orders")
    learn(topics, metadata(12, ("orders", 1), partitions=3))
    learn_all(topics, "orders", "users")
    learn(topics, metadata(12, ("orders", 1), partitions=3))
    assert watch.there == ["users"]
    assert topics.size("orders") is None
    learn_all(topics, "orders", "users")
    assert watch.there == ["users"]
    learn(topics, metadata(12, ("orders", 1), partitions=3))
    assert watch.there == ["users", "orders"], "it was made again elsewhere, or not deleted after all"


def test_a_deleted_topic_that_is_made_again_here_is_there_at_once():
    watch = Watch()
    topics = Topics(watch)
    learn_all(topics, "orders")
    topics.deleted("orders")
    topics.learn_size("orders", 2)
    learn(topics, metadata(12, ("orders", 9), partitions=3))
    assert watch.there == ["orders"]
    assert (topics.size("orders"), topics.name(key(9))) == (3, "orders")


def test_where_all_topics_are_not_asked_for_whoever_names_a_deleted_topic_is_believed():
    topics = Topics()
    topics.learn_size("orders", 2)
    topics.deleted("orders")
    learn(topics, metadata(12, ("orders", 1), partitions=3))
    assert topics.size("orders") == 3


def test_memory_of_deleted_topics_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "MAX_DELETED", 10)
    topics = Topics()
    learn_all(topics)
    for i in range(100):
        topics.deleted(f"t{i}")
    assert len(topics._deleted) == 10


def test_what_is_read_of_an_answer_that_is_cut_off_makes_nothing_go():
    watch = Watch()
    topics = Topics(watch)
    names = [f"t{i}" for i in range(SLICE * 2)]
    learn_all(topics, *names)
    topics.learn_all(all_topics(12, names)[:-50], 12)
    drain(topics)
    assert watch.there == names


# ---------------------------------------------------------------------- what answers about topics do to thresholds


@functools.cache
def accepted(*, refused_every: float = 0, poll_every: float = 0, seen_every: float = 0, gone_every: float = 0) -> float:
    """Bytes per second of `orders` that pass in two minutes: 5,000 are wanted, where 500 of 1,000 are its threshold. Meanwhile
    answers come every so many seconds: that a client may not see it, all that an identity without rights sees, that it is there,
    and that it is not."""
    limits = BytesIn(TopicLimits(1000, {"orders": 500}))
    topics = Topics(limits)
    there = metadata(12, ("orders", 7), partitions=2)
    answers = ((refused_every, said("orders", NOT_AUTHORIZED)), (seen_every, there), (gone_every, said("orders", 3)))
    learn(topics, there)
    passed = 0
    for step in range(1, 1200):
        now = step / 10
        for every, frame in answers:
            if every and step % int(every * 10) == 5:
                learn(topics, frame)
        if poll_every and step % int(poll_every * 10) == 0:
            learn_all(topics)
        passed += 500 * limits.topic("orders", now).take(500, now)
    return passed / 120


@pytest.mark.parametrize(
    "answers",
    [
        {"refused_every": 1},
        {"refused_every": 5},
        {"poll_every": 10, "seen_every": 5},
        {"poll_every": 10, "seen_every": 20},
        {"refused_every": 5, "seen_every": 5},
        {"refused_every": 1, "seen_every": 1},
        {"gone_every": 5, "seen_every": 3},
    ],
)
def test_no_answer_makes_a_threshold_forgotten(answers):
    """A client that asks for what it may not see, an identity without rights, a broker that lags behind."""
    assert accepted(**answers) == accepted() < 600
