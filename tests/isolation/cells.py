"""The table of attacks and quota kinds: which cells have a test, and why the others have none. `python -m tests.isolation.cells`
writes docs/isolation.md."""

from __future__ import annotations

from benchmarks.isolation.attack import Attack
from benchmarks.isolation.attacks import ATTACKS
from benchmarks.isolation.victims import KINDS

VARIATIONS = {
    "stranger-mutates": "stranger-asks",
    "stranger-reads-nothing": "unknown-versions-unread",
    "wrong-password": "wrong-password-and-more",
    "half-login": "wrong-password-and-more",
    "reads-alice": "writes-to-alice",
    "uses-alices-transactions": "uses-alices-groups",
    "asks-for-others": "mutates-alice",
    "forged-epochs": "forged-ids",
    "forged-init": "forged-ids",
    "made-up-client-ids": "claimed-client-id",
    "exempt-client-id": "claimed-client-id",
    "made-up-transactions": "made-up-topics",
    "streams-groups": "auto-created",
    "named-again": "auto-created",
    "unknown-versions": "unknown-versions-unread",
    "refused-writes": "refused-writes-unread",
    "describe-quotas": "refused-alterations",
    "refused-creations": "auto-created",
    "unread-metadata": "unread-records",
    "pipelined-versions": "pipelined-versions-stranger",
    "pipelined-metadata": "pipelined-versions-stranger",
    "pipelined-metadata-stranger": "pipelined-versions-stranger",
    "many-addresses": "idle-connections",
    "half-open": "half-requests",
    "come-and-go": "connection-storm",
    "many-logins": "connection-storm",
    "byte-by-byte": "half-requests",
    "announced-100-mib": "half-requests",
    "garbage": "lying-lengths",
    "other-listener": "forged-ids",
    "claimed-address": "no-proxy-header",
    "many-ids-fleet": "many-ids",
    "mutes-fleet": "other-proxy",
}
"""Attacks that are tried at night → the one like it that is tried before every push. What each of them is for has tests without a
broker, in `tests/session`, `tests/apis`, `tests/cluster` and `tests/clients`."""

OWN_LIMIT = "every proxy of a fleet has its own limit, and shares nothing of it"

TEXT = """\
# Isolation

Made from `benchmarks/isolation/attacks` and `tests/isolation/cells.py` by `make docs`; a test fails when this page is out of date.

Nobody can turn a quota against somebody else. Each cell of this table is a test on a real broker with logins and an authorizer,
behind a real proxy with all quotas on: `tests/isolation/test_isolation.py::test_alice_notices_nothing[ATTACK-KIND]`, such as
`[forged-ids-storage]`. While an attack runs, alice goes on with an ordinary workload for every quota kind, within her limits. She
sees no error, no throttle time, no refusal, no answer in another order or with other content, and waits {patience:g} s for none.
For each attack two more tests say that it was one (`test_the_attack_was_one`), and that what it took of memory, connections,
fences and partitions is bounded, that the usage log goes on, and that the proxy tells of no fault of its own
(`test_what_an_attack_takes_is_bounded`). Attacks that are tested *at night* (`make test-all`) are variations of others, which are
tested before every push.

mallory has a login, and rights to what begins with `mallory`. A stranger has none. bob works with mallory: he has rights to what
begins with `bob`, and she may not see that. `make bench-isolation` measures what a test
should not: throughput and p99 of alice alone and under each attack.

| quota kind | what alice does meanwhile | it is for these limits of her tenants as well |
|---|---|---|
{workloads}

{table}
{reasons}
Some attacks are for more than a quota allows. What they get is bounded by the quota, and the same test looks at that. The rate of
controller mutations stands twice where somebody never pauses, as spreading lets that much pass (docs/settings.md):

| attack | what it is for | at once | per second |
|---|---|---|---|
{gains}

Not in the table, as clients cannot do it to alice: a wall clock that is set (`tests/process/test_wall_clock.py`), and what the
proxy promises to the very client that asks, such as how much a rate lets pass and that a consumer of many absent topics gets them
all (`tests/quota`, `tests/real/test_named_topics.py`).
"""


def missing(attack: Attack, kind: str) -> str | None:
    """Why there is no test of this cell; None where there is one."""
    if attack.fleet and kind in ("max_connections", "memory"):
        return OWN_LIMIT
    return None


def cells() -> list[tuple[Attack, str]]:
    """Those with a test, attack by attack."""
    return [(attack, kind) for attack in ATTACKS for kind in KINDS if missing(attack, kind) is None]


def page() -> str:
    """docs/isolation.md"""
    from benchmarks.isolation.victims import WORKLOADS
    from benchmarks.isolation.wire import PATIENCE

    numbers: dict[str, int] = {}
    rows = ["| way | attack | what it does | " + " | ".join(KINDS) + " |", "|---|---|---|" + "---|" * len(KINDS)]
    for attack in ATTACKS:
        marks = []
        for kind in KINDS:
            reason = missing(attack, kind)
            tested = "*at night*" if attack.name in VARIATIONS else "tested"
            marks.append(tested if reason is None else f"no ({numbers.setdefault(reason, len(numbers) + 1)})")
        rows.append(f"| {attack.way} | `{attack.name}` | {attack.does} | " + " | ".join(marks) + " |")
    workloads = "\n".join(
        f"| {workload.quota} | {' '.join((workload.__doc__ or '').split())} | {', '.join(workload.of_tenant)} |"
        for workload in WORKLOADS
    )
    gains = "\n".join(
        f"| `{attack.name}` | {attack.gains.what} | {attack.gains.at_once:g} | {attack.gains.rate:g} |"
        for attack in ATTACKS
        if attack.gains is not None
    )
    reasons = "".join(f"\n({number}) Not tested: {reason}.\n" for reason, number in numbers.items())
    return TEXT.format(patience=PATIENCE, workloads=workloads, table="\n".join(rows), reasons=reasons, gains=gains)


if __name__ == "__main__":
    print(page(), end="")
