"""The ways in which somebody can misbehave: a table of attacks, each with one sentence of what it does.

In: an `Attacker`, who says whom to attack and when it is over. Out: what was sent and answered, in its tally. Who has not logged in
is a stranger here; mallory has, and has rights to topics of her own only."""

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
