"""The user of a client's certificate (RFC 2253; Kafka's `ssl.principal.mapping.rules`, KIP-371).

In: a certificate that TLS has verified, and rules. Out: its distinguished name as Java writes it, so that the rules and
principals of brokers fit here too, and the name of the user. A certificate that no rule applies to is `NoPrincipal`, as in
Kafka; its connection is to be closed.

Rules are Java's regular expressions. What Python says in the same way is taken; what it says in another way, or not at all
(`\\p{L}`, `[a&&b]`), is refused when settings are read, so that no rule means one thing here and another at a broker."""

from __future__ import annotations

import binascii
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from asn1crypto.core import ObjectIdentifier
from asn1crypto.parser import parse
from asn1crypto.x509 import Certificate

from proxy.wire.primitives import BadBytes


class NoPrincipal(Exception):
    """No mapping rule applies to a distinguished name."""


# ---------------------------------------------------------------------- distinguished names

_KEYWORDS: Final = {
    "2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET", "2.5.4.10": "O", "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID", "0.9.2342.19200300.100.1.25": "DC",
}  # fmt: skip
"""The keywords of RFC 2253; other types are written as numbers."""
_TEXTS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString: Java takes the bytes of each for UTF-8."""
_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
_ESCAPED: Final = frozenset(',=+<>#;"\\')


def distinguished_name(der: bytes) -> str:
    """The subject of a certificate, as X500Principal.getName() prints it: last part first, values of one part joined by `+`.
    `BadBytes` when it is not a certificate (DER)."""
    try:
        subject = Certificate.load(der, strict=True)["tbs_certificate"]["subject"]
        parts = ["+".join(_attribute(each.contents) for each in part) for part in subject.chosen]
    except (ValueError, TypeError):
        raise BadBytes("this is not a certificate") from None
    return ",".join(reversed(parts))


def expires_at(pem: bytes) -> float:
    """When the first of these certificates (PEM) is no longer valid, as POSIX time; `BadBytes` when there is none."""
    ends = []
    for block in _PEM.findall(pem):
        try:
            certificate = Certificate.load(binascii.a2b_base64(block))
            ends.append(float(certificate["tbs_certificate"]["validity"]["not_after"].native.timestamp()))
        except (ValueError, TypeError):
            raise BadBytes("this is not a certificate") from None
    if not ends:
        raise BadBytes("there is no certificate")
    return min(ends)


def _attribute(pair: bytes) -> str:
    """A type and its value, as they are encoded; the library would refuse values of odd types."""
    _, _, _, head, body, _ = parse(pair)
    value = pair[len(head) + len(body) :]
    _, _, tag, _, text, _ = parse(value, strict=True)
    dotted = ObjectIdentifier.load(head + body, strict=True).dotted
    if dotted in _KEYWORDS and tag in _TEXTS:
        return f"{_KEYWORDS[dotted]}={_escaped(text.decode(errors='replace'))}"
    return f"{_KEYWORDS.get(dotted, dotted)}=#{value.hex()}"


def _escaped(text: str) -> str:
    """A value as Java escapes it: special characters anywhere, spaces and carriage returns at the ends, NUL as \\00."""
    inner = "".join("\\" + c if c in _ESCAPED else "\\00" if c == "\0" else c for c in text)
    rest = inner.lstrip(" \r")
    lead, body = inner[: len(inner) - len(rest)], rest.rstrip(" \r")
    return "".join("\\" + c for c in lead) + body + "".join("\\" + c for c in rest[len(body) :])


# ---------------------------------------------------------------------- mapping rules

# Kafka's own grammar of rules, so that the same texts are split at the same commas.
_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(?:.*?)"
_SPLIT: Final = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)")
_ONE: Final = re.compile(_RULE)
_TOKEN: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?<(?![=!])|\.")
_ANY_BUT_LINE_ENDS: Final = "[^\n\r\u0085\u2028\u2029]"
_WANTED: Final = "must be DEFAULT, or RULE:pattern/replacement/ with L, U or nothing at its end; commas separate rules"


@dataclass(frozen=True)
class _Rule:
    """`pattern` None: the name as it is. `replacement`: texts and numbers of groups. `case`: L, U or nothing."""

    pattern: re.Pattern[str] | None
    replacement: tuple[str | int, ...] = ()
    case: str = ""

    def apply(self, name: str) -> str | None:
        """The user, None when the rule does not fit the whole name. What is replaced is what the pattern finds, as in Kafka."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        user = self.pattern.sub(lambda m: "".join(p if isinstance(p, str) else m[p] or "" for p in self.replacement), name)
        return user.lower() if self.case == "L" else user.upper() if self.case == "U" else user


@dataclass(frozen=True)
class Rules:
    """Mapping rules in their order."""

    rules: tuple[_Rule, ...]

    def user(self, name: str) -> str:
        """The user that a distinguished name stands for, by the first rule that fits; `NoPrincipal` when none does."""
        for rule in self.rules:
            if (user := rule.apply(name)) is not None:
                return user
        raise NoPrincipal(f"no mapping rule applies to {name}")


def parse_rules(text: str) -> Rules:
    """Rules from the text of the setting. ValueError says what would be right."""
    rules = tuple(_rule(match[1]) for match in _SPLIT.finditer(text.strip()) if match[1])
    if not rules:
        raise ValueError(f"there is no rule; {_WANTED}")
    return Rules(rules)


def _rule(text: str) -> _Rule:
    match = _ONE.match(text)
    if match is None or match.end() != len(text):
        raise ValueError(f"{text!r} is not a rule; {_WANTED}")
    if match[1]:
        return _Rule(None)
    pattern = _compiled(match[2])
    return _Rule(pattern, tuple(_replacement(match[3], pattern)), match[4])


def _compiled(java: str) -> re.Pattern[str]:
    keep_dots = re.search(r"\(\?[a-z]*s", java) is not None

    def in_python(match: re.Match[str]) -> str:
        token = match[0]
        if token in (r"\v", r"\Z"):
            raise ValueError(f"the pattern {java!r} has {token}, which this proxy does not know; write it in another way")
        return {"(?<": "(?P<", r"\z": r"\Z", ".": "." if keep_dots else _ANY_BUT_LINE_ENDS}.get(token, token)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return re.compile(_TOKEN.sub(in_python, java), re.ASCII)
    except (re.error, FutureWarning, DeprecationWarning, OverflowError, RecursionError) as e:
        raise ValueError(f"the pattern {java!r} is not one that this proxy knows: {e}; write it in another way") from None


def _replacement(java: str, pattern: re.Pattern[str]) -> Iterator[str | int]:
    """`$1` and `${name}` are groups, `\\` takes the next character as it is; in a pattern with groups, a number that is none of
    theirs is plain text."""
    for match in re.finditer(r"\\(.)|\$(\d+)|\$\{(\w+)\}|([^\\$]+|\$)", java, re.DOTALL):
        escaped, digits, name, plain = match.groups()
        if name is not None and name in pattern.groupindex:
            yield pattern.groupindex[name]
        elif digits is not None:
            yield from _group(digits, pattern.groups, java)
        elif plain == "$" or name is not None:
            raise ValueError(f"the replacement {java!r} has a `$` with no group behind it; $1 is the first group, \\$ is a `$`")
        else:
            yield escaped or plain


def _group(digits: str, groups: int, java: str) -> Iterator[str | int]:
    """As many digits as make the number of a group; the others are text. `$0` is all that was found."""
    taken = 1
    while taken < len(digits) and int(digits[: taken + 1]) <= groups:
        taken += 1
    number = int(digits[:taken])
    if number <= groups:
        yield number
        yield digits[taken:]
    elif groups:
        yield "$" + digits
    else:
        raise ValueError(f"the replacement {java!r} names group {number} of a pattern without groups; put parentheses there")
