"""What to analyse."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headwise.errors import InputError
from headwise.experiments.yaml_text import NotYamlError, parse_yaml
from headwise.patterns import Pattern, build_pattern, refuse_named_code


@dataclass(frozen=True)
class AnalysisSettings:
    """Which examples are looked at, and how closely."""

    split: str = "test"
    limit: int | None = None
    """The first so many examples; None for all."""
    examples: int = 20
    """How many are kept with their maps, spread evenly over the split."""
    places: tuple[int, ...] = ()
    """These are kept in any case, by their places in the split, from 0."""
    file: Path | None = None
    """A file in the task's format whose rows are kept with their maps instead."""
    importance: int = 0
    """Examples over which the importance of heads is measured; 0 for none."""
    batch: int | None = None
    pattern: Pattern | None = None
    """Heads are held against this pattern; None for the one that the run was guided to, if any."""


def read_pattern(option: str, text: str | None) -> Pattern | None:
    """A pattern as a user writes it: a name, or a name with options in YAML."""
    if text is None:
        return None
    try:
        choice = parse_yaml(text, f"{option} {text[:60]!r}")
    except NotYamlError:
        raise InputError(
            f"{option} {text[:200]!r} is not YAML: expected a name such as next, or {{name: pmi, window: 5}}."
        ) from None
    pattern = build_pattern(choice)
    refuse_named_code(pattern, option)
    return pattern
