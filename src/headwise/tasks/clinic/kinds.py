"""The kinds of examples: which phenomenon, who plays, what the numbers of the frames mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwise.tasks.clinic import cast
from headwise.tasks.clinic.frames import Templates
from headwise.tasks.clinic.templates import drugs, findings, measures, sites, times


@dataclass(frozen=True)
class Kind:
    """One way to make examples of a phenomenon."""

    phenomenon: str
    name: str
    casting: cast.Casting | None
    """None for diagnoses and their classes, whose players depend on the label."""
    templates: Mapping[str, Templates]
    """By split."""
    states: tuple[str, str, str]
    """What the numbers 0, 1 and 2 of the frames mean; empty where the player's value says it."""
    share: int = 1
    """How often, among the kinds of the phenomenon."""

    @property
    def paired(self) -> bool:
        """Whether a fact always is about two."""
        return self.name in {"order", "people", "moment"}


_HAS = ("present", "absent")
KINDS = (
    Kind("negation", "negation", cast.symptoms, findings.NEGATION, (*_HAS, "in a relative")),
    Kind("uncertainty", "uncertainty", cast.diagnoses, findings.UNCERTAINTY, (*_HAS, "possible")),
    Kind("hypernym", "class", None, findings.HYPERNYM, (*_HAS, "")),
    Kind("site", "side", cast.sided_lesions, sites.SIDE, ("left", "right", "one side"), share=2),
    Kind("site", "place", cast.placed_lesions, sites.PLACE, ("", "", "not recorded")),
    Kind("drug", "status", cast.drugs, drugs.STATUS, ("started", "stopped", "discussed")),
    Kind("drug", "change", cast.drugs, drugs.CHANGE, ("raised", "lowered", "under review")),
    Kind("drug", "dose", cast.dosed_drugs, drugs.DOSE, ("", "", "not recorded")),
    Kind("time", "onset", cast.dated_symptoms, times.ONSET, ("", "", "not known"), share=2),
    Kind("time", "order", cast.symptoms, times.ORDER, ("earlier", "later", "")),
    Kind("comparison", "trend", cast.measures, measures.TREND, ("up", "down", "not repeated"), share=4),
    Kind("comparison", "people", cast.people, measures.PEOPLE, ("higher", "lower", "")),
    Kind("comparison", "moment", cast.moments, measures.MOMENT, ("higher", "lower", "")),
    Kind("quantity", "reading", cast.read_measures, measures.READING, ("", "", "pending")),
    Kind("quantity", "count", cast.counted_symptoms, measures.COUNT, ("", "", "not counted")),
)
PHENOMENA = {
    "negation": 4,
    "uncertainty": 3,
    "hypernym": 2,
    "site": 2,
    "drug": 3,
    "time": 1,
    "comparison": 2,
    "quantity": 1,
}
"""How often each comes in a chunk of the stream."""
