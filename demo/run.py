"""Room demo, run: the whole of it, in order.

In: options, a screen. Out: everything on the screen and in the out folder, and the exit code. Leaves to others: each of the steps.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from demo import folder, plan, report, tables, topics, usage, verdict
from demo.clock import now
from demo.errors import DemoError, Interrupted
from demo.figures import Felt, PhaseFigures
from demo.play import Play
from demo.screen import Screen
from demo.stage import Stage, raised
from demo.verdict import Results, seconds

_FLUSH = 2.5  # seconds after which the usage log of a proxy that goes on holds all, at intervals of one


@dataclass(frozen=True)
class Options:
    """What the user asked for; `seconds` is the length of a phase."""

    out: Path
    seconds: int
    brokers: int
    keep: bool


def run(options: Options, screen: Screen) -> int:
    """Show it; 0, or 1 when the figures are not as they must be. Errors: UsageError, DemoError, and localkafka's own."""
    where = folder.prepare(options.out)
    begin = now()
    screen.line(f"A real Kafka behind the proxy, on this machine. What it leaves is in {where.path}/", whole=True)
    with raised(where, options.brokers, screen.line) as stage:
        screen.step("Apache Kafka and the proxy", f"{stage.upstream} behind {stage.bootstrap}, up in {seconds(now() - begin)}")
        measured = _perform(stage, where, options, screen)
        page = _report(where, screen)
        found = _show(measured, page, where, screen, now() - begin)
        if options.keep:
            _keep(stage, screen)
    return 1 if found else 0


def _perform(stage: Stage, where: folder.Folder, options: Options, screen: Screen) -> Results:
    topics.create_orders(stage.upstream, options.brokers)
    play = Play(stage, options.brokers)
    with screen.working("warming up"):
        play.warm_up()
    alone = _play(play, plan.ALONE, options.seconds, screen)
    unlimited = _play(play, plan.UNLIMITED, options.seconds, screen)
    with screen.working("deleting the storm's topics"):
        took = topics.delete_storm(stage.upstream)
    screen.step("  the storm's topics deleted", f"the cluster had digested it all {seconds(took)} after the phase")
    limited = _play(play, plan.LIMITED, options.seconds, screen)
    with screen.working("reading what is left"):
        delivery = play.finish()
    with screen.working("closing the usage log"):
        if options.keep:
            time.sleep(_FLUSH)
        else:
            stage.close()
    return Results(alone, unlimited, limited, delivery, usage.told(where.usage))


def _play(play: Play, phase: plan.Phase, length: int, screen: Screen) -> PhaseFigures:
    title = f"{phase.number} {phase.title}"
    with screen.bar(title, length) as tick:
        played = play.phase(phase, length, tick)
    screen.step(title, _short(played.whole))
    return played


def _short(felt: Felt) -> str:
    if not (felt.produce and felt.new_topics):
        return "nothing could be measured"
    least = "≥ " if felt.new_topics.pending else ""
    return f"produce p99 {felt.produce.p99:.0f} ms, new topics usable after {least}{seconds(felt.new_topics.median)}"


def _report(where: folder.Folder, screen: Screen) -> Path | DemoError:
    """The page, or why there is none: what was measured is shown all the same."""
    begin = now()
    try:
        with screen.working("the capacity report, a Spark job"):
            page = report.make(where)
    except DemoError as error:
        return error
    screen.step("the capacity report", f"made from the proxy's log by Spark in {seconds(now() - begin)}")
    return page


def _show(results: Results, page: Path | DemoError, where: folder.Folder, screen: Screen, took: float) -> list[str]:
    """Print all; returns what is wrong."""
    screen.line()
    screen.console.print(tables.quota_table(results))
    screen.line(_about_the_quota(results.limited.seconds))
    screen.line()
    screen.console.print(tables.felt_table(results))
    for sentence in verdict.sentences(results):
        screen.line(sentence)
    sent = results.delivery
    told = f" (and {sent.refused:,} whose producer was told of a failure)" if sent.refused else ""
    screen.line(f"Orders: {sent.acknowledged:,} acknowledged{told}, {sent.lost} of them lost.")
    screen.line()
    problems = verdict.problems(results)
    if isinstance(page, DemoError):
        problems.append(str(page))
    else:
        screen.step("the report's page", str(page))
    screen.step("the proxy's logs", f"{where.usage} and {where.proxy_log}; its settings are {where.settings}")
    screen.line(f"Took {took:.0f} s.")
    for problem in problems:
        screen.failure(problem)
    return problems


def _about_the_quota(length: float) -> str:
    return (
        f"The quota: {plan.MUTATIONS_RATE} partitions/s on average, {plan.MUTATIONS_BURST} at once, for each of the two client ids."
        " A topic is admitted whole, so the last one may overshoot. A new client is refused with error 89; an old one, which does"
        " not know it, is obeyed and then kept waiting. Without a quota each client stops after"
        f" {plan.storm_partitions(length):,} partitions."
    )


def _keep(stage: Stage, screen: Screen) -> None:
    """Leave everything running until Ctrl-C."""
    screen.line()
    screen.step("still running: the proxy", stage.bootstrap)
    screen.step("its metrics", f"http://{stage.admin}/metrics")
    screen.step("Kafka behind it", stage.upstream)
    limited = " and ".join(storm.client_id for storm in plan.LIMITED.storms)
    screen.line(f"Point your own clients at the proxy; client ids {limited} are under the quota. Ctrl-C ends it.")
    try:
        while True:
            stage.check()
            time.sleep(1)
    except Interrupted:
        screen.line("stopping")
        stage.close()
