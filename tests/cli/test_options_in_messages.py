"""Messages of the library name arguments of Python; the command line prints its own options instead."""

from __future__ import annotations

import pytest

from headwise.cli.main import as_options


@pytest.mark.parametrize(
    ("words", "message", "printed"),
    [
        (["predict", "run"], "o exists: pass overwrite=True.", "o exists: pass --overwrite."),
        (["evaluate", "run"], "pass split=validation, or data=... .", "pass --split validation, or --data ... ."),
        (["heads", "prune-curve", "run"], "give controls=False.", "give --no-controls."),
        (["evaluate", "run"], "recipe.yaml: guides.mdg.weight=3 is bad", "recipe.yaml: guides.mdg.weight=3 is bad"),
        (["evaluate", "run"], "finish it first, with resume=True.", "finish it first, with --resume."),
        (["list", "tasks"], "unknown=True stays.", "unknown=True stays."),
        (["train", "run"], "rationale(mass=1, form='mse'): no.", "rationale(mass=1, form='mse'): no."),
        (["train", "run"], "choose another folder (output=...).", "choose another folder (--output ...)."),
    ],
)
def test_arguments_become_options_of_the_command(words: list[str], message: str, printed: str) -> None:
    assert as_options(message, words) == printed
