"""Whether a connection is let in: whether its requests are judged, counted and remembered in the name of its user.

A connection is let in once a broker has shown that it serves it: it accepted the login that the proxy watched, or it answered a
request. Where the cluster wants logins, a broker answers nothing but ApiVersions and the login itself before that (KIP-43,
KIP-152), and closes the connection upon anything else. So before the first request of a connection that has not logged in, the
proxy asks the broker about no topic at all (`knock`): only a broker that serves this connection answers. Mechanisms whose
exchange the proxy cannot follow, such as GSSAPI, are let in this way too.

The knock costs a round trip for each new connection. A cluster that has served a connection without a login is taken for one
that wants none, for `OPEN_FOR` seconds each time, and not at all once a broker has accepted a login, for `CLOSED_FOR` seconds: so
connections to a cluster without logins are let in at once.

In: what brokers did, with the time in monotonic seconds. Out: whether connections without a login are let in."""

from __future__ import annotations

from math import inf
from typing import Final

OPEN_FOR: Final = 60.0
"""Seconds for which a cluster that served somebody without a login is taken for one that wants none."""
CLOSED_FOR: Final = 3600.0
"""Seconds for which a cluster that accepted a login is not taken for one that wants none."""
MAX_REQUESTS: Final = 100
"""Requests of a connection before it is let in: a login takes a handful."""
MAX_FRAME: Final = 524_288
"""Bytes of a request before the connection is let in, as brokers have it (`sasl.server.max.receive.size`)."""


class Admission:
    """What brokers have done so far. `logins`: the cluster is known to want logins, as the proxy itself has to log in."""

    __slots__ = ("_closed_until", "_open_until")

    def __init__(self, *, logins: bool = False) -> None:
        self._open_until = -inf
        self._closed_until = inf if logins else -inf

    def is_open(self, now: float) -> bool:
        """True if connections are let in without a login."""
        return self._closed_until <= now < self._open_until

    def served(self, now: float) -> None:
        """A broker answered a request of a connection that had not logged in."""
        self._open_until = max(self._open_until, now + OPEN_FOR)

    def logged_in(self, now: float) -> None:
        """A broker accepted a login."""
        self._closed_until = max(self._closed_until, now + CLOSED_FOR)
