"""The attacks by clients: a table, with one sentence for each about what it does.

In: an `Attacker`, which has the address to attack and says when it is over. Out: what was sent and answered, in its tally. A
stranger is a client without a login. mallory is logged in, and has rights only to her own topics."""

from typing import Final

from benchmarks.isolation.attack import Attack
from benchmarks.isolation.attacks import connections, elsewhere, floods, intruders, naming, strangers

ATTACKS: Final = tuple(
    found
    for module in (strangers, intruders, naming, floods, connections, elsewhere)
    for found in vars(module).values()
    if isinstance(found, Attack)
)
"""In the order of the table."""

BY_NAME: Final = {found.name: found for found in ATTACKS}
