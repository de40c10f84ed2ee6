"""Texts that any encoding of Unicode takes."""

from __future__ import annotations

from typing import Any


def encodable(text: str) -> str:
    r"""The text, with what UTF-8 cannot say (half a pair of surrogates, as names of files that are
    no UTF-8 have) as its escape.

    >>> encodable("caf\udce9"), encodable("café")
    ('caf\\udce9', 'café')
    """
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def all_encodable(value: Any) -> Any:
    """Plain data with all its texts so."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {
            encodable(k) if isinstance(k, str) else k: all_encodable(v) for k, v in value.items()
        }
    return [all_encodable(one) for one in value] if isinstance(value, list) else value
