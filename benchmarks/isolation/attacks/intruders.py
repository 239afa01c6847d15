"""With a login, at what belongs to alice: without the rights, or under forged ids and made-up names.

In: an attacker. Out: what it sent and got, in its tally."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.isolation import apis
from benchmarks.isolation.attack import (
    ALICES,
    FORGED,
    MADE_UP,
    MIB,
    NO_RIGHTS,
    Share,
    attack,
    forge_many,
    guesses,
    lower_alice,
    near,
    produce,
)
from benchmarks.isolation.attacker import Attacker
from benchmarks.isolation.tenants import BOB, METERED, fetch_of
from loadtest.entities import milliseconds as ms
from loadtest.entities import record_batch, request_frame


@attack(NO_RIGHTS)
def writes_to_alice(a: Attacker) -> None:
    """mallory writes 600 kB batches to alice's topics, which the broker refuses."""
    big = record_batch(b"x" * 600_000)
    a.ask_again(apis.PRODUCE, lambda i: produce([ALICES[i % len(ALICES)]], big), pause=0.01)


@attack(NO_RIGHTS, threads=2)
def reads_alice(a: Attacker) -> None:
    """mallory fetches alice's records, which the broker refuses."""
    a.ask_again(apis.FETCH, lambda _: fetch_of("alice-read"))


@attack(NO_RIGHTS, threads=3)
def mutates_alice(a: Attacker) -> None:
    """mallory creates topics, adds partitions to topics of alice and deletes them."""

    def deletes(_: int) -> dict[str, Any]:
        return {"topics": [{"name": name} for name in ALICES], "timeout": ms(1000)}

    def grows(i: int) -> dict[str, Any]:
        return {"topics": [{"name": name, "count": 100 + i, "assignments": None} for name in ALICES], "timeout": ms(1000)}

    def creates(i: int) -> dict[str, Any]:
        new = [{"name": f"alice-made-{i}-{j}", "num_partitions": 1, "replication_factor": 1} for j in range(10)]
        return {"topics": new, "timeout": ms(1000)}

    what, values = ((apis.DELETE_TOPICS, deletes), (apis.CREATE_PARTITIONS, grows), (apis.CREATE_TOPICS, creates))[a.number]
    a.ask_again(what, values)


@attack(
    NO_RIGHTS,
    threads=2,
    shows=("gained",),
    seconds=6,
    gains=Share("bytes into bob's topic while the total is exceeded", 14 * METERED, METERED),
)
def asks_for_others(a: Attacker) -> None:
    """mallory asks for metadata of topics of alice and bob, without the right to see them, while bob writes more than the threshold
    of his topic allows."""
    names = (*ALICES, "alice-read", "alice-full", "bob-metered")
    named = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}
    if a.number == 0:
        by_id = {"topics": [{"topic_id": None, "name": None}], "allow_auto_topic_creation": False}
        a.ask_again((3, 12), lambda i: named if i % 2 else by_id)
        return
    much, some = record_batch(b"x" * 900_000), record_batch(b"x" * METERED)
    while a.going():
        with a.connected() as mallory, a.connected(user=BOB) as bob:
            while a.going():
                if a.ask(mallory, apis.PRODUCE, **produce(["mallory-own"], much)).responses[0].partition_responses[0].error_code:
                    # The total is exceeded, or her own batch would not have been refused.
                    a.ask(bob, (3, 12), topics=[{"topic_id": None, "name": "bob-metered"}])
                    written = a.ask(bob, apis.PRODUCE, **produce(["bob-metered"], some))
                    a.tally.gained += METERED * (not written.responses[0].partition_responses[0].error_code)
                    a.ask(mallory, (3, 12), **named)
                    a.ask(mallory, (3, 12), topics=None)


@attack(NO_RIGHTS, threads=3)
def uses_alices_groups(a: Attacker) -> None:
    """mallory commits to, joins and deletes groups of alice."""
    partition = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1}
    commit = {"generation_id_or_member_epoch": -1, "topics": [{"name": "alice-read", "partitions": [partition]}]}
    join = {"protocol_type": "consumer", "session_timeout": ms(6000), "protocols": [{"name": "range", "metadata": b""}]}

    def group(i: int) -> str:
        return f"alice-{i % 50}"

    sorts: tuple[tuple[tuple[int, int], Callable[[int], dict[str, Any]]], ...] = (
        (apis.OFFSET_COMMIT, lambda i: {"group_id": group(i), **commit}),
        (apis.JOIN_GROUP, lambda i: {"group_id": group(i), **join}),
        (apis.DELETE_GROUPS, lambda i: {"groups_names": [group(i)]}),
    )
    a.ask_again(*sorts[a.number])


@attack(NO_RIGHTS)
def alters_quotas(a: Attacker) -> None:
    """mallory sets alice's limits to almost nothing."""
    a.ask_again(apis.ALTER_QUOTAS, lambda _: lower_alice())


@attack(NO_RIGHTS, threads=3)
def uses_alices_transactions(a: Attacker) -> None:
    """mallory uses alice's transactional ids."""
    init = {"transaction_timeout": ms(1000), "producer_id": -1, "producer_epoch": -1}
    topics = [{"name": name, "partitions": [0]} for name in ALICES]

    def add(i: int) -> dict[str, Any]:
        own = {"v3_and_below_producer_id": near(a, i), "v3_and_below_producer_epoch": 0, "v3_and_below_topics": topics}
        return {"v3_and_below_transactional_id": f"alice-{i % 9}", **own}

    sorts: tuple[tuple[tuple[int, int], Callable[[int], dict[str, Any]]], ...] = (
        (apis.INIT_PRODUCER_ID, lambda i: {"transactional_id": f"alice-{i % 9}", **init}),
        (apis.ADD_TO_TRANSACTION, add),
        (apis.END_TRANSACTION, lambda i: {"transactional_id": f"alice-{i % 9}", "producer_id": near(a, i), "producer_epoch": 0}),
    )
    a.ask_again(*sorts[a.number])


@attack(FORGED, threads=2)
def forged_ids(a: Attacker) -> None:
    """mallory sends batches, which are refused, with the ids of alice's producers."""
    a.ask_again(apis.PRODUCE, lambda i: guesses(a, i))


@attack(FORGED)
def forged_epochs(a: Attacker) -> None:
    """mallory sends batches with the ids of alice's producers, later epochs and unexpected sequences."""

    def values(i: int) -> dict[str, Any]:
        epoch, sequence = ((32_767, 0), (1, 0), (0, 2**31 - 1), (0, 7))[i % 4]
        return guesses(a, i, [*ALICES, "alice-full"], epoch=epoch, sequence=sequence)

    a.ask_again(apis.PRODUCE, values)


@attack(FORGED)
def forged_init(a: Attacker) -> None:
    """mallory asks for new epochs of the ids of alice's producers."""

    def values(i: int) -> dict[str, Any]:
        return {"transactional_id": None, "transaction_timeout": ms(1000), "producer_id": near(a, i), "producer_epoch": 0}

    a.ask_again(apis.INIT_PRODUCER_ID, values)


@attack(FORGED, seconds=4)
def many_ids(a: Attacker) -> None:
    """mallory sends more refused batches of made-up producers than can be remembered, in requests of 10,000 partitions."""
    forge_many(a, a.target.main)


@attack(MADE_UP, threads=2)
def made_up_topics(a: Attacker) -> None:
    """mallory writes to 2000 topics that do not exist in one request, while the total is exceeded."""
    if a.number == 0:
        big = record_batch(b"x" * 900_000)
        a.ask_again(apis.PRODUCE, lambda _: produce(["mallory-own"], big))
        return
    small = record_batch(b"x")
    a.ask_again(apis.PRODUCE, lambda i: produce([f"mallory-{i}-{j}" for j in range(2000)], small))


@attack(MADE_UP, threads=2)
def made_up_client_ids(a: Attacker) -> None:
    """mallory uses another client id for every request."""
    frame = request_frame(*apis.METADATA, 1, "%%%%%%%%", topics=[{"name": "mallory-own"}])
    number = a.number * MIB
    while a.going():
        with a.connected() as connection:
            while a.going():
                number += 1
                connection.sock.sendall(frame.replace(b"%%%%%%%%", b"%08d" % number))
                a.tally.requests += 1
                connection.frame()
                a.tally.answers += 1


@attack(MADE_UP, threads=2)
def claimed_client_id(a: Attacker) -> None:
    """mallory writes records and creates topics with alice's client id."""
    batch = record_batch(b"x" * 100_000)
    new = {"num_partitions": 20, "replication_factor": 1}
    if a.number == 0:
        a.ask_again(apis.PRODUCE, lambda _: produce(["mallory-own"], batch), client_id="alice-app")
    else:
        topics = lambda i: {"topics": [{"name": f"{a.target.user}-{i}", **new}], "timeout": ms(1000)}  # noqa: E731
        a.ask_again(apis.CREATE_TOPICS, topics, client_id="alice-app")


@attack(MADE_UP)
def exempt_client_id(a: Attacker) -> None:
    """mallory claims a client id that is exempt, and writes to a full volume."""
    batch = record_batch(b"x" * 100_000)
    a.ask_again(apis.PRODUCE, lambda i: produce(["mallory-full" if i % 2 else "mallory-own"], batch), client_id="exempt-tool")


@attack(MADE_UP, threads=2)
def made_up_transactions(a: Attacker) -> None:
    """mallory makes up transactional ids."""
    init = {"transaction_timeout": ms(1000), "producer_id": -1, "producer_epoch": -1}
    if a.number == 0:
        a.ask_again(apis.INIT_PRODUCER_ID, lambda i: {"transactional_id": f"mallory-{i}", **init}, pause=0.01)
    else:
        a.ask_again(apis.FIND_COORDINATOR, lambda i: {"key": f"made-up-{i}", "key_type": 1})


@attack(MADE_UP, threads=2)
def auto_created(a: Attacker) -> None:
    """mallory causes 600 topics to be created by naming them in Metadata requests, each on a new connection."""
    while a.going() and a.tally.requests < 30:
        names = [{"name": f"{a.target.user}-auto-{a.number}-{a.tally.requests}-{j}"} for j in range(10)]
        with a.connected() as connection:
            a.ask(connection, (3, 1), topics=names)
