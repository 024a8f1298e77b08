"""Sections of mistakes: exit codes and sentences. Sentences may change, with a note in the commit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import headwise as hw
from golden_sections.inputs import SPLITS, examples, recipe, write_rows, write_splits, write_yaml
from golden_sections.lab import Lab, section, tidy
from golden_sections.models import classifier


def write_bad_files() -> None:
    good = examples(6, 0)
    renamed = [{"left" if key == "sentence1" else key: value for key, value in row.items()} for row in good]
    for folder, rows in {"bad-label": [*good, good[0] | {"label": ""}], "bad-column": renamed}.items():
        for split in SPLITS:
            write_rows(Path(folder) / f"{split}.tsv", rows)
    Path("empty").mkdir()


@section("mistakes")
def mistakes(lab: Lab) -> Any:
    """Of the command line."""
    write_bad_files()
    plain = f"train {write_yaml('good.yaml', recipe())}"
    write_splits(Path("other"), sizes=(48, 12, 12))
    lab.json(f"{plain} --data other --output other-run --set guides.mdg.weight=0.1")
    recipes: dict[str, dict[str, Any]] = {
        "unknown key": {"trainning": {}},
        "unknown key inside": {"training__epoch": 3},
        "wrong type": {"training__learning_rate": "fast"},
        "out of range": {"training__batch": 0},
        "unknown guide": {"guides": {"mgd": {}}},
        "unknown option of a guide": {"guides": {"mdg": {"tua": 1}}},
        "unknown layer": {"guides": {"mdg": {"layers": [7]}}},
        "unknown task": {"task": "pair"},
        "unknown model": {"model": "nowhere"},
    }
    lines = {
        name: f"train {write_yaml(f'bad-{number}.yaml', recipe(**changes))} --data pairs --output never"
        for number, (name, changes) in enumerate(recipes.items())
    }
    lines |= {
        "unknown recipe": "train sickk",
        "bad --set": f"{plain} --data pairs --set training.num_train_epochs",
        "no files": f"{plain} --data empty --output never",
        "no label": f"{plain} --data bad-label --output never",
        "no column": f"{plain} --data bad-column --output never",
        "folder in use": f"{plain} --data pairs --output {lab.run('plain')}",
        "nothing to resume": f"{plain} --data pairs --output never --resume",
        "no run": "evaluate empty",
        "unknown split": f"evaluate {lab.run('plain')} --split tests",
        "output exists": f"predict {lab.run('plain')} --input pairs/test.tsv --output pairs/train.tsv",
        "no SSA": f"tokens {lab.run('plain')} --text 'a cat'",
        "hybrid export": f"export {lab.run('ssa-hybrid')} --output never",
        "several tasks": f"export {lab.run('joint')} --output never",
        "one task": f"heads dissociation {lab.run('plain')}",
        "not analysed": f"report {lab.run('plain')} -o never.html",
        "different metrics": f"compare {lab.run('plain')} {lab.run('numbers')} --baseline pairs",
        "different examples": f"compare {lab.run('plain')} other-run",
        "unknown figure": f"figure heat {lab.run('plain')} -o never.svg",
        "unknown ending": f"figure curves {lab.run('plain')} -o never.gif",
        "no collection": "retrieve empty",
        "unknown kind": "list guide",
        "unknown option": "list guides --jsn",
        "too long": "doctor encoder --length 999",
        "unknown axis": f"sweep {write_yaml('bad.yaml', {'name': 'bad', 'recipe': recipe(), 'grid': {'sistem': [1]}})}",
    }
    found = {}
    for name, line in lines.items():
        code, out, err = lab.type(line)
        found[name] = [code, tidy(err.strip()), *([f"stdout: {out}"] if out else [])]
    return found | {"left behind": sorted(path.name for path in Path().glob("never*"))}


@section("mistakes.python")
def mistakes_in_python(lab: Lab) -> Any:
    """The class of the error, and its sentence."""
    model, guided = classifier(), hw.guide(classifier(), hw.MDG())

    def enter(context: Any) -> None:
        with context:
            pass

    calls: dict[str, Callable[[], Any]] = {
        "guided twice": lambda: hw.guide(guided, hw.PDG()),
        "not guided": lambda: hw.unguide(model),
        "unknown pattern": lambda: hw.Match("nxt"),
        "bad weight": lambda: hw.MDG(weight="much"),  # type: ignore[arg-type]
        "unknown layer": lambda: enter(hw.capture(model, layers=[9])),
        "unknown head": lambda: enter(hw.mask(model, {0: [9]})),
        "bad gates": lambda: enter(hw.gate(model, torch.ones(3, 3))),
        "pruning a guided model": lambda: hw.prune(guided, {0: [0]}),
        "no model": lambda: hw.load("no-folder"),
        "unknown task": lambda: hw.load(lab.run("joint"), task="tipe"),
        "no SSA": lambda: hw.ssa.supervision(model),
        "no re-ranker": lambda: hw.Reranker.load(lab.run("plain")),
        "several tasks": lambda: hw.analyze(lab.run("joint")),
        "no labels": lambda: hw.head_importance(model, [{"input_ids": torch.ones(1, 4, dtype=torch.long)}]),
    }
    found = {}
    for name, call in calls.items():
        try:
            call()
            found[name] = ["no error"]
        except hw.HeadwiseError as error:
            found[name] = [type(error).__name__, tidy(str(error))]
    return found
