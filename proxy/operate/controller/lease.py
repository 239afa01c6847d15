"""Which of several controllers works: who holds a Lease. In: the Lease, the time. Out: whether it is held now, and until when.

The holder is the only one who alters anything. It renews before each pass, and ends the pass before the Lease can be another's.
Others go by their own clocks: they take a Lease that has not changed for its whole duration since they first saw it so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.operate.controller.api import LEASES, ApiError, Kubernetes, Object
from proxy.operate.controller.objects import stamp

DURATION: Final = 30
"""Seconds after which a Lease that nobody renews is free."""
PASS: Final = 20.0
"""Seconds after a renewal in which the holder works."""


class Lease:
    """One candidate's view. `clock` is monotonic, `wall` is what is written."""

    def __init__(
        self, api: Kubernetes, namespace: str, name: str, identity: str, clock: Callable[[], float], wall: Callable[[], float]
    ) -> None:
        self._api, self._namespace, self._name, self._identity = api, namespace, name, identity
        self._clock, self._wall = clock, wall
        self._seen: tuple[str, float] | None = None
        """Version of the Lease, and since when it is known."""

    async def held(self) -> bool:
        """Renew it, or take it if it is free. False if another holds it, or was quicker."""
        lease = await self._api.get(LEASES, self._namespace, self._name)
        try:
            if lease is None:
                body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self._name}}
                await self._api.create(LEASES, self._namespace, body | {"spec": self._spec({})})
                return True
            if not self._free(lease):
                return False
            await self._api.replace(LEASES, self._namespace, lease | {"spec": self._spec(lease.get("spec", {}))})
        except ApiError as e:
            if e.status == 409:
                return False
            raise
        return True

    def _free(self, lease: Object) -> bool:
        holder = lease.get("spec", {}).get("holderIdentity")
        if holder in (None, "", self._identity):
            return True
        version = str(lease["metadata"]["resourceVersion"])
        if self._seen is None or self._seen[0] != version:
            self._seen = version, self._clock()
        return self._clock() - self._seen[1] > DURATION

    def _spec(self, old: Object) -> Object:
        now, mine = stamp(self._wall(), "microseconds"), old.get("holderIdentity") == self._identity
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": DURATION,
            "acquireTime": old.get("acquireTime", now) if mine else now,
            "renewTime": now,
            "leaseTransitions": int(old.get("leaseTransitions") or 0) + (not mine and bool(old)),
        }

    async def release(self) -> None:
        """Let another take it at once."""
        lease = await self._api.get(LEASES, self._namespace, self._name)
        if lease is not None and lease.get("spec", {}).get("holderIdentity") == self._identity:
            await self._api.replace(LEASES, self._namespace, lease | {"spec": lease["spec"] | {"holderIdentity": ""}})
