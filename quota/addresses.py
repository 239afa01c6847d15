"""Addresses of clients as entities of limits and as owners of windows (KIP-612). In: an address as text. Out: the same address
spelled in one way, and its entity."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from quota.entity import DEFAULT, Entity


class AddressEntity(Entity):
    """An address, or a network of them: `topic` holds it, so that stores of a fleet have no other keys than before. As the entity
    of a limit its client id is empty: it stands in one table with tenants, which may have any name."""

    def __str__(self) -> str:
        return f"address {self.topic}"


def owner_of(address: str) -> AddressEntity:
    """The owner of a window."""
    return AddressEntity(None, None, address)


def with_limit(name: str) -> AddressEntity:
    """The entity of a limit by its name, which has to be spelled in the one way."""
    return AddressEntity(None, "", name)


DEFAULT_ADDRESS: Final = with_limit(DEFAULT)
"""All addresses without a limit of their own, each by itself."""


def entity_of(name: str | None) -> AddressEntity:
    """The entity of a limit by any spelling of its name, None for the default; ValueError for what is no address. Kafka takes names
    of hosts as well, which it looks up in DNS."""
    if name is None:
        return DEFAULT_ADDRESS
    try:
        return with_limit(str(parsed(name)))
    except ValueError:
        raise ValueError(f"{name!r} is not an IP address; names of hosts are not looked up") from None


@lru_cache(10_000)
def parsed(host: str) -> IPv4Address | IPv6Address:
    """ValueError for what is no address. IPv4 addresses that came through an IPv6 socket are IPv4 addresses."""
    address = ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped
