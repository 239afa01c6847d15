"""The sequence fence: what stands behind a refused batch waits for it."""

from random import Random

from quota.fence import Fence

HERE = ("orders", 0)
ALICE, MALLORY = "alice", "mallory"


def refused(
    fence: Fence, sequence: int, *, id: int = 7, epoch: int = 0, part: tuple[str, int] = HERE, now: float = 0.0, user: str = ALICE
) -> None:
    fence.refused(user, id, epoch, sequence, part, 19, "topic_bytes_in", now)


def test_what_is_behind_a_refused_batch_waits_until_that_is_admitted():
    fence = Fence()
    refused(fence, 5)
    blocked = fence.blocks(ALICE, 7, 0, 6, HERE, 1.0)
    assert blocked is not None
    assert (blocked.code, blocked.sequence, blocked.quota) == (19, 5, "topic_bytes_in")
    assert fence.blocks(ALICE, 7, 0, 5, HERE, 1.0) is None, "the refused batch itself is judged again"
    fence.admitted(ALICE, 7, 0, 5, HERE)
    assert fence.blocks(ALICE, 7, 0, 6, HERE, 1.0) is None
    assert (len(fence), fence.by_id) == (0, {})


def test_repetitions_of_earlier_batches_other_partitions_and_other_producers_are_free():
    fence = Fence()
    refused(fence, 5)
    assert fence.blocks(ALICE, 7, 0, 4, HERE, 1.0) is None
    fence.admitted(ALICE, 7, 0, 4, HERE)
    assert fence.blocks(ALICE, 7, 0, 9, HERE, 1.0), "an earlier batch opens nothing"
    assert fence.blocks(ALICE, 7, 0, 9, ("orders", 1), 1.0) is None
    assert fence.blocks(ALICE, 7, 0, 9, ("bills", 0), 1.0) is None
    assert fence.blocks(ALICE, 8, 0, 9, HERE, 1.0) is None


def test_an_earlier_batch_that_is_refused_too_moves_the_fence_down():
    fence = Fence()
    refused(fence, 5)
    refused(fence, 3)
    assert fence.blocks(ALICE, 7, 0, 5, HERE, 1.0)
    fence.admitted(ALICE, 7, 0, 3, HERE)
    assert fence.blocks(ALICE, 7, 0, 5, HERE, 1.0) is None


def test_a_new_epoch_opens_it_and_an_old_one_is_for_the_broker_to_judge():
    fence = Fence()
    refused(fence, 5, epoch=2)
    assert fence.blocks(ALICE, 7, 1, 9, HERE, 1.0) is None
    assert fence.blocks(ALICE, 7, 2, 9, HERE, 1.0)
    assert fence.blocks(ALICE, 7, 3, 0, HERE, 1.0) is None
    assert fence.blocks(ALICE, 7, 2, 9, HERE, 1.0) is None
    assert len(fence) == 0


def test_sequences_wrap():
    fence = Fence()
    refused(fence, 2**31 - 1)
    assert fence.blocks(ALICE, 7, 0, 0, HERE, 1.0)
    assert fence.blocks(ALICE, 7, 0, 2**31 - 5, HERE, 1.0) is None


def test_it_expires_long_after_the_last_that_was_heard():
    fence = Fence(life=900)
    refused(fence, 5, now=0)
    assert fence.blocks(ALICE, 7, 0, 6, HERE, 800)
    assert fence.blocks(ALICE, 7, 0, 7, HERE, 1600), "the client still tries"
    assert fence.blocks(ALICE, 7, 0, 8, HERE, 2500) is None
    refused(fence, 5, now=3000)
    fence.sweep(3899)
    assert len(fence) == 1
    fence.sweep(3900)
    assert (len(fence), fence.by_id) == (0, {})


def test_a_batch_that_comes_again_for_a_minute_while_the_refused_one_does_not_goes_on() -> None:
    """The refused one was written through another proxy, of which nothing was heard as the store had lost it."""
    fence, told = Fence(), []
    fence.tell = lambda *event: told.append(event)
    refused(fence, 5)
    for now in range(1, 61, 5):
        assert fence.blocks(ALICE, 7, 0, 8, HERE, now)
        assert fence.blocks(ALICE, 7, 0, 9, HERE, now)
    assert fence.blocks(ALICE, 7, 0, 9, HERE, 62.0), "not a later one"
    assert fence.blocks(ALICE, 7, 0, 8, HERE, 62.0) is None
    assert fence.blocks(ALICE, 7, 0, 9, HERE, 62.0) is None
    assert told[-1] == ("admitted", ALICE, 7, 0, 5, *HERE), "so that others do not wait either"


def test_what_came_once_does_not_keep_what_comes_now_waiting_for_ever() -> None:
    fence = Fence()
    refused(fence, 5)
    assert fence.blocks(ALICE, 7, 0, 6, HERE, 1.0), "in flight behind it, and written elsewhere"
    for now in range(10, 130, 5):
        if fence.blocks(ALICE, 7, 0, 9, HERE, now) is None:
            break
    assert now == 125


def test_a_client_that_sends_the_refused_batch_again_waits_for_it_however_long() -> None:
    fence = Fence()
    for now in range(0, 600, 5):
        assert fence.blocks(ALICE, 7, 0, 5, HERE, now) is None
        refused(fence, 5, now=now)
        assert fence.blocks(ALICE, 7, 0, 6, HERE, now + 1)


def test_the_refused_batch_that_comes_begins_the_wait_anew_whatever_becomes_of_it() -> None:
    fence = Fence()
    refused(fence, 5)
    assert fence.blocks(ALICE, 7, 0, 6, HERE, 1.0)
    assert fence.blocks(ALICE, 7, 0, 5, HERE, 50.0) is None, "it waits for a mute, say"
    assert fence.blocks(ALICE, 7, 0, 6, HERE, 70.0)


def test_another_proxy_that_still_waits_does_not_make_the_wait_longer() -> None:
    fence = Fence()
    refused(fence, 5)
    assert fence.blocks(ALICE, 7, 0, 6, HERE, 1.0)
    fence.learn_refused(ALICE, 7, 0, 5, HERE, 19, "topic_bytes_in", 40.0, still=True)
    assert fence.blocks(ALICE, 7, 0, 6, HERE, 61.0) is None


def test_fences_are_of_their_user() -> None:
    fence = Fence()
    refused(fence, 5)
    assert fence.blocks(MALLORY, 7, 0, 9, HERE, 1.0) is None
    assert fence.blocks(MALLORY, 7, 3, 0, HERE, 1.0) is None, "an epoch of somebody else opens nothing"
    fence.admitted(MALLORY, 7, 0, 5, HERE)
    assert fence.blocks(ALICE, 7, 0, 6, HERE, 1.0)
    refused(fence, 0, user=MALLORY)
    assert fence.by_id == {7: 2}
    fence.admitted(ALICE, 7, 0, 5, HERE)
    assert fence.blocks(ALICE, 7, 0, 6, HERE, 1.0) is None
    assert fence.concerns(MALLORY, 7)
    assert not fence.concerns(ALICE, 7)


def overflowing(most: int = 9) -> Fence:
    """Mallory has used up her share, and one refusal more was not remembered."""
    fence = Fence(capacity=most, life=900)
    for id in range(most):
        refused(fence, 0, id=id, user=MALLORY)
    assert fence.overflows == 1
    assert len(fence) == most - 1
    return fence


def test_who_has_used_up_the_share_is_refused_and_nobody_else_notices() -> None:
    fence = overflowing()
    assert fence.blocks(MALLORY, 50, 0, 3, HERE, 1.0), "an earlier one may have been refused unseen"
    assert fence.blocks(MALLORY, 50, 0, 0, HERE, 1.0) is None, "nothing is earlier than the first"
    assert fence.blocks(MALLORY, 1, 0, 0, HERE, 1.0) is None, "the remembered one may come"
    assert fence.overflows == 2
    assert fence.blocks(ALICE, 50, 0, 3, HERE, 1.0) is None
    refused(fence, 3, id=50, now=1.0)
    assert fence.blocks(ALICE, 50, 0, 4, HERE, 1.0), "there is room for the fences of others"


def test_an_overflow_ends_long_after_the_last_refusal_that_nobody_remembers() -> None:
    fence = overflowing()
    assert fence.blocks(MALLORY, 50, 0, 3, HERE, 800.0), "and this is one"
    fence.sweep(1600.0)
    assert len(fence) == 0
    assert fence.blocks(MALLORY, 50, 0, 4, HERE, 1600.0), "it is refused, and remembered now"
    assert fence.blocks(MALLORY, 50, 0, 4, HERE, 1650.0), "it may not be the first that was refused"
    assert fence.blocks(MALLORY, 50, 0, 3, HERE, 1650.0), "indeed there was an earlier one"
    assert fence.blocks(MALLORY, 50, 0, 4, HERE, 1701.0), "from now on it is a fence as any other"
    assert fence.blocks(MALLORY, 50, 0, 3, HERE, 1701.0) is None
    fence.admitted(MALLORY, 50, 0, 3, HERE)
    assert fence.blocks(MALLORY, 50, 0, 4, HERE, 1702.0) is None
    fence.sweep(1702.0)
    assert not fence.concerns(MALLORY, 50)


def test_proxies_tell_each_other_of_an_overflow() -> None:
    here, told = Fence(capacity=9), []
    here.tell = lambda *event: told.append(event)
    for id in range(11):
        refused(here, 0, id=id, user=MALLORY, now=1.0)
    assert [event for event in told if event[0] == "overflow"] == [("overflow", MALLORY)]
    there = Fence()
    there.learn_overflow(MALLORY, 1.0)
    assert there.blocks(MALLORY, 10, 0, 1, HERE, 900.0)
    assert there.blocks(ALICE, 10, 0, 1, HERE, 900.0) is None
    full = Fence(capacity=9)
    for id in range(9):
        full.learn_refused(MALLORY, id, 0, 0, HERE, 19, "bytes_in", 1.0)
    assert full.blocks(MALLORY, 10, 0, 1, HERE, 900.0), "what others refused and there is no room for"


def test_what_was_admitted_is_remembered_by_user() -> None:
    fence = Fence()
    fence.tell = lambda *_: None
    refused(fence, 5)
    fence.admitted(ALICE, 7, 0, 5, HERE)
    for id in range(20_000):
        fence.learn_admitted(MALLORY, id, 0, 0, HERE)
    fence.learn_refused(ALICE, 7, 0, 5, HERE, 19, "bytes_in", 1.0, still=True)
    assert len(fence) == 0, "who repeats a fence has not heard of that"
    assert len(fence._admitted[MALLORY]) < 10_000


def test_nothing_is_lost_in_an_overflow_whatever_is_refused_when() -> None:
    """As below, with a table that is too small, and other producers of the user that come and go."""
    for seed in range(200):
        chance, fence, log, now = Random(seed), Fence(capacity=4, life=50), [], 0.0
        waiting, others = list(range(30)), 0
        while waiting:
            flight, failed = waiting[:5], []
            for sequence in flight:
                now += chance.random() * 5
                if now < 300 and chance.random() < 0.3:
                    others += 1
                    if not fence.blocks(ALICE, 100 + others, 0, 0, HERE, now):
                        refused(fence, 0, id=100 + others, now=now)
                if fence.blocks(ALICE, 7, 0, sequence, HERE, now):
                    failed.append(sequence)
                elif chance.random() < 0.4:
                    refused(fence, sequence, now=now)
                    failed.append(sequence)
                else:
                    fence.admitted(ALICE, 7, 0, sequence, HERE)
                    log.append(sequence)
            waiting = failed + waiting[5:]
            fence.sweep(now)
        assert log == list(range(30))
        assert now > 300


def test_nothing_is_lost_and_nothing_out_of_order_whatever_is_refused_when():
    """A producer with five batches in flight and a broker that takes whatever comes first, under refusals at random."""
    for seed in range(300):
        chance, fence, log, now = Random(seed), Fence(), [], 0.0
        waiting = list(range(40))
        while waiting:
            flight, failed = waiting[:5], []
            for sequence in flight:
                now += chance.random()
                if fence.blocks(ALICE, 7, 0, sequence, HERE, now):
                    failed.append(sequence)
                elif chance.random() < 0.4:
                    refused(fence, sequence, now=now)
                    failed.append(sequence)
                else:
                    fence.admitted(ALICE, 7, 0, sequence, HERE)
                    log.append(sequence)
            waiting = failed + waiting[5:]
        assert log == list(range(40))


def test_a_fence_is_told_again_while_its_producer_tries() -> None:
    """Else other proxies would take it for over while it is not."""
    fence, told = Fence(life=900), []
    fence.tell = lambda *event: told.append(event)
    refused(fence, 5, now=0.0)
    refused(fence, 5, now=10.0)
    for i, now in enumerate((20.0, 299.0, 300.0, 310.0, 599.0, 600.0)):
        assert fence.blocks(ALICE, 7, 0, 6 + i, HERE, now)
    what = (ALICE, 7, 0, 5, *HERE, 19, "topic_bytes_in", False)
    assert told == [("refused", *what), ("still", *what), ("still", *what)]
    refused(fence, 4, now=601.0)
    assert told[-1] == ("refused", ALICE, 7, 0, 4, *HERE, 19, "topic_bytes_in", False), "an earlier one is told at once"
    fence.admitted(ALICE, 7, 0, 4, HERE)
    assert told[-1] == ("admitted", ALICE, 7, 0, 4, *HERE)


def test_fences_that_have_expired_make_room_for_the_next_one() -> None:
    fence = Fence(capacity=9)
    for id in range(8):
        refused(fence, 0, id=id, user=MALLORY)
    refused(fence, 0, id=8, user=MALLORY, now=2000.0)
    assert fence.blocks(MALLORY, 8, 0, 1, HERE, 2001.0)
    assert fence.blocks(MALLORY, 50, 0, 3, HERE, 2001.0) is None, "it is no overflow"
    assert len(fence) == 1
