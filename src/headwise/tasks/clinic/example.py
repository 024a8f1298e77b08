"""One example of the task, with what it was made of."""

from __future__ import annotations

from dataclasses import dataclass

LABELS = ("entailment", "neutral", "contradiction")
ENTAILMENT, NEUTRAL, CONTRADICTION = range(3)


@dataclass(frozen=True)
class Fact:
    """What a premise says, or a hypothesis claims, about one thing."""

    about: str
    """The symptom, diagnosis, lesion, drug, measure, person or moment."""
    state: str
    """What is said: `absent`, `left`, `stopped`, `on Monday`, `131`, `above 120`, or that it is left open."""
    scope: str = ""
    """The body site of a lesion's side; the measure in which two people or moments differ."""
    partner: str = ""
    """The other person, moment or symptom of a comparison."""


@dataclass(frozen=True)
class ClinicExample:
    """A premise, a hypothesis, and how they relate."""

    premise: str
    hypothesis: str
    label: int
    """0 entailment, 1 neutral, 2 contradiction."""
    phenomenon: str
    kind: str
    """The kind within the phenomenon, such as `dose` of `drug`."""
    spans: tuple[tuple[int, int, int], ...]
    """The characters that decide, as (sentence, start, end); sentence 0 is the premise."""
    facts: tuple[Fact, ...]
    """All that the premise says."""
    claim: Fact
    """What the hypothesis says."""
    frames: tuple[str, str]
    """The sentence frames of premise and hypothesis."""
