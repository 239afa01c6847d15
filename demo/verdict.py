"""What the figures mean. In: figures. Out: sentences, and what is wrong. A difference is only claimed if the figures show it."""

from collections.abc import Mapping
from dataclasses import dataclass

from demo import plan
from demo.figures import Delivery, Felt, Latencies, StormFigures, Waits
from demo.throttling import Throttling

CLEAR = 1.5
"""Two figures are different if one is at least this many times the other. A smaller difference is noise of the machine."""

_NO_HARM = "no clear difference; this machine is too fast, or too noisy, to show one."
_NO_GOOD = "what the quota is good for does not show; this machine is too slow, or too noisy."


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
    return found


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
