"""A generated task of clinical inference: any size, seeded, and every example knows the words that decide its label.

`lexicon.yaml` has the words, `templates.yaml` the sentences, `generator` makes examples of them, and `clinic_task`
hands them over as a task. Two conventions, as in other corpora of this sort: what the patient denies counts as absent,
and what is named once is one thing, which has one side, one site, one onset and one dose.
"""

from headwise.data.clinic.clinic_task import ClinicTask, clinic_task
from headwise.data.clinic.generator import ClinicExample, Fact

__all__ = ["ClinicExample", "ClinicTask", "Fact", "clinic_task"]
