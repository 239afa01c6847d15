"""Users of certificates: names and mapping rules as Java and Kafka have them. One test asks Java and Kafka themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type as Asn1
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from localkafka import run_java
from proxy.identity.certificates import NoPrincipal, distinguished_name, expires_at, parse_rules
from proxy.wire.primitives import BadBytes
from tests.certs import Authority


def part(oid: x509.ObjectIdentifier, value: str | bytes, kind: Asn1 | None = None) -> x509.NameAttribute:
    return x509.NameAttribute(oid, value, _type=kind) if kind is not None else x509.NameAttribute(oid, value)


def subject(*parts: x509.NameAttribute) -> x509.Name:
    return x509.Name(parts)


CN, O, OU, C, ST, L = (  # noqa: E741
    NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.COUNTRY_NAME,
    NameOID.STATE_OR_PROVINCE_NAME, NameOID.LOCALITY_NAME,
)  # fmt: skip
DC, UID, STREET = NameOID.DOMAIN_COMPONENT, NameOID.USER_ID, NameOID.STREET_ADDRESS
OTHER = x509.ObjectIdentifier("2.999.1234567.1")

NAMES = {
    "usual": (
        subject(part(C, "DE"), part(ST, "BE"), part(L, "Berlin"), part(O, "Example"), part(OU, "Ops"), part(CN, "etl")),
        "CN=etl,OU=Ops,O=Example,L=Berlin,ST=BE,C=DE",
    ),
    "other keywords": (
        subject(part(DC, "com"), part(DC, "example"), part(UID, "u1"), part(STREET, "Main 1")),
        "STREET=Main 1,UID=u1,DC=example,DC=com",
    ),
    "types without a keyword": (
        subject(part(CN, "x"), part(NameOID.EMAIL_ADDRESS, "a@b.c"), part(NameOID.SERIAL_NUMBER, "12"), part(OTHER, "v")),
        "2.999.1234567.1=#0c0176,2.5.4.5=#13023132,1.2.840.113549.1.9.1=#16056140622e63,CN=x",
    ),
    "several values": (
        x509.Name(
            [x509.RelativeDistinguishedName([part(CN, "x"), part(UID, "y")]), x509.RelativeDistinguishedName([part(O, "o")])]
        ),
        "O=o,CN=x+UID=y",
    ),
    "special characters": (
        subject(part(CN, ' a,b=c+d<e>f#g;h"i\\j '), part(O, "#x")),
        r"O=\#x,CN=\ a\,b\=c\+d\<e\>f\#g\;h\"i\\j\ ",
    ),
    "spaces at the ends": (subject(part(CN, "  two  inside  ")), r"CN=\ \ two  inside\ \ "),
    "only spaces": (subject(part(CN, "   ")), r"CN=\ \ \ "),
    "control characters": (subject(part(CN, "\r\ta\0b\n")), "CN=\\\r\ta\\00b\n"),
    "beyond ASCII": (subject(part(CN, "Jürgen 漢 😀")), "CN=Jürgen 漢 😀"),
    "two bytes a character": (subject(part(CN, "bmp", Asn1.BMPString)), r"CN=\00b\00m\00p"),
    "four bytes a character": (subject(part(CN, "u", Asn1.UniversalString)), "CN=#1c0400000075"),
    "old texts": (subject(part(CN, "t", Asn1.T61String), part(O, "i", Asn1.IA5String)), "O=i,CN=t"),
    "texts that Java takes for none": (
        subject(part(CN, "1", Asn1.NumericString), part(O, "v", Asn1.VisibleString)),
        "O=#1a0176,CN=#120131",
    ),
    "no text at all": (subject(part(NameOID.X500_UNIQUE_IDENTIFIER, b"\0\1", Asn1.BitString)), "2.5.4.45=#03020001"),
    "a long value": (subject(part(O, "o" * 200), part(CN, "x")), "CN=x,O=" + "o" * 200),
    "nothing": (subject(), ""),
}

MAPPED = [
    ("DEFAULT", "CN=etl,OU=Ops", "CN=etl,OU=Ops"),
    ("  DEFAULT  ", "CN=etl", "CN=etl"),
    (",DEFAULT", "CN=etl", "CN=etl"),
    ("RULE:^CN=(.*?),.*$/$1/L, DEFAULT", "CN=Joe,O=x", "joe"),
    ("RULE:^CN=(.*?),.*$/$1/L, DEFAULT", "CN=Joe", "CN=Joe"),
    ("RULE:^CN=(.*?),.*$/$1/", "CN=Joe", None),
    ("RULE:CN=a,O=b/x/,RULE:CN=c/y/", "CN=c", "y"),
    ("RULE:CN=a/b/  ,\n   DEFAULT", "CN=c", "CN=c"),
    ("RULE:CN=(\\S+)/$1/U", "CN=straße", "STRASSE"),
    ("RULE:^CN=(.*?),\\s*OU=(?!admin)(.*)$/$1@$2/", "CN=a,OU=dev", "a@dev"),
    ("RULE:^CN=(.*?),\\s*OU=(?!admin)(.*)$/$1@$2/", "CN=a,OU=admin", None),
    # what is replaced is what the pattern finds, though it has to fit the whole name
    ("RULE:(.*)/$1@x/", "CN=a", "CN=a@x@x"),
    ("RULE:CN=(.*?)/$1/", "CN=abc", "abc"),
    # groups: $0, by name, that took no part, that do not exist, of two digits
    ("RULE:^CN=(\\w+),O=(.*)$/$1-$2-$0-$3/", "CN=a,O=b", "a-b-CN=a,O=b-$3"),
    ("RULE:^CN=(?<n>.*)$/${n}!/", "CN=a", "a!"),
    ("RULE:^CN=(a)(b)?$/$1[$2]$12/", "CN=a", "a[]a2"),
    ("RULE:CN=(.)(.)(.)(.)(.)(.)(.)(.)(.)(.)(.)/$11$12/", "CN=abcdefghijk", "ka2"),
    ("RULE:^CN=(.*)$/$01/", "CN=zz", "zz"),
    ("RULE:^CN=a$/cost \\$5/", "CN=a", "cost $5"),
    ("RULE:CN=a//", "CN=a", ""),
    # escapes, classes, flags, line ends
    ("RULE:^CN=x\\/y$/a\\/b/", "CN=x/y", "a/b"),
    ("RULE:CN=[.(?<]+\\z/x/", "CN=.(<", "x"),
    ("RULE:(?i)cn=(.*)/$1/", "CN=a", "a"),
    ("RULE:CN=\\w+/x/", "CN=é", None),
    ("RULE:CN=.*/x/", "CN=a\rb", None),
    ("RULE:(?s)CN=.*/x/", "CN=a\rb", "x"),
    ("RULE:CN=(.*+)/$1/", "CN=a", "a"),
    ("RULE:CN=(?>a|ab)c/x/", "CN=abc", None),
]

MISTAKES = {
    "": "there is no rule; must be DEFAULT, or RULE:",
    "DEFAULTS": "'DEFAULTS' is not a rule; must be DEFAULT, or RULE:",
    "default": "'default' is not a rule",
    "DEFAULT RULE:CN=a/b/": "commas separate rules",
    "RULE:^CN=(.*)$/$1": "with L, U or nothing at its end",
    "RULE:CN=a/b/LU": "is not a rule",
    "RULE:CN=(a/$1/": r"'CN=\(a' is not one that this proxy knows: missing \)",
    "RULE:\\p{L}+/x/": "not one that this proxy knows",
    "RULE:[a-z&&[b]]/x/": "not one that this proxy knows",
    "RULE:CN=a\\Z/x/": r"has \\Z, which this proxy does not know",
    "RULE:CN=a/$1/": "names group 1 of a pattern without groups",
    "RULE:CN=(a)/$x/": r"\$1 is the first group",
    "RULE:CN=(a)/${x}/": r"\$1 is the first group",
}


@pytest.fixture(scope="module")
def der(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], bytes]:
    authority = Authority(tmp_path_factory.mktemp("names"))
    return lambda case: authority.client("client", NAMES[case][0]).der


@pytest.mark.parametrize("case", NAMES)
def test_a_name_is_written_as_java_writes_it(der: Callable[[str], bytes], case: str) -> None:
    assert distinguished_name(der(case)) == NAMES[case][1]


@pytest.mark.parametrize(("rules", "name", "user"), MAPPED)
def test_rules_give_the_user_that_kafka_gives(rules: str, name: str, user: str | None) -> None:
    if user is None:
        with pytest.raises(NoPrincipal, match="no mapping rule applies to CN="):
            parse_rules(rules).user(name)
    else:
        assert parse_rules(rules).user(name) == user


@pytest.mark.parametrize("rules", MISTAKES)
def test_a_bad_rule_is_refused_with_what_would_be_right(rules: str) -> None:
    with pytest.raises(ValueError, match=MISTAKES[rules]):
        parse_rules(rules)


@pytest.mark.parametrize("cut", [0, 1, 3, 60, -1])
def test_half_a_certificate_is_none(der: Callable[[str], bytes], cut: int) -> None:
    with pytest.raises(BadBytes):
        distinguished_name(der("usual")[:cut])


@given(st.data())
def test_any_bytes_give_a_name_or_bad_bytes(der: Callable[[str], bytes], data: st.DataObject) -> None:
    whole = bytearray(der("usual"))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, 250))] = data.draw(st.integers(0, 255))
    try:
        assert isinstance(distinguished_name(bytes(whole)), str)
    except BadBytes:
        pass


def test_a_chain_ends_with_the_first_of_its_certificates(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    old, new = (authority.server(name, "a", expired=name == "old") for name in ("old", "new"))
    ends = [pair.certificate.not_valid_after_utc.timestamp() for pair in (old, new)]
    assert ends[0] < ends[1]
    for pem in (new.cert.read_bytes() + old.cert.read_bytes(), old.cert.read_bytes()):
        assert expires_at(pem) == ends[0]
    for none in (b"", old.key.read_bytes(), b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"):
        with pytest.raises(BadBytes):
            expires_at(none)


@pytest.mark.kafka
def test_java_and_kafka_agree() -> None:
    """The tables above are what X500Principal and Kafka's SslPrincipalMapper say."""
    asked = [f"dn {name.public_bytes().hex()}" for name, _ in NAMES.values()]
    asked += [f"map {rules.encode().hex()} {name.encode().hex()}" for rules, name, _ in MAPPED]
    wanted: list[str | None] = [written for _, written in NAMES.values()] + [user for _, _, user in MAPPED]
    source = Path(__file__).parents[1] / "real" / "java" / "Names.java"
    answers = run_java(source, stdin="\n".join(asked) + "\n", check=True).stdout.splitlines()
    assert [
        bytes.fromhex(line[1:]).decode() if line.startswith("=") else None if line == "none" else line for line in answers
    ] == wanted
