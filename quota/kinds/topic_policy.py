"""Policies of topics: which numbers of partitions, replication factors and configs a request may give a topic.

In: what is asked for of a topic, and whose it is. Out: what is against the policy. It leaves to others: who owns which topic
(`quota.owned_topics`), how a refusal looks.

A rule is a range or a set. What a request does not name is left to the brokers and is not judged. -1 is `without a limit` for
retention.ms and retention.bytes: it is above every range that has an upper end. Of cleanup.policy, which is a list, each part has
to be in the set. Each rule of a tenant holds in the place of the default's rule for the same thing."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from quota.decision import Action, Decision, Verdict
from quota.entity import Entity
from quota.ledger import Sums
from quota.limits import Limits
from quota.tenants import TenantEntity, tenant_among

if TYPE_CHECKING:
    from quota.engine import Engine

NAME: Final = "topic_policy"
PARTITIONS: Final = "partitions"
REPLICATION_FACTOR: Final = "replication factor"
NUMBERS: Final = ("retention.ms", "retention.bytes", "max.message.bytes")
"""Configs that are numbers."""
WITHOUT_LIMIT: Final = frozenset({"retention.ms", "retention.bytes"})
"""Those of them of which -1 means that there is no limit."""
CONFIGS: Final = (*NUMBERS, "cleanup.policy")
AT_ONCE: Final = 100
"""Topics that are judged in one step."""


class Rule(NamedTuple):
    """What is allowed: numbers from `least` to `most`, or, where `names` or `numbers` has any, these."""

    least: float = -inf
    most: float = inf
    numbers: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.names or self.numbers:
            return ", ".join(map(str, self.names or self.numbers))
        if self.most == inf:
            return f"at least {self.least:.0f}"
        return f"at most {self.most:.0f}" if self.least == -inf else f"{self.least:.0f} to {self.most:.0f}"


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """Rules by thing: `PARTITIONS`, `REPLICATION_FACTOR`, or a config."""

    rules: Mapping[str, Rule] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicPolicyOptions:
    """The policy of all topics, and those of tenants by name."""

    default: TopicPolicy = TopicPolicy()
    tenants: Mapping[str, TopicPolicy] = field(default_factory=dict)


class AskedTopic(NamedTuple):
    """What a request asks for of a topic; `new` if it is to be created. `values` by thing; a config that is no number is text."""

    name: str
    new: bool
    values: Mapping[str, str | int]


class Violation(NamedTuple):
    """`thing` has a `value` that `rule` does not allow; `tenant`: whose rule that is, None for the default's."""

    thing: str
    value: str | int
    rule: Rule
    tenant: TenantEntity | None

    @property
    def message(self) -> str:
        whose = "" if self.tenant is None else f" of {self.tenant}"
        return f"{self.thing} {str(self.value)[:100]} is against the topic policy{whose}; allowed: {self.rule}."


class TopicPolicies:
    """The kind."""

    name: Final = NAME
    title: Final = "topic policy"

    def __init__(self) -> None:
        self._options = TopicPolicyOptions()

    def __bool__(self) -> bool:
        return bool(self._options.default.rules) or any(policy.rules for policy in self._options.tenants.values())

    def configure(self, limits: Limits, /) -> None:
        """These policies hold from now on. Topics that are there stay as they are."""
        self._options = limits.option(TopicPolicyOptions) or TopicPolicyOptions()

    def violation(self, values: Mapping[str, str | int], owners: Sequence[Entity]) -> Violation | None:
        """The first thing that is against the policy of a topic of these owners; None if all is allowed."""
        tenant = tenant_among(owners)
        own = {} if tenant is None else self._options.tenants.get(tenant.topic or "", TopicPolicy()).rules
        for thing, value in values.items():
            rule = own.get(thing) or self._options.default.rules.get(thing)
            if rule is not None and not allows(rule, thing, value):
                return Violation(thing, value, rule, tenant if thing in own else None)
        return None

    def sweep(self, now: float) -> None:
        """Nothing is remembered."""

    def publish(self) -> Sequence[Sums]:
        """Nothing: each proxy judges by itself."""
        return ()


def allows(rule: Rule, thing: str, value: str | int) -> bool:
    """True if a rule allows this value. Texts that are no number, of what is one, are left to the brokers, which refuse them."""
    if rule.names:
        return all(part.strip() in rule.names for part in str(value).split(",") if part.strip())
    try:
        number = int(value)
    except ValueError:
        return True
    if rule.numbers:
        return number in rule.numbers
    return rule.least <= (inf if number == -1 and thing in WITHOUT_LIMIT else number) <= rule.most


def judging(
    engine: Engine, user: str, asked: Sequence[AskedTopic | None], now: float
) -> Generator[None, None, dict[int, tuple[Decision, str]]]:
    """Judge what a request of a user asks for, in steps: the decisions that hold and their messages, by item. None: an item that is
    not judged."""
    found: dict[tuple[str, Rule, TenantEntity | None], dict[int, Violation]] = {}
    for i, one in enumerate(asked):
        if i % AT_ONCE == AT_ONCE - 1:
            yield
        if one is None or not one.values:
            continue
        owners = engine.owned.owners(one.name, user if one.new else engine.owned.creator(one.name))
        violation = engine.topic_policies.violation(one.values, owners)
        if violation is not None:
            found.setdefault((violation.thing, violation.rule, violation.tenant), {})[i] = violation
    refused: dict[int, tuple[Decision, str]] = {}
    for (_, rule, tenant), items in found.items():
        violation = next(iter(items.values()))
        usage, limit = _figures(rule, violation.value)
        owner = tenant or Entity(user, None)
        decided = Decision(NAME, Action.REFUSE, owner, tuple(items), usage, limit, 0.0, violation.message)
        decision = engine.enforce(Verdict(0, decided), now, mute=False).decision
        if decision is not None:
            refused |= {i: (decision, one.message) for i, one in items.items()}
    return refused


def _figures(rule: Rule, value: str | int) -> tuple[float, float]:
    """What is asked for, and the end of the range that it is beyond; 1 and 0 where there is no range."""
    if rule.names or rule.numbers:
        return 1.0, 0.0
    number = float(value)
    return number, rule.most if rule.most < inf else rule.least
