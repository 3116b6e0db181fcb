"""Tables of all benchmarks' pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; columns of numbers are aligned to the right.

    Examples::

        >>> from benchmarks.markdown_tables import markdown
        >>> print(markdown(["explainer", "n"], [["`goat`", "3"]]))
        | explainer | n |
        |---|--:|
        | `goat` | 3 |
    """
    lines = list(lines)

    def is_number(cell: str) -> bool:
        return cell.lstrip("*[")[:1] in "+-0123456789"

    right = [all(map(is_number, column)) for column in zip(*lines, strict=True)] or [False] * len(header)
    rule = "|" + "".join("--:|" if is_right else "---|" for is_right in right)
    return "\n".join([_line(header), rule, *map(_line, lines)])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
