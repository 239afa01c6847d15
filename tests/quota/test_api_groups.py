"""The table of API groups."""

from quota.api_groups import GROUP_OF, GROUPS, LIMITED, LOGIN
from quota.catalogue import KEYS, REQUEST_RATES
from tests.messages import api_key_map


def test_every_api_of_kafka_is_in_exactly_one_group():
    assert api_key_map.keys() <= GROUP_OF.keys()
    assert sorted(key for keys in GROUPS.values() for key in keys) == sorted(GROUP_OF)


def test_every_group_but_the_login_has_a_rate_of_its_own():
    rates = {row.kind: row for row in KEYS.values()}
    for key, group in GROUP_OF.items():
        assert (key in REQUEST_RATES) == (group != LOGIN)
        if group != LOGIN:
            measure = rates[REQUEST_RATES[key]].measure
            assert measure is not None
            assert key in measure.apis
    assert {rates[f"{group}_request_rate"].name for group in LIMITED} == {f"cluster_{group}_request_rate" for group in LIMITED}


def test_reading_is_not_changing():
    """What only describes is never in the group of what changes something."""
    for key, name in api_key_map.items():
        if name.startswith(("describe_", "list_")) and "cluster" not in name and "topic_partitions" not in name:
            assert GROUP_OF[key] == "describe", name
        if name.startswith(("create_", "delete_", "alter_", "update_")):
            assert GROUP_OF[key] == "admin", name
