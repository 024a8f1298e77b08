"""The generated task `course`: ward notes of which one sentence says whether the patient is better or worse.

The other sentences are premises of the task `clinic`, which say nothing about that. `course.yaml` has the sentences
that decide, other ones for each split.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from headwise.data.clinic.generator import Rng, generate, load_yaml

LABELS = ("better", "worse")
OTHERS = (2, 4)
"""How many other sentences a note has, at least and at most."""
STOCK = 3000
"""Examples of `clinic` whose premises are the other sentences."""


@dataclass(frozen=True)
class CourseExample:
    """A note and its label."""

    text: str
    label: int
    """0 better, 1 worse."""
    spans: tuple[tuple[int, int, int], ...]
    """The characters that decide, as (0, start, end)."""


@lru_cache(maxsize=6)
def generate_notes(split: str, size: int, seed: int) -> tuple[CourseExample, ...]:
    """The first `size` notes of a split, without repetition; both labels take turns.

    More notes are a continuation of fewer.
    """
    rng, phrases = Rng(f"course {split} {seed}"), load_yaml("course.yaml")
    examples = generate(split, STOCK if split == "train" else STOCK // 6, seed)
    others = list(dict.fromkeys(each.premise for each in examples if ". " not in each.premise))  # without an opening
    notes: dict[str, CourseExample] = {}
    while len(notes) < size:
        label = len(notes) % len(LABELS)
        subject = rng.pick(phrases["subjects"])
        decides = rng.pick(phrases[split][LABELS[label]])
        sentences = rng.shuffled(others, rng.integer(*OTHERS))
        position = rng.integer(0, len(sentences))
        before = "".join(f"{sentence} " for sentence in sentences[:position]) + f"{subject} "
        first, last = (len(before) + decides.index(bracket) for bracket in "[]")
        deciding = before + decides.replace("[", "").replace("]", "") + "."
        text = " ".join([deciding, *sentences[position:]])
        notes[text] = CourseExample(text, label, ((0, first, last - 1),))  # the first bracket is gone
    return tuple(notes.values())
