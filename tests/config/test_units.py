"""What people write, what the program gets."""

import re

import pytest

from configfile.units import DURATION_TEXT, SIZE_TEXT
from proxy.config.listeners import Listener
from proxy.config.models import Settings
from proxy.config.units import HostPort, PortRange, parse_duration, parse_host_port, parse_port_range, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        (1048576, 1048576),
        ("64MiB", 64 << 20),
        ("1.5KiB", 1536),
        ("10 kB", 10_000),
        ("10KB", 10_000),
        ("2GB", 2 * 10**9),
        ("1TiB", 1 << 40),
        ("7B", 7),
    ],
)
def test_sizes(text, size):
    assert parse_size(text) == size
    assert re.search(SIZE_TEXT, str(text))


@pytest.mark.parametrize("text", ["", "MiB", "-1", "1mib", "1 M", "1e3", "0x10", True, 1.5, None, [1]])
def test_what_is_no_size(text):
    with pytest.raises(ValueError, match="64MiB"):
        parse_size(text)
    assert not isinstance(text, str) or not re.search(SIZE_TEXT, text), "the schema"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30), ("500ms", 0.5), ("5m", 300), ("1h", 3600), ("1d", 86400), ("1.5 h", 5400), (0, 0), ("0", 0),
        ("PT1M", 60), ("pt1m", 60), ("PT0S", 0), ("PT0.5S", 0.5), ("P1D", 86400), ("P1DT2H3M4.5S", 93784.5), ("PT36H", 129600),
    ],
)  # fmt: skip
def test_durations(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)
    assert re.search(DURATION_TEXT, str(text))


@pytest.mark.parametrize(
    "text", ["", "30", 30, 1.5, True, None, "-30s", "PT-1M", "-PT1M", "P", "PT", "P1W", "P1M", "P1Y", "1w", "1 month", "1:30"]
)
def test_what_is_no_duration(text):
    with pytest.raises(ValueError, match="such as 30s"):
        parse_duration(text)
    if isinstance(text, str) and text not in ("P", "PT"):
        assert not re.search(DURATION_TEXT, text), "the schema"


@pytest.mark.parametrize(
    ("text", "address"),
    [("kafka:9092", ("kafka", 9092)), ("[::1]:9092", ("::1", 9092)), (":9092", ("0.0.0.0", 9092)), ("10.0.0.1:0", ("10.0.0.1", 0))],  # noqa: S104
)
def test_addresses_and_how_they_read(text, address):
    assert parse_host_port(text) == address
    assert parse_host_port(str(parse_host_port(text))) == address


@pytest.mark.parametrize(
    "text", ["", "kafka", "kafka:", ":", "kafka:x", "kafka:-1", "kafka:65536", "::1:9092", "a b:1", "http://a:1", None, 9092]
)
def test_what_is_no_address(text):
    with pytest.raises(ValueError, match=r"kafka-0\.example\.com:9092"):
        parse_host_port(text)


@pytest.mark.parametrize(
    ("text", "ports"), [("9193-9292", (9193, 9292)), ("1-1", (1, 1)), ("0", (0, 0)), (0, (0, 0)), (PortRange(3, 4), (3, 4))]
)
def test_port_ranges(text, ports):
    assert parse_port_range(text) == ports


@pytest.mark.parametrize("text", ["", "9193", "0-5", "5-4", "1-65536", "a-b", "1-", "-1", 9193, None])
def test_what_is_no_port_range(text):
    with pytest.raises(ValueError, match="9193-9292"):
        parse_port_range(text)


@pytest.mark.parametrize(
    ("bootstrap", "ports"),
    [(9192, (9193, 9292)), (0, (0, 0)), (65500, (65501, 65535)), (65534, (65535, 65535))],
    ids=["usual", "any", "near the end", "one left"],
)
def test_broker_ports_stand_above_the_bootstrap_port(bootstrap, ports):
    assert Listener(bootstrap=HostPort("a", bootstrap)).ports() == ports


def test_a_bootstrap_port_with_no_ports_above_it_still_has_a_range():
    first, last = Listener(bootstrap=HostPort("a", 65535)).ports()
    assert first <= last


def test_a_name_for_everything_in_the_json_schema():
    schema = Settings.model_json_schema()
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == set(Settings.model_fields)
    for model in (schema, *schema["$defs"].values()):
        for name, setting in model["properties"].items():
            assert "description" in setting or "$ref" in str(setting), name


def test_the_json_schema_lets_through_what_the_program_does():
    """Types in the schema are those that a file may have, and defaults fit their own types."""
    kinds = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", type(None): "null", dict: "object"}
    wrong = []
    schema = Settings.model_json_schema()
    for title, model in (("Settings", schema), *schema["$defs"].items()):
        for name, setting in model["properties"].items():
            told = [setting.get("type"), *(one.get("type") for one in setting.get("anyOf", ()))]
            types = {kind for kinds_of in told for kind in ([kinds_of] if isinstance(kinds_of, str) else kinds_of or ())}
            if (
                "default" in setting
                and types
                and kinds[type(setting["default"])] not in types | ({"integer"} if "number" in types else set())
            ):
                wrong.append(f"{title}.{name}: {setting['default']!r} is no {types}")
            if types == {"string"} and {"minimum", "maximum", "exclusiveMinimum"} & setting.keys():
                wrong.append(f"{title}.{name}: a string with bounds of a number")
    assert wrong == []
