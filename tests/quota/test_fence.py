"""The sequence fence: what stands behind a refused batch waits for it."""

from random import Random

from quota.fence import Fence

HERE = ("orders", 0)


def refused(fence: Fence, sequence: int, *, id: int = 7, epoch: int = 0, part: tuple[str, int] = HERE, now: float = 0.0) -> None:
    fence.refused(id, epoch, sequence, part, 19, "topic_bytes_in", now)


def test_what_is_behind_a_refused_batch_waits_until_that_is_admitted():
    fence = Fence()
    refused(fence, 5)
    blocked = fence.blocks(7, 0, 6, HERE, 1.0)
    assert blocked is not None
    assert (blocked.code, blocked.sequence, blocked.quota) == (19, 5, "topic_bytes_in")
    assert fence.blocks(7, 0, 5, HERE, 1.0) is None, "the refused batch itself is judged again"
    fence.admitted(7, 0, 5, HERE)
    assert fence.blocks(7, 0, 6, HERE, 1.0) is None
    assert (len(fence), fence.by_id) == (0, {})


def test_repetitions_of_earlier_batches_other_partitions_and_other_producers_are_free():
    fence = Fence()
    refused(fence, 5)
    assert fence.blocks(7, 0, 4, HERE, 1.0) is None
    fence.admitted(7, 0, 4, HERE)
    assert fence.blocks(7, 0, 9, HERE, 1.0), "an earlier batch opens nothing"
    assert fence.blocks(7, 0, 9, ("orders", 1), 1.0) is None
    assert fence.blocks(7, 0, 9, ("bills", 0), 1.0) is None
    assert fence.blocks(8, 0, 9, HERE, 1.0) is None


def test_an_earlier_batch_that_is_refused_too_moves_the_fence_down():
    fence = Fence()
    refused(fence, 5)
    refused(fence, 3)
    assert fence.blocks(7, 0, 5, HERE, 1.0)
    fence.admitted(7, 0, 3, HERE)
    assert fence.blocks(7, 0, 5, HERE, 1.0) is None


def test_a_new_epoch_opens_it_and_an_old_one_is_for_the_broker_to_judge():
    fence = Fence()
    refused(fence, 5, epoch=2)
    assert fence.blocks(7, 1, 9, HERE, 1.0) is None
    assert fence.blocks(7, 2, 9, HERE, 1.0)
    assert fence.blocks(7, 3, 0, HERE, 1.0) is None
    assert fence.blocks(7, 2, 9, HERE, 1.0) is None
    assert len(fence) == 0


def test_sequences_wrap():
    fence = Fence()
    refused(fence, 2**31 - 1)
    assert fence.blocks(7, 0, 0, HERE, 1.0)
    assert fence.blocks(7, 0, 2**31 - 5, HERE, 1.0) is None


def test_it_expires_long_after_the_last_that_was_heard():
    fence = Fence(life=900)
    refused(fence, 5, now=0)
    assert fence.blocks(7, 0, 6, HERE, 800)
    assert fence.blocks(7, 0, 6, HERE, 1600), "the client still tries"
    assert fence.blocks(7, 0, 6, HERE, 2500) is None
    refused(fence, 5, now=3000)
    fence.sweep(3899)
    assert len(fence) == 1
    fence.sweep(3900)
    assert (len(fence), fence.by_id) == (0, {})


def test_without_room_nothing_more_is_refused():
    fence = Fence(most=2, life=900)
    refused(fence, 5, id=1)
    refused(fence, 5, id=2, now=10)
    assert fence.room(1, HERE, 20), "it has its place already"
    assert not fence.room(3, HERE, 20)
    assert fence.room(-1, HERE, 20), "a producer without an id needs none"
    assert fence.overflows == 1
    assert fence.room(3, HERE, 900), "the oldest expired"


def test_nothing_is_lost_and_nothing_out_of_order_whatever_is_refused_when():
    """A producer with five batches in flight and a broker that takes whatever comes first, under refusals at random."""
    for seed in range(300):
        chance, fence, log, now = Random(seed), Fence(), [], 0.0
        waiting = list(range(40))
        while waiting:
            flight, failed = waiting[:5], []
            for sequence in flight:
                now += chance.random()
                if fence.blocks(7, 0, sequence, HERE, now):
                    failed.append(sequence)
                elif chance.random() < 0.4:
                    refused(fence, sequence, now=now)
                    failed.append(sequence)
                else:
                    fence.admitted(7, 0, sequence, HERE)
                    log.append(sequence)
            waiting = failed + waiting[5:]
        assert log == list(range(40))
