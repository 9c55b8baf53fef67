"""Splits a list of rules, such as the value of a query parameter, at its commas. Pure."""

from __future__ import annotations

import re

# A rule's text: an escaped character, a quoted name, a regular expression, a range, or any other character.
_PART = re.compile(r"""\\.|"(?:""|[^"])*"|`(?:``|[^`])*`|/(?:\\.|[^/\\])*/|\[[^\]]*\]|[^,]""", re.DOTALL)


def split_rules(text: str) -> list[str]:
    """The rules of a list, with commas between. A comma in quotes, in a regular expression, in a range or behind a
    backslash belongs to its rule. Blank rules are left out."""
    found, at = [""], 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            found.append("")
            at += 1
        else:
            found[-1] += part[0]
            at = part.end()
    return [rule.strip() for rule in found if rule.strip()]
