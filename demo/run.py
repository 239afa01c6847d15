"""All of the demo, in order. In: options, a screen. Out: everything on the screen and in the out folder, and the exit code."""

import time
from dataclasses import dataclass
from pathlib import Path

from demo import figures, folder, plan, report, tables, throttling, verdict
from demo.errors import DemoError
from demo.phases import PhaseProgress
from demo.screen import Screen
from demo.services import Services, started
from demo.verdict import Results, seconds
from loadtest.interrupt import Interrupted

_FLUSH = 2.5  # seconds after which the usage log of a proxy that goes on holds all, at intervals of one


@dataclass(frozen=True)
class Options:
    """What the user asked for; `seconds` is the length of a phase."""

    out: Path
    seconds: int
    brokers: int
    keep: bool


def run(options: Options, screen: Screen) -> int:
    """Run the demo. Returns 0, or 1 if the figures are wrong. Errors: UsageError, DemoError, and localkafka's own."""
    where = folder.prepare(options.out)
    begin, began = time.monotonic(), time.time()
    screen.line(f"A real Kafka behind the proxy, on this machine. What it leaves is in {where.path}/", wrap=False)
    with started(where, options.brokers, screen.line) as services:
        screen.step(
            "Apache Kafka and the proxy",
            f"{services.upstream} behind {services.proxy.bootstrap}, up in {seconds(time.monotonic() - begin)}",
        )
        measured = _perform(services, where, options, screen)
        page = _report(where, began, screen)
        found = _show(measured, page, where, screen, time.monotonic() - begin)
        if options.keep:
            _keep(services, screen)
    return 1 if found else 0


def _perform(services: Services, where: folder.Folder, options: Options, screen: Screen) -> Results:
    run = PhaseProgress(services, screen).run(plan.parameters(options.seconds, options.brokers, where.password.absolute()))
    with screen.working("closing the usage log"):
        if options.keep:
            time.sleep(_FLUSH)
        else:
            services.close()
    throttled = throttling.throttling_by_client(where.usage)
    phases = {phase.name: phase for phase in run.phases}
    storms = {
        client_id: figures.storm(phases[phase], storm, client_id, throttled.get(client_id, throttling.Throttling()))
        for storm in plan.STORMS
        for phase, client_id in ((plan.UNLIMITED, storm.unlimited), (plan.LIMITED, storm.client_id))
    }
    alone, unlimited, limited = (figures.felt(phases[name]) for name in (plan.ALONE, plan.UNLIMITED, plan.LIMITED))
    producing = throttling.throttling_by_client(where.usage, "Produce")
    clicks, archive = (
        figures.held_back(phases[phase], tenant, producing.get(f"{tenant}-app", throttling.Throttling()))
        for phase, tenant in ((plan.THRESHOLD, plan.CLICKS), (plan.DISK, plan.ARCHIVE))
    )
    return Results(
        options.seconds,
        alone,
        unlimited,
        limited,
        storms,
        figures.delivery(run),
        throttled,
        clicks,
        archive,
        (figures.felt(phases[plan.THRESHOLD]), figures.felt(phases[plan.DISK])),
        figures.flood(phases[plan.FLOOD], producing.get("flood-app", throttling.Throttling())),
    )


def _report(where: folder.Folder, began: float, screen: Screen) -> Path | DemoError:
    """The page, or why there is none. The figures are shown in both cases."""
    begin = time.monotonic()
    try:
        with screen.working("the capacity report, a Spark job"):
            page = report.make(where, began)
    except DemoError as error:
        return error
    screen.step("the capacity report", f"made from the proxy's log by Spark in {seconds(time.monotonic() - begin)}")
    return page


def _show(results: Results, page: Path | DemoError, where: folder.Folder, screen: Screen, took: float) -> list[str]:
    """Print all; returns what is wrong."""
    screen.line()
    screen.console.print(tables.quota_table(results))
    screen.line(_about_the_quota(results.seconds))
    screen.line()
    screen.console.print(tables.felt_table(results))
    for sentence in (
        *verdict.sentences(results),
        verdict.about_clicks(results),
        verdict.about_flood(results),
        verdict.about_archive(results),
    ):
        screen.line(sentence)
    sent = results.delivery
    told = f" (and {sent.refused:,} whose producer was told of a failure)" if sent.refused else ""
    screen.line(f"Records of all tenants: {sent.acknowledged:,} acknowledged{told}, {sent.lost} of them lost.")
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


def _keep(services: Services, screen: Screen) -> None:
    """Leave everything running until Ctrl-C."""
    screen.line()
    screen.step("still running: the proxy", services.proxy.bootstrap)
    screen.step("its metrics", f"http://{services.proxy.admin}/metrics")
    screen.step("Kafka behind it", services.upstream)
    limited = " and ".join(storm.client_id for storm in plan.STORMS)
    screen.line(f"Point your own clients at the proxy; client ids {limited} are under the quota. Ctrl-C ends it.")
    try:
        while True:
            services.check()
            time.sleep(1)
    except Interrupted:
        screen.line("stopping")
        services.close()
