"""The Redis or Valkey of the ledger: how to reach it, and the scripts that keep sums and events. In: batches.
Out: answers; `StoreError` with what is wrong in words. redis-py is imported only where a Redis is configured.

Keys begin with `{namespace/1/shard}`, so that a shard stands on one node of a cluster; 1 is the version of what they hold:

- `:g`            the generation: another whenever all was lost
- `:p/BOOT`       number of the last batch of a proxy
- `:n`            the proxies that there are, by when they were last heard of
- `:k/KIND/OWNER` a hash of the total (t), how the window stood (l), when (a) and at which total (b)
- `:events`       the stream of events of shard 0"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import itertools
import secrets
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from redis.exceptions import AuthenticationError, NoPermissionError, NoScriptError, RedisClusterException, RedisError
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import TimeoutError as NoAnswer

from proxy.config.ledger import Ledger as Settings
from proxy.fleet.store import Entry, Reply, StoreError
from proxy.tls import explain
from proxy.upstream.broker_client import BrokerError, secret_in
from quota.ledger import Answer, Level, Update

VERSION: Final = 1
BOOT_KEPT: Final = 600
"""Seconds after which the store forgets a proxy that is silent."""
GENERATION_KEPT: Final = 7 * 86_400
"""Seconds after which the store forgets a shard that no proxy asks for."""
MAX_EVENTS: Final = 1_000_000
"""Entries that the stream keeps at most, in case no proxy drops old ones. 20 proxies that append every 0.1 s for an hour stay
below it, so one proxy cannot push out the entries of others: `quota.fleet_events` bounds the events of each user."""

SCRIPT: Final = """
local generation = redis.call('GET', KEYS[1])
if not generation then
  generation = ARGV[1]
  redis.call('SET', KEYS[1], generation, 'EX', ARGV[6])
end
local number, last = tonumber(ARGV[3]), tonumber(redis.call('GET', KEYS[2]) or '0')
if generation ~= ARGV[2] or number > last + 1 then
  return {generation, 0, last}
end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local new = number > last
if new then
  redis.call('SET', KEYS[2], ARGV[3], 'EX', ARGV[4])
end
local proxies = 0
if ARGV[5] ~= '' then
  redis.call('EXPIRE', KEYS[1], ARGV[6])
  redis.call('ZADD', KEYS[3], now, ARGV[7])
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now - tonumber(ARGV[5]))
  redis.call('PEXPIRE', KEYS[3], ARGV[5])
  proxies = redis.call('ZCARD', KEYS[3])
end
local totals, levels = {}, {}
for i = 4, #KEYS do
  local at = 7 + (i - 4) * 3
  local delta, keep, level = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local total
  if new and delta ~= '0' then
    total = redis.call('HINCRBY', KEYS[i], 't', delta)
    if level ~= '' or total == tonumber(delta) then
      redis.call('PEXPIRE', KEYS[i], keep)
    end
  else
    total = tonumber(redis.call('HGET', KEYS[i], 't') or '0')
  end
  totals[#totals + 1] = string.format('%.0f', total)
  if level == '?' then
    local known = redis.call('HMGET', KEYS[i], 'l', 'a', 'b')
    if known[1] then
      local age, since = now - tonumber(known[2]), string.format('%.0f', total - tonumber(known[3]) - tonumber(delta))
      levels[#levels + 1] = table.concat({i - 4, known[1], age, since}, ' ')
    end
  elseif level ~= '' then
    redis.call('HSET', KEYS[i], 'l', level, 'a', string.format('%.0f', now), 'b', string.format('%.0f', total))
  end
end
return {generation, 1, number, proxies, table.concat(totals, ' '), levels}
"""

APPEND: Final = """
redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', unpack(ARGV, 3))
if redis.call('TTL', KEYS[1]) < 0 then
  redis.call('EXPIRE', KEYS[1], ARGV[2])
end
"""
"""A script, so that a stream whose first proxy ends at once is forgotten, too."""


class _Credentials(CredentialProvider):
    """Name and password as they are when a connection is made."""

    def __init__(self, username: str | None, password: str | None, file: str | None, setting: str) -> None:
        self._username, self._password, self._file, self._setting = username, password, file, setting

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        password = self._password if self._file is None else secret_in(self._setting, self._file)
        return (password or "",) if self._username is None else (self._username, password or "")

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        return self.get_credentials()


class RedisStore:
    """One client of Redis. It connects when it is asked something, and anew after whatever went wrong."""

    def __init__(self, settings: Settings, boot: str, *, patience: float | None = None) -> None:
        """`patience`: seconds that it may take to answer, where that is not `timeout`."""
        self._settings, self._boot = settings, boot
        self._patience = settings.timeout if patience is None else patience
        self._client: Any = None
        self._stream = self.key(0, "events")

    def key(self, shard: int, rest: str) -> str:
        """The name of a key of a shard."""
        return f"{{{self._settings.namespace}/{VERSION}/{shard}}}:{rest}"

    async def send(self, update: Update, count_for: float = 0.0) -> Reply:
        """Have the script do a batch. If `count_for` > 0, this proxy counts as alive for that many seconds, and the live ones
        are counted."""
        keys = [self.key(update.shard, rest) for rest in ("g", f"p/{self._boot}", "n")]
        keys += [self.key(update.shard, f"k/{change.key}") for change in update.changes]
        count = int(count_for * 1000) or ""
        arguments: list[str | int | float] = [
            *(secrets.token_hex(8), update.generation, update.number, BOOT_KEPT, count, GENERATION_KEPT, self._boot)
        ]
        for change in update.changes:
            level = "?" if change.fresh else "" if change.level is None else change.level
            arguments += (change.delta, int(change.keep * 1000), level)
        return _read(await self._do(SCRIPT, keys, arguments))

    async def append_event(self, fields: Mapping[str, str]) -> None:
        await self._do(APPEND, [self._stream], [MAX_EVENTS, GENERATION_KEPT, *itertools.chain.from_iterable(fields.items())])

    async def read_events(self, after: str, limit: int, wait: float) -> list[Entry]:
        found = await self.ask("xread", {self._stream: after}, count=limit, block=int(wait * 1000) or None)
        return [_entry(id, fields) for _, entries in found or () for id, fields in entries]

    def position_at(self, time: float) -> str:
        return f"{max(int(time * 1000), 1) - 1}-{2**64 - 1}"

    async def forget_events(self, before: float, keep: float) -> None:
        await self.ask("xtrim", self._stream, minid=max(int(before * 1000), 0), approximate=True)
        await self.ask("expire", self._stream, int(keep))

    async def time(self) -> float:
        seconds, micros = await self.ask("time")
        return int(seconds) + int(micros) / 1e6

    async def _do(self, script: str, keys: Sequence[str], arguments: Sequence[str | int | float]) -> Any:
        """Run a script, and hand it over only where Redis does not have it yet."""
        try:
            return await self.ask("evalsha", _digest(script), len(keys), *keys, *arguments)
        except NoScriptError:
            return await self.ask("eval", script, len(keys), *keys, *arguments)

    async def ask(self, command: str, *arguments: Any, **more: Any) -> Any:
        """A command by its name in redis-py. `StoreError` when it failed, or when its outcome is unknown."""
        try:
            if self._client is None:
                self._client = _client(self._settings, self._patience)
            async with asyncio.timeout(self._patience * 2):  # each of its steps has `patience`
                found = await getattr(self._client, command)(*arguments, **more)
            _stop_if_cancelled()
            return found
        except NoScriptError:
            raise
        except asyncio.CancelledError:
            await self.close()
            raise
        except Exception as e:  # whatever the library makes of it: the data path goes on
            await self.close()
            _stop_if_cancelled()
            raise StoreError(_why(e, self._settings)) from None

    async def close(self) -> None:
        """Let go of all connections; the next question makes new ones."""
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):  # it is of no more use, whatever it says
                async with asyncio.timeout(1):
                    await client.aclose()


@functools.cache
def _digest(script: str) -> str:
    """The name of a script in Redis."""
    return hashlib.sha1(script.encode()).hexdigest()  # noqa: S324


def _stop_if_cancelled() -> None:
    """Raise again a cancellation that the library has replaced or suppressed. The canceller waits for it."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _entry(id: bytes, fields: Mapping[bytes, bytes]) -> Entry:
    """An id is the time in milliseconds, and a number."""
    decoded = {name.decode(errors="replace"): value.decode(errors="replace") for name, value in fields.items()}
    return Entry(id.decode(), int(id.split(b"-")[0]) / 1000, decoded)


def _read(found: Any) -> Reply:
    """What the script answers."""
    generation = found[0].decode()
    if not found[1]:
        return Reply(Answer(generation, False, found[2]), 0)
    totals = [int(total) for total in found[4].split()]
    levels = {}
    for told in found[5]:
        i, level, age, since = told.split()
        levels[int(i)] = Level(float(level), max(int(age), 0) / 1000, int(since))
    return Reply(Answer(generation, True, found[2], totals, levels), found[3])


def _client(settings: Settings, patience: float) -> Any:
    """A client as settings have it. It does not retry: its callers do."""
    more: dict[str, Any] = {
        "credential_provider": _credentials(settings),
        "socket_timeout": patience,
        "socket_connect_timeout": patience,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "client_name": "kafka-quota-proxy",
        **_tls(settings),
    }
    host, port = settings.servers[0]
    if settings.mode == "cluster":
        nodes = [ClusterNode(host, port) for host, port in settings.servers]
        return RedisCluster(startup_nodes=nodes, require_full_coverage=False, **more)
    if settings.mode == "single":
        return Redis(host=host, port=port, db=settings.database, **more)
    asking = more | {"credential_provider": _sentinel_credentials(settings)}
    sentinels: Any = Sentinel([tuple(it) for it in settings.servers], sentinel_kwargs=asking)  # type: ignore[no-untyped-call]
    return sentinels.master_for(settings.sentinel_master, db=settings.database, **more)


def _credentials(settings: Settings) -> CredentialProvider | None:
    password = None if settings.password is None else settings.password.get_secret_value()
    if password is None and settings.password_file is None:
        return None
    return _Credentials(settings.username, password, settings.password_file, "ledger.password_file")


def _sentinel_credentials(settings: Settings) -> CredentialProvider | None:
    if settings.sentinel_password_file is None:
        return None
    return _Credentials(settings.sentinel_username, None, settings.sentinel_password_file, "ledger.sentinel_password_file")


def _tls(settings: Settings) -> dict[str, Any]:
    tls = settings.tls
    if tls is None:
        return {}
    password = None
    if tls.key_password_file is not None:
        password = secret_in("ledger.tls.key_password_file", tls.key_password_file)
    return {
        "ssl": True,
        "ssl_ca_certs": tls.ca_file,
        "ssl_certfile": tls.cert_file,
        "ssl_keyfile": tls.key_file,
        "ssl_check_hostname": tls.verify_hostname,
        "ssl_min_version": ssl.TLSVersion.TLSv1_2,
        **({} if password is None else {"ssl_password": password}),
    }


def _why(error: Exception, settings: Settings) -> str:
    """What went wrong, in words that name no secret."""
    where = ", ".join(str(server) for server in settings.servers)
    match error:
        case BrokerError():
            return str(error)
        case AuthenticationError() | NoPermissionError():
            return f"{where} refuses the login, or does not allow it what the ledger does: {error}"
        case NoAnswer() | TimeoutError():
            return f"{where} does not answer in time"
        case NoConnection() | RedisClusterException() | MasterNotFoundError():
            cause = error.__cause__ or error.__context__
            reason = explain(cause) if isinstance(cause, OSError) else str(error)
            return f"{where} cannot be reached: {reason}"
        case OSError():
            return f"{where} cannot be reached: {explain(error)}"
        case RedisError():
            return f"{where} says: {error}"
        case _:
            return f"{where}: {type(error).__name__}: {error}"
