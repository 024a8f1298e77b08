"""Two generated tasks of clinical text: any size, seeded, and every example knows the words that decide its label.

`clinic` is inference between two sentences: `lexicon.yaml` has the words, `templates.yaml` the sentences, and
`generator` makes examples of them. `course` is whether a patient gets better or worse, by one sentence among others:
`course.yaml` has these sentences. `clinic_task` has both as tasks. Two conventions, as in other corpora of this sort:
what the patient denies counts as absent, and what is named once is one thing, which has one side, one site, one onset
and one dose.
"""

from headwise.data.clinic.clinic_task import GENERATED, ClinicTask, CourseTask, generated_task
from headwise.data.clinic.course import CourseExample
from headwise.data.clinic.generator import ClinicExample, Fact

__all__ = ["GENERATED", "ClinicExample", "ClinicTask", "CourseExample", "CourseTask", "Fact", "generated_task"]
