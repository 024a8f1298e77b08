"""Tiny inputs: an encoder, files of pairs, sentences and numbers, a collection of claims; and recipes for them."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
import yaml
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from headwise.experiments.recipe import OLD_TRAINING_KEYS

WORDS = "the a cat dog bird man woman house tree river sees likes finds holds red green old new and with".split()
SIGNS = {"agree": "surely", "deny": "never", "open": "perhaps"}  # the word that decides an example's label
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
LONGEST = 48
SPLITS = ("train", "validation", "test")


def build_tokenizer() -> Any:
    """Whole words for our sentences, letters for all others."""
    pieces = [*SPECIAL, *WORDS, *SIGNS.values(), ".", ",", *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")],
    )
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=LONGEST, **names)


def write_encoder(folder: Path) -> None:
    """A random BERT of two layers with four heads, with dropout."""
    tokenizer = build_tokenizer()
    torch.manual_seed(3)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    sizes |= {"vocab_size": len(tokenizer), "max_position_embeddings": LONGEST}
    transformers.BertForMaskedLM(transformers.BertConfig(initializer_range=0.2, **sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def sentence(rng: random.Random, sign: str) -> str:
    words = rng.choices(WORDS, k=rng.randint(2, 8))
    words.insert(rng.randint(0, len(words)), sign)
    return " ".join(words) + " ."


def examples(count: int, seed: int, *, texts: int = 2, numbers: bool = False) -> list[dict[str, str]]:
    """Sentences or pairs of three classes, or with a number."""
    rng, names = random.Random(seed), list(SIGNS)
    columns = ["sentence1", "sentence2"] if texts == 2 else ["sentence"]
    rows = []
    for number in range(count):
        name = names[number % 3]
        row = {column: sentence(rng, SIGNS[name]) for column in columns}
        rows.append(row | {"label": f"{number % 3 + rng.random():.3f}" if numbers else name})
    return rows


def write_rows(path: Path, rows: Sequence[Mapping[str, str]]) -> None:
    """TSV, CSV or JSONL, as the name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl":
        lines = [json.dumps(row) for row in rows]
    else:
        delimiter = "," if path.suffix == ".csv" else "\t"
        lines = [delimiter.join(rows[0]), *(delimiter.join(row.values()) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_splits(folder: Path, ending: str = "tsv", sizes: Sequence[int] = (96, 24, 24), **kind: Any) -> None:
    for seed, (split, size) in enumerate(zip(SPLITS, sizes, strict=True)):
        write_rows(folder / f"{split}.{ending}", examples(size, seed, **kind))


def write_claims(folder: Path, *, train: int = 20, test: int = 6, rivals: int = 5) -> None:
    """A BEIR collection: claims t0, t1, ... v0, v1, ...; the paper t0-yes answers t0, and the others say "never"."""
    rng = random.Random(0)
    claims: dict[str, list[str]] = {}
    for claim in [f"t{number}" for number in range(train)] + [f"v{number}" for number in range(test)]:
        claims[claim] = [rng.choice("bdfgklmnprst") + rng.choice("aeiou") + f"{rng.randrange(1000)}" for _ in range(5)]
    papers = []
    for claim, own in claims.items():
        for paper, sign in (("yes", "surely"), *((f"no{number}", "never") for number in range(rivals))):
            text = " ".join([sign, *rng.choices(WORDS, k=4), own[0]])
            papers.append({"_id": f"{claim}-{paper}", "title": " ".join(rng.sample(own, 2)), "text": text})
    rng.shuffle(papers)
    write_rows(folder / "corpus.jsonl", papers)
    write_rows(folder / "queries.jsonl", [{"_id": claim, "text": " ".join(own)} for claim, own in claims.items()])
    for split, kind in (("train", "t"), ("test", "v")):
        judged = [claim for claim in claims if claim.startswith(kind)]
        rows = [{"query-id": claim, "corpus-id": f"{claim}-yes", "score": "1"} for claim in judged]
        write_rows(folder / "qrels" / f"{split}.tsv", rows)
    qrels = [f"{claim} 0 {claim}-yes 1\n" for claim in claims if claim.startswith("v")]
    (folder.parent / "claims.qrels").write_text("".join(qrels), encoding="utf-8")


def write_trees(path: Path, rows: Sequence[Mapping[str, str]]) -> None:
    """CoNLL-U: every word depends on the one before it."""
    blocks = []
    for text in dict.fromkeys(row[column] for row in rows for column in ("sentence1", "sentence2")):
        words = enumerate(text.split())
        lines = [f"{n + 1}\t{word}\t{word}\tX\t_\t_\t{n}\t{'dep' if n else 'root'}\t_\t_" for n, word in words]
        blocks.append("\n".join([f"# text = {text}", *lines]) + "\n")
    path.write_text("\n".join(blocks) + "\n", encoding="utf-8")


def write_inputs() -> None:
    """All files, below the current folder."""
    write_encoder(Path("encoder"))
    write_splits(Path("pairs"))
    write_trees(Path("pairs/trees.conllu"), examples(96, 0))
    write_splits(Path("singles"), "jsonl", texts=1)
    write_splits(Path("numbers"), "csv", numbers=True)
    write_splits(Path("several/agree"), sizes=(40, 24, 21))
    write_splits(Path("several/type"), sizes=(27, 18, 15), texts=1)
    write_splits(Path("several/score"), sizes=(17, 12, 9), numbers=True)
    write_claims(Path("claims"))
    news = [{"class": str(n % 4 + 1), "title": f"title {n}", "description": f"item {n}"} for n in range(16)]
    write_rows(Path("news.tsv"), news)


# -- recipes -----------------------------------------------------------------------------------------------------------


def write_yaml(name: str, data: Mapping[str, Any]) -> str:
    Path(name).write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return name


def recipe(**changes: Any) -> dict[str, Any]:
    """36 steps on pairs; `training__batch=4` changes a part of a part."""
    data: dict[str, Any] = {
        "name": "small",
        "task": "pairs",
        "model": "encoder",
        "share_every": 5,
        "data": {"max_length": 32},
        "training": {
            "num_train_epochs": 3,
            "per_device_train_batch_size": 8,
            "learning_rate": 3e-3,
            "logging_steps": 1,
            "save_steps": 5,
        },
    }
    for name, value in changes.items():
        part, _, key = name.rpartition("__")
        (data[part] if part else data)[OLD_TRAINING_KEYS.get(key, key) if part == "training" else key] = value
    return data


def guided(**guides: Mapping[str, Any]) -> dict[str, Any]:
    return recipe(guides=guides)


def joint(**changes: Any) -> dict[str, Any]:
    """24 steps on three tasks: pairs, single sentences, and numbers for pairs."""
    tasks = {
        name: {"name": kind, "files": {split: f"{name}/{split}.tsv" for split in SPLITS}}
        for name, kind in {"agree": "pairs", "type": "sentences", "score": "pairs-regression"}.items()
    }
    usual = {"name": "joint", "tasks": tasks, "training__epochs": 2, "training__evaluate_every": 7}
    data = recipe(**{**usual, **changes})
    return {key: value for key, value in data.items() if key not in ("task", "share_every")}


def reranker(loss: str, batch: int) -> dict[str, Any]:
    task = {"name": "retrieval", "collection": "claims", "loss": loss, "negatives": 3, "validation_candidates": 6}
    training = {"training__epochs": 2, "training__batch": batch}
    return recipe(name="ranker", task=task, data__validation_fraction=0.2, **training)


AUTO = {"share": 0.1, "every": 3, "window": 4}
RISING = {"points": [[0, 0], [9, 0.1]]}
TREES = {"source": "conllu", "path": "trees.conllu"}
REFERENCE = {"model": "cotraining", "sampler": "reference", "label_rule": "reference"}
OPTIONS: dict[str, Any] = {
    "head": "relu",
    "seed": 7,
    "data__fraction": 0.75,
    "data__padding": "fixed",
    "data__buckets": False,
    "data__limit": {"test": 20},
    "training__epochs": None,
    "training__steps": 20,
    "training__accumulation": 2,
    "training__schedule": "cosine",
    "training__warmup": 3,
    "training__label_smoothing": 0.1,
    "training__evaluate_every": 4,
    "training__early_stopping": 2,
    "training__freeze": ["embeddings", 0],
}
CLINIC = {"name": "clinic", "sizes": {"train": 60, "validation": 30, "test": 30}}
# Name -> the recipe of a run, and the folder of its data.
RUNS: dict[str, tuple[dict[str, Any], str]] = {
    "plain": (recipe(), "pairs"),
    "mdg": (guided(mdg={"weight": 0.1}), "pairs"),
    "pdg": (guided(pdg={"weight": AUTO, "layers": "last:1"}), "pairs"),
    "mdg-pdg": (guided(mdg={"weight": AUTO}, pdg={"weight": RISING}), "pairs"),
    "next": (guided(next={"weight": 1.0, "heads": "first:half"}), "pairs"),
    "delim": (guided(delim={"weight": 1.0}), "pairs"),
    "disagreement": (guided(disagreement={"weight": 0.1}), "pairs"),
    "pmi": (guided(pmi={"weight": 1.0}), "pairs"),
    "wordsim": (guided(wordsim={"weight": 1.0, "pattern": {"source": "embeddings"}}), "pairs"),
    "dependency": (guided(dependency={"weight": 1.0, "on": "map", "distance": "kl", "pattern": TREES}), "pairs"),
    "ssa-hybrid": (recipe(ssa={"model": "hybrid"}), "pairs"),
    "ssa-cotraining": (recipe(ssa=REFERENCE, guides={"mdg": {"weight": 0.1}}), "pairs"),
    "options": (recipe(**OPTIONS), "pairs"),
    "singles": (recipe(task="sentences"), "singles"),
    "numbers": (recipe(task="pairs-regression"), "numbers"),
    "clinic": (recipe(task=CLINIC, data__max_length=40), "."),
    "joint": (joint(sampling="square_root"), "several"),
    "joint-iat": (joint(iat={"start": 0.75, "heads": 0.3}), "several"),
    "linear": (joint(linear=True), "several"),
    "list": (reranker("list", 3), "."),
    "pairwise": (reranker("pairs", 8), "."),
}
