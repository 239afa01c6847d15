"""Reads settings and the files they name again, when they change or when told to (SIGHUP).

In: how to load settings and how to use them. Out: new settings in force, or the old ones and one line that says what is
wrong. A bad file is refused whole."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from typing import Any

from configfile.stamp import Stamp, stamp_of
from proxy.config.limits import table_of
from proxy.config.load import SettingsError
from proxy.config.models import Settings
from proxy.observe.operations import Log
from proxy.tls import TlsError

Use = Callable[[Settings], None]
Stamps = dict[str, Stamp | None]
"""What tells one state of files from another, by their names; None for a file that is not there."""
SETTLED = 1.0
"""Seconds for which a changed file has to stay as it is before it is read."""
LIVE = re.compile(
    r"(limits|exempt|reload|metrics|tenants)\.|quotas\.((entities|admins|observe|controller_mutations_algorithm|ask_timeout|cold_read_lag)$|(topics|topic_rates|topic_policy|connections|storage|stored_bytes|overload)(\.|$)|producer_ids\.(mode|hold_new|count_unlimited|cleanup_interval)$)|(upstream|listen|more_listeners\.[^.]+)\.tls(\.|$)"
)
"""Settings that take effect while the proxy runs; the others do at a restart."""


class Reloader:
    """`settings` are those that the proxy started with; `files` names the file of settings and those that they name."""

    def __init__(
        self, settings: Settings, load: Callable[[], Settings], use: Use, files: Callable[[Settings], Iterable[str]], log: Log
    ) -> None:
        self._started_with = self._settings = self._newest = settings
        self._load, self._use, self._files, self._log = load, use, files, log
        self._seen = self._look()
        self._turn = asyncio.Lock()
        self.applied = 0
        self.refused = 0
        self.current = True
        """True if the files as they are now are in force."""

    async def run(self) -> None:
        """Until cancelled: look at the files every `reload.interval`."""
        while True:
            interval = self._settings.reload.interval
            await asyncio.sleep(interval or 60.0)
            if interval and (found := self._look()) != self._seen:
                await asyncio.sleep(min(interval, SETTLED))
                if self._look() == found:  # half of a file that is being written may be valid, with fewer quotas
                    await self.now("a file changed")

    async def now(self, why: str) -> None:
        """Read everything again and use it; or say what is wrong, and go on with what there was."""
        async with self._turn:
            self._seen = self._look()  # before reading: what changes from now on is read again
            try:
                settings, waiting = await asyncio.to_thread(self._loaded)
                self._newest = settings  # also if they cannot be used: the files that they name may be mended
                self._seen = {name: self._seen.get(name, stamp) for name, stamp in self._look().items()}
                self._use(settings)
            except (SettingsError, TlsError) as e:
                self._refuse(why, str(e))
            except Exception as e:  # nothing that stands in a file may end the proxy
                self._log.error("internal error", exc_info=e)
                self._refuse(why, f"they cannot be read: {type(e).__name__}")
            else:
                self._settings = settings
                self._seen = {name: self._seen[name] for name in self._files(settings)}
                self.applied += 1
                self.current = True
                self._log.info("settings applied", why=why, after_a_restart=waiting)

    def _loaded(self) -> tuple[Settings, list[str]]:
        """New settings, and what of them takes effect at a restart only. In a thread, as there may be thousands of limits."""
        settings = self._load()
        table_of(settings)
        return settings, _waiting(self._started_with, settings)

    def _refuse(self, why: str, reason: str) -> None:
        self.refused += 1
        self.current = False
        self._log.error("settings refused", why=why, reason=reason, detail="the old ones stay in force")

    def _look(self) -> Stamps:
        """The files of the settings in force, and of newer ones that were refused."""
        return {name: stamp_of(name) for settings in (self._settings, self._newest) for name in self._files(settings)}


def _leaves(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted names and values."""
    flat: dict[str, Any] = {}
    for name, value in data.items():
        flat |= _leaves(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat


def _waiting(old: Settings, new: Settings) -> list[str]:
    """Settings that differ and take effect at a restart only."""
    before, after = _leaves(old.model_dump()), _leaves(new.model_dump())
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name) and not LIVE.match(name))
