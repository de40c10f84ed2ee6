"""Texts that any encoding of Unicode takes."""

from __future__ import annotations


def encodable(text: str) -> str:
    r"""The text, with what UTF-8 cannot say (half a pair of surrogates, as names of files that are
    no UTF-8 have) as its escape.

    >>> encodable("caf\udce9"), encodable("café")
    ('caf\\udce9', 'café')
    """
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
