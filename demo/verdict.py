"""What the figures mean. In: figures. Out: sentences, and what is wrong. A difference is only claimed if the figures show it."""

from collections.abc import Mapping
from dataclasses import dataclass

from demo import plan
from demo.figures import Delivery, Felt, Flood, HeldBack, Latencies, StormFigures, Waits
from demo.throttling import Throttling

CLEAR = 1.5
"""Two figures are different if one is at least this many times the other. A smaller difference is noise of the machine."""

_NO_HARM = "no clear difference; this machine is too fast, or too noisy, to show one."
_NO_GOOD = "what the quota is good for does not show; this machine is too slow, or too noisy."
_NO_OVERLOAD = "no overload; this machine is too fast, or too noisy, to show what quotas.overload does."


@dataclass(frozen=True)
class Results:
    """All that was measured. `storms`: by client id. `throttling`: by client id, from the proxy's usage log."""

    seconds: float
    alone: Felt
    unlimited: Felt
    limited: Felt
    storms: Mapping[str, StormFigures]
    delivery: Delivery
    throttling: Mapping[str, Throttling]
    clicks: HeldBack
    archive: HeldBack
    beside: tuple[Felt, Felt]
    """What the orders felt beside these two."""
    flood: Flood


def sentences(results: Results) -> list[str]:
    """What the ordinary clients felt."""
    alone, storm, limited = results.alone, results.unlimited, results.limited
    said = []
    if alone.new_topics and storm.new_topics and limited.new_topics:
        said.append(_new_topics(alone.new_topics, storm.new_topics, limited.new_topics))
    if alone.produce and storm.produce and limited.produce:
        said.append(_produce(alone.produce, storm.produce, limited.produce))
    return said


def problems(results: Results) -> list[str]:
    """What is wrong. The demo fails if there is anything."""
    found = []
    if results.delivery.lost:
        found.append(f"{results.delivery.lost} acknowledged records were lost")
    for storm in plan.STORMS:
        throttling = results.throttling.get(storm.client_id, Throttling())
        refused = results.storms[storm.client_id].refused
        if not throttling.throttle_ms:
            found.append(f"{storm.client_id} was never throttled: its burst was not used up; try more --seconds")
        elif storm.kind == "new" and not refused:
            found.append(f"{storm.client_id} was throttled, but never told error 89")
        elif storm.kind == "old" and refused:
            found.append(f"{storm.client_id} was told error 89, which it cannot know")
    if not results.clicks.refused and results.clicks.written > 15 * plan.TOTAL_THRESHOLD:
        found.append("clicks was never refused, though it wrote more than the threshold of its topic")
    return found


def _megabytes(size: float) -> str:
    return f"{size / 1e6:.1f} MB"


def about_clicks(results: Results) -> str:
    """What became of the tenant whose topic has a threshold."""
    clicks, threshold = results.clicks, _megabytes(plan.CLICKS_THRESHOLD)
    if not clicks.refused:
        written = _megabytes(clicks.written)
        return f"clicks wrote {written}, less than the threshold of its topic lets come at once: this machine is too slow."
    return (
        f"clicks wanted to write {_megabytes(clicks.wanted)} in {plan.THRESHOLD_SECONDS} s to a topic with a threshold of"
        f" {threshold}/s, and wrote {_megabytes(clicks.written)}, as ten seconds of the thresholds may come at once."
        f" Then a batch was refused {clicks.refused:,} times, with error 19, which clients retry.{_beside(results.beside[0])}"
    )


def about_flood(results: Results) -> str:
    """What became of the tenant that floods a broker, and of the orders beside it."""
    flood, alone = results.flood, results.alone.produce
    if flood.before is None or flood.after is None or alone is None:
        return "flood: nothing could be measured; this machine is too slow."
    text = f"While clicks flooded a broker, the slowest order of a typical second took {flood.before:.0f} ms"
    text += f" ({alone.typical:.0f} ms alone)"
    if not flood.throttle_ms:
        return f"{text}: {_NO_OVERLOAD}"
    text += (
        f", and {flood.after:.0f} ms with quotas.overload, which told clicks to wait for {seconds(flood.throttle_ms / 1000)} in sum"
    )
    return f"{text}: {_NO_GOOD}" if flood.before < CLEAR * flood.after else f"{text}."


def about_archive(results: Results) -> str:
    """What became of the tenant that fills the disk."""
    archive, left = results.archive, _megabytes(plan.HARD_ROOM)
    if not (archive.refused or archive.throttle_ms):
        return (
            "archive was not held back, as it did not reach the limit of the disk in time:"
            " other programs made room on it meanwhile, or left it little of this machine."
        )
    refused = f"; then a batch was refused {archive.refused:,} times, with error 56" if archive.refused else ""
    return (
        f"archive wanted to write {_megabytes(archive.wanted)} in {plan.DISK_SECONDS} s, and the disk had {left} left to its limit."
        f" It was slowed down, by {seconds(archive.throttle_ms / 1000)} in sum{refused}."
        f" Room was made after {plan.DISK_SECONDS * plan.ROOM_AFTER:.0f} s, and its client sent on:"
        f" {_megabytes(archive.written)} were written.{_beside(results.beside[1])}"
    )


def _beside(felt: Felt) -> str:
    return f" Orders, whose topic is exempt, took {felt.produce.p50:.0f} ms (median)." if felt.produce else ""


def _new_topics(alone: Waits, storm: Waits, after: Waits) -> str:
    text = f"A new topic could be written to after {seconds(alone.median)} without the storm (medians)"
    if storm.median < CLEAR * alone.median:
        return f"{text}, and after {seconds(storm.median)} in the storm: {_NO_HARM}"
    least = "at least " if storm.pending else ""
    text += f", after {least}{seconds(storm.median)} in the storm without a quota"
    if storm.pending:
        text += f" ({storm.pending} of {storm.count} not before the phase was over)"
    if after.pending or storm.median < CLEAR * after.median:
        least = "at least " if after.pending else ""
        return f"{text}, and after {least}{seconds(after.median)} with the quota: {_NO_GOOD}"
    return f"{text}, and after {seconds(after.median)} with the quota, in the second half of the phase, after the bursts it admits."


def _produce(alone: Latencies, storm: Latencies, after: Latencies) -> str:
    text = f"The slowest record of a typical second took {alone.typical:.0f} ms without the storm"
    text += f", {storm.typical:.0f} ms in the storm without a quota"
    if storm.typical < CLEAR * alone.typical:
        return f"{text}: {_NO_HARM}"
    text += f", and {after.typical:.0f} ms with the quota, in the second half"
    return f"{text}: {_NO_GOOD}" if storm.typical < CLEAR * after.typical else f"{text}."


def seconds(value: float) -> str:
    """Seconds with a sensible number of digits."""
    return f"{value:.{2 if value < 1 else 1 if value < 10 else 0}f} s"
