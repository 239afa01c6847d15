"""Settings of policies of topics: what partitions, replication factor and configs may be."""

from __future__ import annotations

from math import inf
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from configfile.base import Model
from proxy.config.units import Size
from quota.kinds.topic_policy import CONFIGS, PARTITIONS, REPLICATION_FACTOR, Rule, TopicPolicy

_Count = Annotated[int, Field(ge=1, le=1_000_000)]


class _Range(Model):
    """Numbers that are allowed: from `min` to `max`, or one of a set."""

    min: Any = None
    max: Any = None
    one_of: Any = ()

    @model_validator(mode="after")
    def _something(self) -> _Range:
        low, high = self.min, self.max
        if bool(self.one_of) == (low is not None or high is not None):
            raise ValueError("set `min`, `max` or both; or `one_of`")
        if low is not None and high is not None and low > high:
            raise ValueError(f"`min` {low} is above `max` {high}")
        return self

    def rule(self) -> Rule:
        """What is allowed."""
        low, high = self.min, self.max
        return Rule(-inf if low is None else low, inf if high is None else high, tuple(self.one_of))


class CountRange(_Range):
    """Numbers that are allowed: from `min` to `max`, or one of a set."""

    min: _Count | None = None
    """The smallest value that is allowed."""
    max: _Count | None = None
    """The largest value that is allowed."""
    one_of: list[_Count] = Field(default_factory=list)
    """The values that are allowed, in the place of `min` and `max`."""


class ConfigRange(_Range):
    """Values of a config that are allowed: from `min` to `max`, or one of a set. -1 of `retention.ms` and `retention.bytes` means
    that there is no limit, which is above any `max`."""

    min: Annotated[Size, Field(ge=0)] | None = None
    """The smallest value that is allowed."""
    max: Annotated[Size, Field(ge=0)] | None = None
    """The largest value that is allowed."""
    one_of: list[Annotated[int, Field(ge=-1)]] = Field(default_factory=list)
    """The values that are allowed, in the place of `min` and `max`."""


class TopicPolicySettings(Model):
    """What requests may give to topics; what they leave to the brokers is not judged."""

    partitions: CountRange | None = None
    """Partitions of a topic, when it is created and when partitions are added."""
    replication_factor: CountRange | None = None
    """The replication factor of a topic that is created."""
    retention_ms: ConfigRange | None = None
    """The config `retention.ms`, in milliseconds."""
    retention_bytes: ConfigRange | None = None
    """The config `retention.bytes`."""
    max_message_bytes: ConfigRange | None = None
    """The config `max.message.bytes`."""
    cleanup_policy: list[Literal["delete", "compact"]] = Field(default_factory=list)
    """What the config `cleanup.policy` may have in its list."""

    def policy(self) -> TopicPolicy:
        """The rules that are set."""
        ranges = {PARTITIONS: self.partitions, REPLICATION_FACTOR: self.replication_factor}
        ranges |= {name: getattr(self, name.replace(".", "_")) for name in CONFIGS if name != "cleanup.policy"}
        rules = {thing: one.rule() for thing, one in ranges.items() if one is not None}
        if self.cleanup_policy:
            rules["cleanup.policy"] = Rule(names=tuple(self.cleanup_policy))
        return TopicPolicy(rules)
