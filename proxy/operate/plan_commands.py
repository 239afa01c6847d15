"""`kafka-quota-proxy quotas plan` and `quotas apply`: what a settings file would change and whom that would hold back; and doing
just that, where the quotas are still those that the plan was made from.

In: arguments. Out: a plan as text, JSON or Markdown, and as a file. Exit codes: `plan` 0 nothing changes, 2 something, 3 somebody
would be held back for longer than --hurt-above; `apply` 0 done, 3 somebody whom the plan does not name would be, so that nothing
was done, 4 still observed; both 1 when they fail."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click

from configfile.units import parse_duration
from proxy.config.load import load_settings
from proxy.config.tenants import tenants_of
from proxy.operate import foreseen, plan_text, saved_plan, show
from proxy.operate import plan as steps
from proxy.operate.foreseen import Replayed
from proxy.operate.quotas import FILE, PRUNE, Target, fail, quotas, to_proxy, wanted_of
from proxy.operate.saved_plan import Plan, PlanError
from proxy.upstream.quota_client import result_text
from proxy.wire.client_quotas import DONE
from quota.keys import named
from quota.overrides import Change, Difference, Table, changed
from quota.tenants import Tenant, TenantEntity, Tenants

__all__ = ["quotas"]

CHANGES: Final = 2
HURT: Final = 3
OBSERVING: Final = 4


class Outcome(click.Command):
    """A command that has codes of its own for what it found: whatever goes wrong, also with its arguments, is 1."""

    def make_context(self, *given: Any, **more: Any) -> click.Context:
        try:
            return super().make_context(*given, **more)
        except click.UsageError as e:
            e.show()
            raise SystemExit(1) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SystemExit as e:
            raise SystemExit(1 if e.code else 0) from None


class Duration(click.ParamType[float]):
    """Seconds of a text such as 10s or 1h."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return parse_duration(value)
        except ValueError as e:
            self.fail(str(e), param, ctx)


LOGS = click.option(
    "--logs",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Usage logs of the proxies: says who would have been held back. Needs PySpark and Java, as the report does.",
)


@quotas.command("plan", cls=Outcome)
@to_proxy
@FILE
@PRUNE
@LOGS
@click.option("--hurt-above", type=Duration(), default="0s", show_default=True, help="Who is held back for longer in all is hurt.")
@click.option("--format", "form", type=click.Choice(["text", "json", "markdown"]), default="text", show_default=True)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Save the plan, for `quotas apply`.")
@click.pass_context
def plan(
    ctx: click.Context, place: Target, file: Path, prune: bool, logs: Path | None, hurt_above: float, form: str, out: Path | None
) -> None:
    """Say what a settings file would change, and who would be held back.

    Exit code 0: nothing changes; 2: something does; 3: somebody would be hurt; 1: it failed.
    """
    wanted, have = wanted_of(file), steps.own(place.describe())
    found = tuple(steps.steps(have, wanted, prune=prune))
    lines, left_out = saved_plan.lines_of(file)
    lines = {which: at for which, at in lines.items() if which[0] in wanted}
    tenants = _tenants_of(file) if any(isinstance(one.entity, TenantEntity) for one in found) else {}
    made = Plan(str(file), datetime.now(UTC), found, lines, have, left_out, hurt_above, tenants=tenants)
    if logs is not None and found:
        made = replace(made, replayed=_replayed(made, have, logs))
    if out is not None:
        _save(made, out)
    shown: dict[str, Callable[[Plan], str]] = {"text": plan_text.text, "markdown": plan_text.markdown, "json": _json}
    click.echo(shown[form](made), nl=False)
    ctx.exit(HURT if made.hurt else CHANGES if found else 0)


@quotas.command("apply", cls=Outcome)
@to_proxy
@FILE
@LOGS
@click.option(
    "--observe-first",
    type=Duration(),
    metavar="DURATION",
    help="First see, by the logs of so long from now, whether anybody would be hurt whom the plan does not name. "
    "Give the same command again to conclude; until then exit code 4.",
)
@click.option("--wait", is_flag=True, help="With --observe-first: wait for its end. Stopped, it can be given again.")
@click.pass_context
def apply(ctx: click.Context, place: Target, file: Path, logs: Path | None, observe_first: float | None, wait: bool) -> None:
    """Do what a saved plan says, if the quotas are those it was made from.

    Exit code 0: done; 1: refused or failed; with --observe-first 3: somebody would be hurt, nothing is done; 4: still observed.
    """
    if observe_first is not None and logs is None:
        fail("--observe-first needs --logs: it looks at the traffic of that time")
    try:
        made = saved_plan.load(file)
    except PlanError as e:
        fail(str(e))
    if _is_over(made, steps.own(place.describe())):
        click.echo("nothing to do: all limits are as planned")
        return
    if observe_first is not None and logs is not None:
        _refuse_untold(foreseen.not_replayed(made.changes))
        made = _started(made, file)
        left = _left(made, observe_first)
        if left > 0 and not wait:
            click.echo(f"observed for {left:,.0f} s more; give the same command again then")
            ctx.exit(OBSERVING)
        time.sleep(max(left, 0))
        ends = datetime.now(UTC) + _LATE
        while not _is_observed(made, place, logs, observe_first, ctx):
            untold = f"the logs in {logs} do not tell yet of all the time since {_since(made):%Y-%m-%d %H:%M:%S} UTC"
            if not wait:
                click.echo(f"{untold}; give the same command again")
                ctx.exit(OBSERVING)
            if datetime.now(UTC) > ends:
                fail(f"{untold}: nothing is applied", 1)
            time.sleep(1)
    _is_over(made, steps.own(place.describe()))  # the replay took a while
    results = place.ask(lambda client: client.alter(steps.entries_of(made.changes), validate_only=False))
    for entry, result in results:
        click.echo(f"{show.name_of(entry.who)}: {'altered' if result == DONE else result_text(result)}", err=result != DONE)
    ctx.exit(int(any(result != DONE for _, result in results)))


def _tenants_of(file: Path) -> dict[str, Tenant]:
    """Who belongs to which tenant, as the file has it."""
    tenants = tenants_of(load_settings(file).tenants).tenants
    return {name: Tenant(one.users, one.user_prefixes) for name, one in tenants.items()}


def _is_over(made: Plan, have: Table) -> bool:
    """Is all done? Ends the command where the state is another than that of the plan."""
    if made.is_done(have):
        return True
    if moved := made.moved(have):
        more = f"; and {len(moved) - 5} more" * (len(moved) > 5)
        fail(f"the quotas have changed since the plan was made, so it is not applied: {'; '.join(moved[:5])}{more}; make it anew")
    return False


def _started(made: Plan, file: Path) -> Plan:
    """The plan with the time from when on it is observed, which is kept in its file: a command that is stopped loses nothing."""
    if made.observed_from is None:
        made = made.observed(datetime.now(UTC))
        _save(made, file)
    return made


def _left(made: Plan, seconds: float) -> float:
    return (_since(made) + timedelta(seconds=seconds) - datetime.now(UTC)).total_seconds()


def _is_observed(made: Plan, place: Target, logs: Path, seconds: float, ctx: click.Context) -> bool:
    """Do the logs tell that in all the observed time nobody was hurt? Ends the command where they tell that somebody was.

    The proxy is asked for its limits each time: so an idle one, too, has something to write in its log after that time."""
    have = steps.own(place.describe())
    _is_over(made, have)
    seen = _replayed(made, have, logs, made.observed_from)
    if _hurts_others(made, seen):
        ctx.exit(HURT)
    if seen.last is None or datetime.fromisoformat(seen.last) < _since(made) + timedelta(seconds=seconds):
        return False
    _refuse_untold(one for one in made.changes if one.key in seen.not_replayed)
    return True


def _refuse_untold(changes: Iterable[Difference]) -> None:
    """End the command where the logs cannot say whom one of these changes hurts."""
    if unseen := [one for one in changes if not _is_raised(one)]:
        which = ", ".join(f"{one.key} of {named(one.entity)}" for one in unseen)
        fail(f"--observe-first: the logs do not tell enough of {which}; apply such limits by a plan of their own, without it")


def _is_raised(one: Difference) -> bool:
    """Can nobody be hurt by this change? Without a limit of its own a tenant has none."""
    if one.new is None:
        return isinstance(one.entity, TenantEntity)
    return one.old is not None and one.new >= one.old


def _hurts_others(made: Plan, seen: Replayed) -> bool:
    """Would anybody have been hurt whom the plan does not name?"""
    named = {(one.owner, one.quota) for one in made.hurt}
    others = [one for one in replace(made, replayed=seen).hurt if (one.owner, one.quota) not in named]
    for one in others:
        told = f"{one.times} time(s), {one.seconds:.1f} s in all"
        click.echo(f"{one.owner} would have been held back by {one.quota} {steps.plain(one.limit)} of {one.rule}: {told}", err=True)
    if others:
        click.echo("nothing is applied: the plan does not name them", err=True)
    return bool(others)


def _since(made: Plan) -> datetime:
    return made.observed_from or datetime.now(UTC)


_LATE: Final = timedelta(minutes=10)
"""How long after the observed time its logs are waited for: an interval ends and is written, then logs may be shipped."""


def _replayed(made: Plan, have: Table, logs: Path, since: datetime | None = None) -> Replayed:
    after = changed(have, [Change(one.entity, one.key, one.new) for one in made.changes])
    try:
        from reports.errors import ReportError

        return foreseen.replay(str(logs), have, after, made.changes, made.lines, Tenants(made.tenants), since)
    except ReportError as e:
        fail(" ".join(str(e).split()), 1)


def _save(made: Plan, path: Path) -> None:
    try:
        saved_plan.save(made, path)
    except OSError as e:
        fail(f"{path}: cannot be written: {e.strerror}", 1)


def _json(made: Plan) -> str:
    return json.dumps(made.as_json(), indent=2) + "\n"
