"""Secrets out of all that people, logs and other systems are shown.

There is one list of names and one rule for texts; configuration, logs, failures, traces and the
answers of servers go by them. Each character of a text is looked at a bounded number of times: it
may be any text, and whoever logs it waits.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Final

from .failure_text import cut
from .texts import encodable

HIDDEN: Final = "***"

_SECRET: Final = re.compile(
    r"password|passwd|passphrase|passcode|secret|credential|authorization|signature|cookie|jaas"
    r"|tokens?\d*(?:_|$)|(?:^|_)(?:pwd|jwt|sig|sas)(?:_|$)|_(?:pass|auth)$"
    r"|(?:api|access|account|private|signing|encryption)_?key|connection_?string"
    r"|otlp_headers?"
)
"""In names, of which the words are joined by `_`."""

_DATA_KEYS: Final = frozenset(
    (
        *("partition", "primary", "foreign", "sort", "group", "row", "record", "message", "event"),
        *("cache", "public", "routing", "order", "join", "shard", "map", "state", "user"),
        *("natural", "surrogate"),
    )
)
"""What has keys that are data: `partition_key` is no secret, any other `..._key` is."""

_STEMS: Final = (
    *("pass", "secret", "token", "credential", "auth", "sig", "cookie", "jaas", "pwd", "jwt"),
    *("sas", "key", "connection", "otlp"),
)
"""Of these at least one is in the name of a secret."""

_MARKS: Final = (*_STEMS, "bearer", "basic", "identified", "://", "-----begin")
"""Of these at least one is in a text that is changed."""

_NAMED: Final = re.compile(
    rf"(?:{'|'.join(_STEMS)})[\w.\-]{{0,128}}+(?P<close>\\{{0,16}}(?:\"\"|''|[\"'])?\]?)"
    r"(?P<sign>[ \t]{0,8}(?::=|=>|==|[=:>]|%3[ad])[ \t]{0,8}"
    r"|,?\s{0,64}\\{0,16}[\"']{0,2}value\\{0,16}[\"']{0,2}[ \t]{0,8}[=:][ \t]{0,8}"
    r"|[ \t]{0,8},\s{0,8}(?=[bru]{0,2}\\{0,16}[\"'])|[ \t]{1,8})",
    re.IGNORECASE,
)
"""`name=`, `"name": `, `['name'] = `, `<name>`, `--name `, `"name", "value": `, `'name', '`, from
the stem on. Quotes may be doubled, as in CSV: `""name"": `."""

_VALUE: Final = re.compile(
    r"(?<![\w.\-])value(?P<close>\\{0,16}(?:\"\"|''|[\"'])?)[ \t]{0,8}[=:][ \t]{0,8}",
    re.IGNORECASE,
)
"""Of a pair whose value stands first: what stands before that."""

_ITS_NAME: Final = re.compile(
    r"\\{0,16}(?:\"{1,3}|'{1,3}|[)}\]])?\s{0,8}[,;&]?\s{0,64}"
    r"\\{0,16}[\"']{0,2}(?:name|key|id|type)\\{0,16}[\"']{0,2}[ \t]{0,8}[=:][ \t]{0,8}"
    r"(?P<quote>[bru]{0,2}\\{0,16}(?:\"\"|''|[\"']))?(?P<name>[\w.\-]{1,128}+)"
    r"(?(quote)(?=\\{0,16}[\"'])|(?=[\s,;&)}\]>]|$))",
    re.IGNORECASE,
)
"""From the end of the value on."""

_LONG: Final = 1024
"""Characters. In a longer value that is no secret itself, no pair of this kind is looked for: all
of it would be looked at again for each."""

_SHORT: Final = frozenset(("pass", "auth"))
"""Names that are also words: of secrets only in `pass=` and `"pass": `."""

_SQL: Final = re.compile(
    r"\b(?:identified\s{1,8}(?:with\s{1,8}\S{1,64}\s{1,8})?by|password)"
    r"\s{1,8}(?:password\s{1,8})?(?=\\{0,16}[\"'])",
    re.IGNORECASE,
)
"""What stands before a password in quotes: also `WITH PASSWORD '`."""

_WORD: Final = re.compile(r"[\w.\-]*")
_OPENING: Final = re.compile(r"(?:[bru]{1,2}(?=\\{0,16}[\"']))?(\\{0,16})(\"{3}|'{3}|[\"'])", re.I)
_CLOSING: Final = {quote: re.compile(rf"{quote}|\n") for quote in ('"', "'", '"""', "'''")}
_TWICE: Final = {quote * 2: re.compile(rf"{quote * 2}|\n") for quote in "\"'"}
_LATER: Final = {
    **{q: re.compile(rf"[^{q}]{{0,1024}}+(?<![\s=:,(\[{{\\]){q}(?=[\s,;&)}}\]]|$)") for q in "\"'"},
    **{q * 3: re.compile(rf"(?:[^{q}]|{q}(?!{q}{q})){{0,4096}}+{q * 3}") for q in "\"'"},
}
"""From the end of a line on: up to what closes a quote that this line has opened, if the next such
quote looks like it."""

_DOUBLED: Final = re.compile(r"(?:''|\"\"|'\\''|'\"'\"')")
"""A quote within what is quoted, as SQL and shells have it."""

_BEHIND_PAIR: Final = re.compile(r"\\{0,16}(?:\"{1,3}|'{1,3})\s{0,8},?\s{0,8}[)\]]")
_BRACKET: Final = re.compile(r"[\[\](){}\n]")
_BARE: Final = re.compile(r"[^\s,;&]*")
_LINE: Final = re.compile(r"[^\n\"']*")
_FIRST: Final = re.compile(r"[^\s,;&\"']*")
_ELEMENT: Final = re.compile(r"[^<\n]*")
_SCHEME: Final = re.compile(
    r"(?:Bearer|Basic|Token|Digest|Negotiate|ApiKey|AWS4-HMAC-SHA256) {1,8}(?=\S)", re.IGNORECASE
)
"""Of what an Authorization header holds: this may be seen."""

_NO_SECRETS: Final = frozenset(("none", "null", "true", "false", "undefined", HIDDEN))

_BEARER: Final = re.compile(r"\b(Bearer|Basic)([ \t]{1,8})([\w.~+/=\-]{6,})", re.IGNORECASE)
_PROSE: Final = frozenset(
    ("token", "tokens", "scheme", "authentication", "authorization", "header")
)

_URL: Final = re.compile(r"://[^\s\"'<>]*")
_WEB: Final = ("http", "https")
_MOST_SCHEME: Final = 36
_PORT: Final = re.compile(r"[^:/]*:\d{1,5}/")
_DATABASE: Final = re.compile(
    r"(?:postgres|postgresql|mysql|mariadb|redis|rediss|mongodb|amqps?|mssql|oracle|clickhouse)"
    r"(?:\+\w{1,24})?$",
    re.IGNORECASE,
)
"""Whose URLs have no `@` behind host and port."""

_PEM: Final = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----")
_PEM_END: Final = "-----END "

_VENDORS: Final = ("AWS_", "AZURE_", "GOOGLE_", "GCS_", "OSS_", "FSSPEC_")
SHORTEST: Final = 4
"""A shorter value hides nothing, and would be found in any text."""


@lru_cache(4096)
def is_secret(name: str) -> bool:
    """Whether what an option, variable, field or header of this name holds is not to be shown.

    >>> [is_secret(name) for name in ("fs.s3a.access.key", "apiKey", "partition_key", "tokenizer")]
    [True, True, False, False]
    """
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name[-256:])
    words = re.sub(r"[^a-z0-9]+", "_", split.lower()).strip("_")
    if _SECRET.search(words):
        return True
    owner, _, last = words.rpartition("_")
    return last == "key" and bool(owner) and owner.rpartition("_")[2] not in _DATA_KEYS


def redacted_values(values: Mapping[str, str]) -> dict[str, str]:
    """The same names, with what is secret hidden."""
    return {
        name: HIDDEN if is_secret(name) else redacted(value) if isinstance(value, str) else value
        for name, value in values.items()
    }


def redacted(text: str, limit: int | None = None) -> str:
    """A text as it may be shown, and encoded: what it gives as the value of a secret's name, logins
    of URLs and headers, private keys and the credentials of the environment are hidden. A number
    of tokens is how many there are. Longer than `limit` it is cut, so that no piece of a secret
    stays.

    >>> redacted("password=hunter2, tokens: 17, kafka://me:pw@host")
    'password=***, tokens: 17, kafka://***@host'
    """
    if limit is not None and len(text) > limit:
        return cut(redacted(cut(text, 4 * limit)), limit)
    text = encodable(without(text, of_environment()))
    small = text.lower()
    if not any(mark in small for mark in _MARKS):
        return text
    if "-----begin" in small:
        text = _replaced(text, _PEM, _private_key)
    if "://" in small:
        text = _URL.sub(_without_logins, text)
    if any(stem in small for stem in _STEMS):
        if "value" in small:
            text = _replaced(text, _VALUE, _value_before)
        text = _replaced(text, _NAMED, _value_of)
    if "identified" in small or "password" in small:
        text = _replaced(text, _SQL, _quoted_next)
    if "bearer" in small or "basic" in small:
        text = _BEARER.sub(_login, text)
    return text


def without(text: str, secrets: Iterator[str] | list[str]) -> str:
    """The text without these, wherever they stand in it."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


# --- the environment ---------------------------------------------------------------------------

_LOOK_S: Final = 1.0

_found: tuple[float, int, dict[str, str]] = (float("-inf"), 0, {})
"""When it was looked at, how many variables there were, and those that hold credentials."""


def of_environment() -> list[str]:
    """The credentials of storages that the environment has now."""
    global _found
    now, size = time.monotonic(), len(os.environ)
    at, before, known = _found
    if (
        now - at > _LOOK_S
        or size != before
        or any(os.environ.get(n) != v for n, v in known.items())
    ):
        known = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(_VENDORS) and len(value) >= SHORTEST
            if is_secret(name) or name.endswith("_KEY")
        }
        _found = (now, size, known)
    return list(known.values())


# --- the parts of a text -----------------------------------------------------------------------

Hide = Callable[[str, "re.Match[str]"], "tuple[int, str] | None"]
"""Of a text and what was found in it: up to where it is replaced from the end of that on, by what;
None: not at all."""


def _replaced(text: str, pattern: re.Pattern[str], hide: Hide) -> str:
    """Goes on behind what was replaced: nothing is looked at again."""
    pieces, kept, at = [], 0, 0
    while (found := pattern.search(text, at)) is not None:
        at = found.end()
        if (hidden := hide(text, found)) is not None:
            pieces += [text[kept : found.end()], hidden[1]]
            kept = at = hidden[0]
    return "".join([*pieces, text[kept:]])


def _value_of(text: str, found: re.Match[str]) -> tuple[int, str] | None:
    """What stands behind a name."""
    back = text[max(0, found.start() - 64) : found.start()][::-1]
    word = _WORD.match(back)
    begins = found.start() - (word.end() if word is not None else 0)
    name, sign, at = text[begins : found.start("close")], found["sign"].strip(), found.end()
    if at >= len(text) or not (
        is_secret(name) or (name.lower() in _SHORT and (found["close"] or sign in ("=", ":=")))
    ):
        return None
    if sign == ",":
        return _second(text, begins, found) if found["close"] else None
    if sign == ">":
        element = text[max(0, begins - 1) : begins] == "<"
        return _bare(name, text, at, _ELEMENT) if element else None
    if not sign and not (name.startswith("--") and text[at] != "-"):
        return None
    if (whole := _within(text, at, found["close"])) is not None:
        return whole
    header = re.search("authorization|cookie", name, re.IGNORECASE)
    return _bare(name, text, at, _LINE if header else _BARE)


def _value_before(text: str, found: re.Match[str]) -> tuple[int, str] | None:
    """A value whose name comes next."""
    at = found.end()
    whole = _within(text, at, found["close"])
    end = at + len(_taken(_BARE, text, at)) if whole is None else whole[0]
    named = _ITS_NAME.match(text, end)
    name = "" if named is None else named["name"]
    if is_secret(name) or name.lower() in _SHORT:
        return _bare(name, text, at, _BARE) if whole is None else whole
    return (end, text[at:end]) if end - at > _LONG else None


def _within(text: str, at: int, close: str) -> tuple[int, str] | None:
    """What stands in quotes or brackets from here on; None: it stands in none. `close`: what closes
    the name before it."""
    if close[-2:] in _TWICE and text.startswith(close, at):
        return _twice_quoted(text, at + len(close), close)
    if (opening := _OPENING.match(text, at)) is not None:
        return _quoted(text, opening)
    return _enclosed(text, at) if text.startswith(("[", "(", "{"), at) else None


def _second(text: str, begins: int, name: re.Match[str]) -> tuple[int, str] | None:
    """Of a pair in brackets, of which the first is a name in quotes."""
    before = text[max(0, begins - 24) : begins].rstrip("\"'").rstrip("\\")
    opening = _OPENING.match(text, name.end())
    if opening is None or not before.removesuffix("b").endswith(("(", "[")):
        return None
    end, hidden = _quoted(text, opening)
    return None if _BEHIND_PAIR.match(text, end) is None else (end, hidden)


def _quoted_next(text: str, found: re.Match[str]) -> tuple[int, str] | None:
    opening = _OPENING.match(text, found.end())
    return None if opening is None else _quoted(text, opening)


def _quoted(text: str, opening: re.Match[str]) -> tuple[int, str]:
    """Up to the quote that closes it, maybe some lines on, in a text that itself may be quoted;
    without one to the end of the line."""
    escapes, begins = len(opening[1]), opening.end()
    skipped = begins
    for found in _CLOSING[opening[2]].finditer(text, begins):
        at, run = found.start(), 0
        if at < skipped:
            continue
        if found[0] == "\n":
            later = _LATER[opening[2]].match(text, at) if not escapes else None
            closed = at if later is None else later.end() - len(opening[2])
            return closed, opening[0] + HIDDEN
        if not escapes and len(opening[2]) == 1:
            if at == begins and text[at + 1 : at + 2].isalnum():  # the text around doubles quotes
                return _twice_quoted(text, at + 1, opening[0] + opening[2])
            doubled = _DOUBLED.match(text, at) if at > begins else None
            if doubled is not None and doubled[0][-1] == opening[2]:
                skipped = doubled.end()
                continue
        while at - run > begins and text[at - run - 1] == "\\":
            run += 1
        if run < escapes:  # it is the text around that ends
            return at, opening[0] + HIDDEN
        if run % (2 * escapes + 2) == escapes:
            return at - escapes, opening[0] + (HIDDEN if at - escapes > begins else "")
    return len(text), opening[0] + HIDDEN


def _twice_quoted(text: str, begins: int, opening: str) -> tuple[int, str]:
    """As `_quoted`, of quotes that the text around doubles, and to the end of the line at most."""
    escapes, end = opening.count("\\"), len(text)
    for found in _TWICE[opening[-2:]].finditer(text, begins):
        at, run = found.start(), 0
        while at - run > begins and text[at - run - 1] == "\\":
            run += 1
        if found[0] == "\n" or run < escapes:
            end = at
            break
        if run % (2 * escapes + 2) == escapes:
            end = at - escapes
            break
    return end, opening + (HIDDEN if end > begins else "")


def _enclosed(text: str, at: int) -> tuple[int, str]:
    """A list or the like, as far as it stands in one line."""
    depth = 0
    for found in _BRACKET.finditer(text, at):
        if found[0] == "\n":
            return found.start(), text[at] + HIDDEN
        depth += 1 if found[0] in "[({" else -1
        if depth == 0:
            return found.start(), text[at] + (HIDDEN if found.start() > at + 1 else "")
    return len(text), text[at] + HIDDEN


def _bare(name: str, text: str, at: int, pattern: re.Pattern[str]) -> tuple[int, str] | None:
    """Without quotes: what the pattern takes, and what closes something behind it."""
    first = pattern if pattern is not _LINE else _FIRST
    value = _taken(first, text, at)
    counts = value.replace(".", "").isdigit() and _may_count(name.lower(), len(value))
    if not value or counts or value.lower() in _NO_SECRETS:
        return None
    if pattern is _LINE:
        value = _taken(pattern, text, at)
    scheme = _SCHEME.match(value)
    return at + len(value), ("" if scheme is None else scheme[0]) + HIDDEN


def _may_count(name: str, digits: int) -> bool:
    """Whether a number behind the name may be how many there are: not a long one of one token."""
    short = digits < SHORTEST
    return short if name in _SHORT or name.endswith("token") else "token" in name


def _taken(pattern: re.Pattern[str], text: str, at: int) -> str:
    found = pattern.match(text, at)
    return "" if found is None else found[0].rstrip("\"')}]\\\r ")


def _private_key(text: str, found: re.Match[str]) -> tuple[int, str]:
    end = text.find(_PEM_END, found.end())
    return (len(text) if end < 0 else end), HIDDEN


def _without_logins(found: re.Match[str]) -> str:
    """Of a URL from `://` on, where another may follow. A user alone is a login of the web's only:
    other URLs have names of containers there."""
    scheme = found.string[max(0, found.start() - _MOST_SCHEME) : found.start()]
    pieces = []
    for piece in found[0].split("://")[1:]:
        before, at, behind = piece.rpartition("@")
        user, colon, _ = before.partition(":")
        login = at and "/" not in user and (colon or scheme.lower().endswith(_WEB))
        if login and _PORT.match(before) is not None:
            login = _DATABASE.search(scheme) is not None
        pieces.append(HIDDEN + at + behind if login else piece)
        scheme = piece[-_MOST_SCHEME:]
    return "".join(f"://{piece}" for piece in pieces)


def _login(found: re.Match[str]) -> str:
    scheme, space, told = found.groups()
    if scheme.lower() == "basic":
        try:
            if b":" not in base64.b64decode(told, validate=True):
                return found[0]
        except (ValueError, binascii.Error):
            return found[0]
    elif told.lower().rstrip(".") in _PROSE:
        return found[0]
    return f"{scheme}{space}{HIDDEN}"
