"""Where quotas are altered while the proxy runs. In: the settings file, records of the quota topic, and alterations by clients.
Out: the limits in force, in the engine; a line for every change of them.

The file is the base, what is in the topic wins, limit by limit. A change holds once it is read back from the topic, so that all
proxies make the same changes in the same order. Engines swap all limits at once, on the event loop. Where there are very many, they
are put together in a thread before that, so that no turn of the loop takes long, and hold some 100 ms later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from proxy.cluster.quota_records import BadRecord, Record, author, decode, encode
from proxy.config.limits import limits_of, table_of, tenants_among
from proxy.config.models import Settings
from proxy.observe.operations import Log
from proxy.session.dynamic_quotas import Alteration, Refusal
from proxy.session.requester import Requester
from proxy.supervise import tell_end
from proxy.upstream.connector import TopicError
from proxy.upstream.quota_store import QuotaStore, Written
from quota.engine import Engine
from quota.entity import Entity
from quota.keys import Values, named, wrong_together
from quota.limits import Limits
from quota.overrides import NOTHING, Change, Difference, Table, change, changed, count, difference, differences, merged, together
from quota.tenants import TenantEntity, member_of

By = Mapping[str, Any]
"""Who made a change, as lines have it."""
Told = Callable[[Table, Table], Sequence[tuple[Difference, By]]]
"""The limits before and after: what is to be said of it."""
_Together = tuple[Table, Limits, Sequence[tuple[Difference, By]]]
MAX_LIMITS: Final = 10_000
"""Limits that may be set while proxies run, of all entities: all of them are put in force at once."""
AT_ONCE: Final = 200
"""Entities whose limits are put together at once; those of more, in a thread."""
MAX_LINES: Final = 1000
"""Changes at once that have a line each; the rest is counted."""
NOT_AVAILABLE, INVALID = 8, 42
"""BROKER_NOT_AVAILABLE, INVALID_REQUEST"""


class DynamicQuotas:
    """The `DynamicQuotas` of all sessions. `topic`: None where quotas stand in the file only. `clock`: monotonic, `wall`: an ISO
    time. `tells`: of several workers, which all do the same, one does."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        topic: QuotaStore | None,
        clock: Callable[[], float],
        wall: Callable[[], str],
        log: Log,
        *,
        tells: bool = True,
    ) -> None:
        self._settings, self._engine, self._topic, self._clock, self._wall, self._log = settings, engine, topic, clock, wall, log
        self._tells = tells
        self._file = table_of(settings)
        self._dynamic: Table = NOTHING
        self._read: dict[Entity, Values] | None = None  # what was read of the topic so far, while it is read from its beginning
        self.table: Table = self._file
        self._turn = asyncio.Lock()
        self._waiting: list[Told] = []
        """what is to be said once the limits hold that are being put together"""
        self._renewing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.changes = 0
        """limits that became others since the start"""
        self.skipped = 0
        """records that could not be used"""
        if topic is not None:
            topic.reader = self

    @property
    def settings(self) -> Settings:
        """Those in force."""
        return self._settings

    @property
    def dynamic(self) -> Table:
        """What was set while proxies run."""
        return self._dynamic

    def use(self, settings: Settings) -> None:
        """The file is another."""
        self._settings, self._file = settings, table_of(settings)
        self._put_in_force(_all_by("the settings file"))

    # ------------------------------------------------------------------ DynamicQuotas

    def may_alter(self, user: str) -> bool:
        return user in self._settings.quotas.admins

    def closed(self) -> Refusal | None:
        if self._topic is None:
            return Refusal(INVALID, "Quotas of this proxy stand in its settings file only: `quotas.dynamic` is not set there.")
        if (reason := self._topic.why_not) is not None:
            return Refusal(NOT_AVAILABLE, f"Quotas of this proxy cannot be altered now: the topic {self._topic.name}: {reason}.")
        return None

    def outlook(self, changes: Sequence[Change]) -> Mapping[Entity, Values]:
        then = changed({entity: self._dynamic.get(entity, {}) for entity, _, _ in changes}, changes)
        return {entity: {**self._file.get(entity, {}), **then.get(entity, {})} for entity, _, _ in changes}

    def alter(self, changes: Sequence[Change], by: Requester) -> Alteration:
        alteration = Alteration()
        self._spawn(self._alter(alteration, changes, by))
        return alteration

    async def _alter(self, alteration: Alteration, changes: Sequence[Change], by: Requester) -> None:
        """One alteration at a time: the next may not fit what this one makes."""
        assert self._topic is not None
        alteration.refusal = Refusal(-1, "Quotas are not altered: an internal error of the proxy.")  # unless it comes to its end
        try:
            async with self._turn:
                refusal = self._wrong_by_now(changes) or await self._wrong_members(changes)
                if refusal is None:
                    who = {
                        "at": self._wall(),
                        "principal": by.principal,
                        "client": by.client_address,
                        "client_id": by.client_id,
                        "proxy": self._settings.proxy_id,
                    }
                    await self._topic.write([encode(change, who) for change in changes])
            alteration.refusal = refusal
        except TopicError as e:
            alteration.refusal = Refusal(NOT_AVAILABLE, f"Quotas are not altered: {e}.")
        except Exception as e:  # a client waits for this
            self._log.error("internal error", exc_info=e)
        finally:
            alteration.finish(self._clock())

    def _wrong_by_now(self, changes: Sequence[Change]) -> Refusal | None:
        for entity, values in self.outlook(changes).items():
            if (wrong := wrong_together(values)) is not None:
                return Refusal(INVALID, f"{named(entity)}: {wrong}.")
        if (limits := count(changed(self._dynamic, changes))) > MAX_LIMITS:
            return Refusal(INVALID, f"There would be {limits} limits beside those of the file; the maximum is {MAX_LIMITS}.")
        return None

    async def _wrong_members(self, changes: Sequence[Change]) -> Refusal | None:
        """Why a member cannot be added: another tenant has it. In a thread, as tenants may be very many."""
        if not any(what.value is not None and member_of(what.key) for what in changes):
            return None
        table = merged(self._file, changed(self._dynamic, changes))
        _, clashes = await asyncio.to_thread(tenants_among, self._settings, table)
        mine = {what.entity.topic for what in changes if isinstance(what.entity, TenantEntity)}
        clash = next((it for it in clashes if {it.tenant, it.other} & mine), None)
        return None if clash is None else Refusal(INVALID, f"tenant {clash.tenant}: {clash}.")

    # ------------------------------------------------------------------ Reader of the topic

    def begin(self) -> None:
        self._read = {}

    def take(self, records: Sequence[Written]) -> None:
        changes = [*self._understood(records)]
        if self._read is not None:
            for what, _ in changes:
                self._apply(self._read, what)
            return
        made, found = dict(self._dynamic), []
        for what, by in changes:
            before = together(self._file, made, what.entity)
            self._apply(made, what)
            found += [(it, by) for it in difference(what.entity, before, together(self._file, made, what.entity))]
        self._dynamic = made
        self._put_in_force(lambda _before, _after: found)

    def complete(self, *, nothing_ever: bool) -> Sequence[Record]:
        assert self._read is not None
        if nothing_ever and self._dynamic:
            self._read = None
            self._log.error("quotas written again", topic=self._topic and self._topic.name, limits=count(self._dynamic))
            who = {"principal": "the proxy, as the topic was made anew", "proxy": self._settings.proxy_id, "at": self._wall()}
            return [encode(Change(entity, *limit), who) for entity, values in self._dynamic.items() for limit in values.items()]
        first = self._dynamic is NOTHING
        self._dynamic, self._read = self._read, None
        self._put_in_force((lambda _before, _after: ()) if first else _all_by("the topic, read again"))
        if self._tells:
            self._log.info("quotas read", entities=len(self._dynamic), limits=count(self._dynamic), skipped=self.skipped)
        return ()

    def _understood(self, records: Iterable[Written]) -> Iterator[tuple[Change, By]]:
        for record in records:
            try:
                yield decode(record.key, record.value), author(record.headers)
            except BadRecord as e:
                self._skip(record.offset, str(e))

    def _apply(self, table: dict[Entity, Values], what: Change) -> None:
        if what.value is not None and len(table) >= 2 * MAX_LIMITS and what.entity not in table:
            self._skip(-1, f"there are {len(table)} entities with limits already")  # somebody else writes to the topic
        else:
            change(table, what)

    def _skip(self, offset: int, reason: str) -> None:
        self.skipped += 1
        if self._tells and self.skipped <= MAX_LINES:
            self._log.error("quota record skipped", offset=offset, reason=reason)

    # ------------------------------------------------------------------ in force

    def _put_in_force(self, told: Told) -> None:
        """Swap all limits at once, now or when they are put together; then say what changed."""
        self._waiting.append(told)
        if self._renewing:
            return
        if len(self._file) + len(self._dynamic) <= AT_ONCE:
            self._swap(self._together(self._settings, self._file, self._dynamic, self.table, self._taken()))
        else:
            self._renewing = True
            self._spawn(self._renew())

    def _taken(self) -> Sequence[Told]:
        taken, self._waiting = self._waiting, []
        return taken

    async def _renew(self) -> None:
        """Until there is nothing newer."""
        try:
            while self._waiting:
                parts = self._settings, self._file, self._dynamic, self.table, self._taken()
                self._swap(await asyncio.to_thread(self._together, *parts))
        finally:
            self._renewing = False

    @staticmethod
    def _together(settings: Settings, file: Table, dynamic: Table, before: Table, told: Sequence[Told]) -> _Together:
        """Reads only, so that it may run in a thread."""
        table = merged(file, dynamic)
        return table, limits_of(settings, table), [it for one in told for it in one(before, table)]

    def _swap(self, made: _Together) -> None:
        self.table, limits, found = made
        self._engine.change(limits)
        self._tell(found)
        if self._engine.owned.recounting:
            self._spawn(self._recount())

    async def _recount(self) -> None:
        """Count topics for tenants that are others now."""
        for _ in self._engine.owned.recount():
            await asyncio.sleep(0)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(tell_end)

    def _tell(self, found: Sequence[tuple[Difference, By]]) -> None:
        """Who changed what."""
        self.changes += len(found)
        if not self._tells:
            return
        for (entity, key, old, new), by in found[:MAX_LINES]:
            self._log.info("quota changed", entity=named(entity), quota=key, old=old, new=new, by=by)
        if len(found) > MAX_LINES:
            self._log.info("more quotas changed", changes=len(found) - MAX_LINES)


def _all_by(who: str) -> Told:
    """All that differs, as changed by this."""
    return lambda before, after: [(it, {"principal": who}) for it in differences(before, after)]
