"""How many connections an address may open (KIP-612), as a broker behind the proxy cannot know: it sees the proxy's address.

In: the address of a connection that has just come, the time. Out: a verdict that refuses it, with the delay after which it is
closed. A connection that is refused does not count, as in Kafka, so a storm does not prolong itself. Each address has a window of
its own, of IPv6 each network of `ipv6_prefix` bits, as one client has a whole network of those. It leaves to others: sockets and
timers (`proxy/clients/listeners.py`), and how many connections a user may open, which is a plain rate (`connection_rate`).

Memory: `MAX_ENTITIES` windows; further addresses share one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final

from quota.addresses import owner_of, parsed
from quota.catalogue import ADDRESS_RATE
from quota.decision import Action, Decision, Verdict, figure
from quota.entity import OTHERS, Entity
from quota.kinds.rates import RateLimit, Rates
from quota.ledger import Sums
from quota.limit_table import LimitTable, ResolvedLimit
from quota.limits import Limits

NAME: Final = ADDRESS_RATE.kind
MAX_DELAY: Final = 1.0
"""Seconds after which a connection that is refused is closed at the latest, as in Kafka: one window."""

Network = IPv4Network | IPv6Network
Prefix = tuple[int, int, int]
"""(version, bits, the first bits of the address as a number)"""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Connections per second: `per_address` of each address, `networks` of each address in these networks, of which the smallest
    network holds. None: not limited. ValueError for rates that are not above 0 and prefixes that are none."""

    per_address: float | None = None
    networks: Mapping[Network, float] = field(default_factory=dict)
    ipv6_prefix: int = 64

    def __post_init__(self) -> None:
        for rate in (*self.networks.values(), *(() if self.per_address is None else (self.per_address,))):
            RateLimit(rate)
        if not 1 <= self.ipv6_prefix <= 128:
            raise ValueError(f"an IPv6 prefix of {self.ipv6_prefix} bits; 1 to 128 is right")


class AddressTable(LimitTable[RateLimit]):
    """The limit of each address."""

    def __init__(self, limits: ConnectionLimits) -> None:
        super().__init__({})
        self._default = None if limits.per_address is None else RateLimit(limits.per_address)
        self._ipv6_prefix = limits.ipv6_prefix
        rates = [*limits.networks.values(), *(() if limits.per_address is None else (limits.per_address,))]
        self._others = RateLimit(max(rates)) if rates else None
        self._networks = {
            _prefix(network.network_address, network.prefixlen): RateLimit(r) for network, r in limits.networks.items()
        }
        self._lengths = sorted({(version, bits) for version, bits, _ in self._networks}, reverse=True)

    def __bool__(self) -> bool:
        return self._default is not None or bool(self._networks)

    def of(self, owner: Entity) -> RateLimit | None:
        """The limit of a window; the largest of all for the one that further addresses share."""
        try:
            found = self._limit(parsed((owner.topic or "").partition("/")[0]))
        except ValueError:
            return self._others
        return None if found is None else found[0]

    def resolve(self, host: str) -> ResolvedLimit[RateLimit] | None:
        """The limit that holds for an address, and whose window it is; None where it is not limited, or no address. An IPv6 address
        shares a window with its network, which is smaller than usual where the limit is of a smaller one."""
        try:
            address = parsed(host)
        except ValueError:
            return None
        found = self._limit(address)
        if found is None:
            return None
        limit, bits = found
        if address.version == 6 and (shared := max(bits, self._ipv6_prefix)) < 128:
            return ResolvedLimit(limit, owner_of(str(ip_network((address, shared), strict=False))))
        return ResolvedLimit(limit, owner_of(str(address)))

    def shared(self, found: ResolvedLimit[RateLimit]) -> ResolvedLimit[RateLimit]:
        """The window that further addresses share, where there is no room for more windows."""
        return ResolvedLimit(found.limit if self._others is None else self._others, owner_of(OTHERS))

    def _limit(self, address: IPv4Address | IPv6Address) -> tuple[RateLimit, int] | None:
        """The limit, and how many bits of the address it is about."""
        for version, bits in self._lengths:
            if version == address.version and (limit := self._networks.get(_prefix(address, bits))) is not None:
                return limit, bits
        return None if self._default is None else (self._default, 0)


class AddressConnections:
    """The quota of all addresses."""

    name = NAME
    title = "address connection rate"

    def __init__(self) -> None:
        self.rates = Rates(NAME, self.title, "connections")
        self._table = AddressTable(ConnectionLimits())
        self._observed = False

    def __len__(self) -> int:
        """Addresses that have a window."""
        return len(self.rates)

    def configure(self, limits: Limits, /) -> None:
        """These limits hold from now on."""
        self._table = AddressTable(limits.option(ConnectionLimits) or ConnectionLimits())
        self._observed = NAME in limits.observed
        self.rates.limits = self._table

    def arrive(self, host: str, now: float) -> Verdict:
        """A connection has come from there: it is counted, or refused."""
        found = self._table.resolve(host) if self._table else None
        if found is None:
            return Verdict(0)
        meter = self.rates.meter(found.owner, now)
        self.rates.touch(meter)
        wait = meter.wait(now)
        if wait <= 0 or self._observed:  # what is only observed goes on, and so it counts
            meter.record(1, now)
        if wait <= 0:
            return Verdict(1)
        usage, limit, delay = meter.average(now), meter.limit, min(wait, MAX_DELAY)
        message = (
            f"The {self.title} quota of {meter.owner} is exceeded: {figure(usage)} connections/s on average,"
            f" limit {figure(limit)}/s; a further one is closed after {figure(delay)} s."
        )
        return Verdict(0, Decision(NAME, Action.REFUSE, meter.owner, (0,), usage, limit, delay, message))

    def sweep(self, now: float) -> None:
        """Forget what has passed."""
        self.rates.sweep(now)

    def publish(self) -> Sequence[Sums]:
        """Proxies add up the connections that they let in."""
        return self.rates.publish()


def parse_network(text: str) -> Network:
    """An address or a network; ValueError for what is neither."""
    network = ip_network(text.strip(), strict=False)
    if isinstance(network, IPv6Network) and network.network_address.ipv4_mapped is not None and network.prefixlen >= 96:
        return IPv4Network((network.network_address.ipv4_mapped, network.prefixlen - 96), strict=False)
    return network


def _prefix(address: IPv4Address | IPv6Address, bits: int) -> Prefix:
    return address.version, bits, int(address) >> (address.max_prefixlen - bits)
