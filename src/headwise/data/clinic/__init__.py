"""A clinical inference task of our own: any size, seeded, and every example knows the words that decide its label.

`lexicon` has the words, `templates` the sentence frames (`frames` reads them), `kinds` says what is made of them,
`cast`, `roles` and `sentences` make one example, `generate` many, and `task` hands them over.

Two conventions, as in other corpora of this sort: what the patient denies counts as absent, and what is named once is
one thing, which has one side, one place, one onset and one dose.
"""

from headwise.data.clinic.entities import ClinicExample, Fact
from headwise.data.clinic.generate import ClinicTask, clinic_task

__all__ = ["ClinicExample", "ClinicTask", "Fact", "clinic_task"]
