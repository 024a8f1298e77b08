"""Valid material for all commands: a tiny encoder, data, recipes, and the runs and results made from them."""

from __future__ import annotations

import functools
import json
import shlex
import shutil
import signal
import zipfile
from pathlib import Path
from typing import Any

import yaml

from campaign import jobs
from campaign.commands import Answer, Fork, command
from campaign.orders import RANKING, RATES

STAMP = "complete"
STEP = "headwise.training.callbacks.Clock.on_step_end"
SCORED = "headwise.retrieval.rerank.PartialScores.add"
# Two steps: enough to evaluate, to log and to write a checkpoint.
SHORT = {
    "training__epochs": None,
    "training__steps": 2,
    "training__checkpoint_every": 1,
    "training__evaluate_every": 1,
    "share_every": 0,
}
GUIDES = {"mdg": {"weight": 0.1}}
KNOWLEDGE = {"pmi": {"weight": 0.1, "pattern": {"minimum": 1}}}
PIECE_PAIRS = 30  # candidates of each claim


# How the runs and results are made.
COMMANDS = f"""
train recipe.yaml --data pairs --output plain
train guided.yaml --data pairs --output guided
train ssa.yaml --data pairs --output supervised
train joint.yaml --data several --output joint
train retrieval.yaml --data . --output reranker
analyze plain --keep 2 --limit 4
analyze guided --keep 2 --limit 4
analyze joint --keep 2 --limit 4
heads importance joint
heads prune-curve joint --percent 25 --random 1
heads dissociation joint --percent 25 --random 1 --resamples 10
heads similarity joint
retrieve papers --stage bm25 --output bm25.trec
sweep sweep.yaml --data pairs --output swept --workers 1
sweep layers.yaml --data pairs --output layers --workers 1
tune recipe.yaml --data pairs --output tuned {RATES}
export plain --output exported
predict plain --input texts.tsv --output predicted.tsv
retrieve papers --stage bm25 --cache cache --output again.trec
knowledge build knowing.yaml --data pairs --cache cache --workers 1
"""


def build(folder: Path) -> Path:
    """Make the bench at `folder`, unless it is there from an earlier part of the campaign."""
    if (folder / STAMP).is_file():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # Torch and tokenizers start threads when they work: not in the process that is forked for every input.
    logs = folder / ".logs" / "last"
    _expect(0, Fork(lambda: _write_inputs(folder), logs).answer(240))
    for line in COMMANDS.strip().splitlines():
        words = shlex.split(line)
        _expect(0, command(words, folder, logs).answer(240))
        if words[0] == "train":  # once more without an analysis
            shutil.copytree(folder / words[-1], folder / f"bare-{words[-1]}")
    # A run and a ranking that were stopped in the middle.
    (folder / "partial").mkdir()
    for line, place, count, number, code in (
        ("train long.yaml --data pairs --output stopped", STEP, 11, signal.SIGINT, 130),
        (f"{RANKING} partial/run.trec", SCORED, 4, signal.SIGKILL, -signal.SIGKILL),
    ):
        before = functools.partial(signal_at, place, count, number)
        _expect(code, command(line.split(), folder, logs, before=before).answer(240))
    (folder / STAMP).touch()
    return folder


def _expect(code: int, answer: Answer) -> None:
    if answer.code != code:
        raise RuntimeError(f"the campaign cannot begin: {answer.code}, {answer.err}")


def signal_at(name: str, count: int, number: int) -> None:
    """Send this process a signal at the n-th call of a function."""
    from tiny_runs import _signal_at

    _signal_at(name, count, number)


def _write_inputs(folder: Path) -> None:
    """Encoder, data and recipes."""
    from small_collection import write_collection
    from small_sweeps import sweep_data
    from tiny_runs import JOINT, rows, small, small_joint, write_data, write_encoder, write_table

    write_encoder(folder / "encoder")
    write_data(folder / "pairs")
    for name, (kind, sizes) in JOINT.items():
        write_data(folder / "several" / name, kind, sizes)
    write_collection(folder / "papers", train=8, test=6)
    write_table(folder / "texts.tsv", [row[:2] for row in rows(12, 7)])
    news = (f'"{topic}","title {topic}.{n}","text {n}"\n' for n in range(40) for topic in "1234")
    (folder / "news.csv").write_text("".join(news), encoding="utf-8")
    _write_candidates(folder)
    _write_zips(folder)
    jobs.write_inputs(folder)

    def recipe(name: str, **changes: Any) -> None:
        _write_yaml(folder / f"{name}.yaml", small("encoder", **{**SHORT, **changes, "name": name}))

    recipe("recipe", guides={}, training__snapshots=4)
    recipe("guided", guides=GUIDES, training__snapshots=4)
    recipe("ssa", guides={}, ssa={"attention_threshold": 0.5})
    recipe("knowing", guides=KNOWLEDGE)
    vectors = {"source": "vectors", "path": "../vectors.zip"}
    recipe("vectors", guides={"wordsim": {"weight": 0.1, "pattern": vectors}})
    retrieval = {
        "name": "retrieval",
        "collection": "papers",
        "stage": "bm25",
        "negatives": 2,
        "validation_candidates": 3,
    }
    limits = {"max_length": 24, "limit": {"train": 4, "validation": 2}}
    recipe("retrieval", guides={}, task=retrieval, data=limits)
    joint = {name: value for name, value in SHORT.items() if name.startswith("training__")}
    _write_yaml(folder / "joint.yaml", small_joint("encoder", **joint))
    sweep = sweep_data("encoder", seeds=[1])
    sweep["recipe"] = small("encoder", **{**SHORT, "guides": GUIDES, "name": "swept"})
    _write_yaml(folder / "sweep.yaml", sweep)
    layers = {"layer": {str(n): {"guides": {"mdg": {"weight": 1.0, "layers": [n]}}} for n in (0, 1)}}
    _write_yaml(folder / "layers.yaml", {**sweep, "name": "layers", "grid": layers, "compare": None})


def _write_yaml(path: Path, content: Any) -> None:
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


def _write_candidates(folder: Path) -> None:
    """A TREC run for the test claims, and judgements."""
    documents = [json.loads(line)["_id"] for line in (folder / "papers" / "corpus.jsonl").read_text().splitlines()]
    claims = [f"v{number}" for number in range(6)]
    lines = [
        f"{claim} Q0 {document} {rank} {100 - rank} t\n"
        for claim in claims
        for rank, document in enumerate(dict.fromkeys([*documents[:PIECE_PAIRS], f"{claim}-yes"]), 1)
    ]
    (folder / "candidates.trec").write_text("".join(lines), encoding="utf-8")
    (folder / "qrels.txt").write_text("".join(f"{claim} 0 {claim}-yes 1\n" for claim in claims), encoding="utf-8")


def _write_zips(folder: Path) -> None:
    """A collection and word vectors, packed; and collections in other layouts."""
    from retrieval.small_collections import CROSS_GENRE, SCIFACT, lay_out
    from tiny_runs import WORDS

    lay_out(folder / "scifact", SCIFACT)
    lay_out(folder / "genres", CROSS_GENRE)
    with zipfile.ZipFile(folder / "papers.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted((folder / "papers").rglob("*.*")):
            archive.write(path, path.relative_to(folder / "papers").as_posix())
    vectors = "".join(f"{word} {n % 3} {n % 5} {n % 7}\n" for n, word in enumerate(WORDS, 1))
    with zipfile.ZipFile(folder / "vectors.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("vectors.txt", vectors)
