"""Text from users inside Markdown: shown as it was written, and nothing else."""

from __future__ import annotations

import re
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

# What begins something in Markdown or HTML; & only where it would begin an entity, such as &lt;.
_SIGNS = re.compile(r"([\\`*_|<>\[\]#~]|&(?=#?\w+;))")


def escape_markdown(text: str) -> str:
    """Text on one line that Markdown shows as it is, also in a table."""
    return _SIGNS.sub(r"\\\1", " ".join(text.split()))


def paragraph(text: str) -> str:
    """Text that begins a line: it starts no list, heading, rule or front matter either."""
    escaped = re.sub(r"^([-+=])", r"\\\1", escape_markdown(text))
    return re.sub(r"^(\d+)([.)])", r"\1\\\2", escaped)


def code(text: str) -> str:
    """Text in a code span, whatever backticks it holds."""
    line = " ".join(text.split())
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    space = " " if line.startswith("`") or line.endswith("`") or not line else ""
    return f"{fence}{space}{line}{space}{fence}"


def render_markdown(template: str, **values: Any) -> str:
    """A Jinja template of Markdown. Every value is escaped unless the template says `safe`, `paragraph` or `code`."""
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True, autoescape=False, finalize=_escaped
    )
    environment.filters |= {
        "paragraph": lambda text: Markup(paragraph(str(text))),
        "code": lambda text: Markup(code(str(text))),
    }
    return environment.from_string(template).render(**values)


def _escaped(value: Any) -> Any:
    return value if isinstance(value, Markup) else escape_markdown(str(value))
