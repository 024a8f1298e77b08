"""The frozen probe: logistic regression on features of the encoder as it is before training.

A fine-tuned model that is below it has learned less than the encoder knew. The probe is small beside a run: its cost is
estimated in forward passes, and a seeded part of every split is used where all of it would take too long.

Shapes: B batch, L tokens, D width of the encoder, F features.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headwise.attention.pretrained import check_tokens
from headwise.cache import digest, find_or_build
from headwise.data import Collator, Split, encode
from headwise.disk import cache_folder, user_cache
from headwise.errors import DiskError, InputError, StateError
from headwise.patterns import special_ids
from headwise.training.callbacks import Listener
from headwise.training.classifier import mean_of, two_texts
from headwise.training.encoders import Encoder, load_classifier
from headwise.training.predict import Collate, evaluating, stretches, tokens_at_a_time

# The part of a run's time that the probe may take.
SHARE = 0.1
# Examples of a split that are used in any case: they take less time than loading the libraries.
FEWEST = 64
# More examples to learn from hardly change a linear classifier.
MOST = 20_000
# Forward passes that a training step costs: one forward, two backward. MiniLM on a processor: 4.
STEP_COST = 3.0
BATCH = 64
# Changes when the same inputs give other predictions.
FORMAT = 1

Rows = NDArray[numpy.int64]
Advance = Callable[[int], None]


@dataclass(frozen=True)
class SpecialIds:
    """The ids by which the texts of an example are found in its tokens."""

    separator: int | None
    """Between two texts; None if the tokenizer has none."""
    others: tuple[int, ...]
    """All special tokens but the unknown one, which stands for a word."""

    @classmethod
    def of(cls, tokenizer: Any) -> SpecialIds:
        """Those of a tokenizer."""
        separator = tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id
        return cls(separator, special_ids(tokenizer))


@dataclass(frozen=True)
class Probe:
    """What the probe predicts for the examples that were chosen of each split."""

    penalty: float | None
    """Of the logistic regression (C), chosen on validation."""
    predictions: dict[str, list[int]]
    """By split, except train."""


# -- features ----------------------------------------------------------------------------------------------------------


def pooled(states: Tensor, ids: Tensor, mask: Tensor, special: SpecialIds, *, pairs: bool) -> Tensor:
    """[B,L,D] -> [B,F]: the mean of all tokens; of pairs u, v, |u - v|, u * v and the cosine of u and v.

    u and v are the means of the first and second text, without special tokens. Text ends at the first separator, so
    this needs no token types. The mean of no tokens is 0.
    """
    real = mask.bool()
    if not pairs or special.separator is None:
        return mean_of(states, real)
    first, second = (mean_of(states, each) for each in two_texts(ids, real, special.separator, special.others))
    cosine = torch.cosine_similarity(first, second)[:, None]
    return torch.cat([first, second, (first - second).abs(), first * second, cosine], dim=1)


def encoder_features(
    encoder: nn.Module,
    data: Any,
    collate: Collate,
    special: SpecialIds,
    *,
    pairs: bool,
    rows: Rows | None = None,
    after_batch: Advance | None = None,
) -> NDArray[numpy.float32]:
    """[N,F] the features of some examples of an `Encoded` data set, or of all, in evaluation mode; see `pooled`.

    Args:
        encoder: gives `last_hidden_state`; its mode is restored afterwards.
        data: the examples.
        collate: makes a batch of examples.
        special: finds the texts of a pair.
        pairs: whether examples have two texts.
        rows: which examples, in which order; None for all.
        after_batch: called with how many are done.
    """
    rows = numpy.arange(len(data)) if rows is None else rows
    lengths = numpy.asarray(data.lengths)[rows]
    order = numpy.argsort(-lengths, kind="stable")
    device, features = next(encoder.parameters()).device, None
    # Not inference_mode: what an encoder keeps from its first pass is used in training.
    with evaluating(encoder), torch.no_grad():
        for start, end in stretches(lengths[order].tolist(), BATCH, tokens_at_a_time(encoder)):
            inputs = collate([data[int(index)] for index in rows[order[start:end]]])
            inputs.pop("labels", None)
            inputs = {name: tensor.to(device) for name, tensor in inputs.items()}
            states = encoder(**inputs).last_hidden_state
            part = pooled(states, inputs["input_ids"], inputs["attention_mask"], special, pairs=pairs)
            if features is None:
                features = numpy.empty((len(rows), part.shape[1]), numpy.float32)
            features[order[start:end]] = part.float().cpu().numpy()
            if after_batch is not None:
                after_batch(end)
    if features is None or not numpy.isfinite(features).all():
        raise StateError("the encoder's outputs are not finite: its weights are damaged; save the model again.")
    return features


def text_features(
    encoder: Encoder, max_length: int, progress: Listener
) -> Callable[[Sequence[Sequence[str]]], NDArray[numpy.float32]]:
    """A function from the texts of examples, one or two each, to features of an encoder that was found.

    Its weights are loaded when the function is called first.
    """
    loaded: list[Any] = []

    def features(texts: Sequence[Sequence[str]]) -> NDArray[numpy.float32]:
        if not loaded:
            # A fresh classifier comes along and is not used.
            loaded.append(load_classifier(encoder, labels=("0", "1"), head="pooler", seed=0))
        tokenizer, base = encoder.tokenizer, loaded[0].base_model
        data = encode(Split(tuple(map(tuple, texts)), (None,) * len(texts)), tokenizer, max_length)
        check_tokens(data.ids, tokenizer, loaded[0])
        progress.start("features of the frozen encoder", len(data))
        collate, special = Collator.of(tokenizer, "classification"), SpecialIds.of(tokenizer)
        with _on_accelerator(base):
            found = encoder_features(
                base, data, collate, special, pairs=len(texts[0]) == 2, after_batch=progress.advance
            )
        progress.end()
        return found

    return features


# -- how many examples -------------------------------------------------------------------------------------------------


def affordable_share(needed: int, *, trained: int, evaluated: int) -> float:
    """The share of `needed` examples whose forward passes take at most a tenth of a run.

    Args:
        needed: examples of all splits and tasks.
        trained: examples that the run trains on, each as often as it is seen.
        evaluated: examples that it evaluates, each as often as it is seen.
    """
    return min(1.0, SHARE * (STEP_COST * trained + evaluated) / max(needed, 1))


def chosen_rows(split: str, count: int, share: float) -> Rows:
    """The numbers of a share of so many examples."""
    return rows_of(count, min(count, max(ceil(share * count), FEWEST), MOST if split == "train" else count))


def rows_of(count: int, size: int) -> Rows:
    """A seeded choice of so many examples, the same for all runs; a larger one contains a smaller one."""
    return numpy.sort(numpy.random.default_rng([17, count]).permutation(count)[:size])


# -- the probe ---------------------------------------------------------------------------------------------------------


def probe(
    encoder: Any,
    splits: Mapping[str, Any],
    rows: Mapping[str, Rows],
    collate: Collate,
    special: SpecialIds,
    *,
    pairs: bool,
    metric: str,
    cache: Path | None = None,
    after_batch: Advance | None = None,
) -> Probe:
    """Fit the probe on train, choose its penalty on validation, and predict all splits but train.

    The result is stored in the cache under the content of encoder and examples: the seeds and arms of a sweep compute
    it once. Where the cache cannot be written it is computed each time.

    Args:
        encoder: its pooler is not used.
        splits: `Encoded` data sets; train and validation have labels.
        rows: the examples to use of each split.
        collate: makes a batch of examples.
        special: finds the texts of a pair.
        pairs: whether examples have two texts.
        metric: by which the penalty is chosen.
        cache: the folder of the cache; None: HEADWISE_CACHE or the user's cache folder.
        after_batch: called with how many examples of all splits are done.
    """
    computed: list[Probe] = []

    def compute() -> Probe:
        if not computed:
            each = _fit(encoder, splits, rows, collate, special, pairs=pairs, metric=metric, after_batch=after_batch)
            computed.append(each)
        return computed[0]

    parts = {
        "format": FORMAT,
        "encoder": _encoder_key(encoder),
        "examples": {split: _examples_key(data) for split, data in splits.items()},
        "rows": {split: hashlib.sha256(each.tobytes()).hexdigest() for split, each in rows.items()},
        "special": [special.separator, special.others],
        "pairs": pairs,
        "metric": metric,
    }
    key = digest(parts)
    folder = (cache or cache_folder() or user_cache()) / "probes" / key[:16]

    def build(draft: Path) -> dict[str, Any]:
        (draft / "probe.json").write_text(json.dumps(vars(compute())), encoding="utf-8")
        return {}

    try:
        find_or_build(folder, key, build)
        return Probe(**json.loads((folder / "probe.json").read_text(encoding="utf-8")))
    except (DiskError, InputError):  # no room, no right to write, or something else is there
        return compute()


def _fit(
    encoder: Any,
    splits: Mapping[str, Any],
    rows: Mapping[str, Rows],
    collate: Collate,
    special: SpecialIds,
    *,
    pairs: bool,
    metric: str,
    after_batch: Advance | None,
) -> Probe:
    from headwise.metrics import score
    from headwise.metrics.baselines import logistic_regression

    features, labels, done = {}, {}, 0
    with _on_accelerator(encoder):
        for split, data in splits.items():
            before = done

            def advance(count: int, before: int = before) -> None:
                if after_batch is not None:
                    after_batch(before + count)

            features[split] = encoder_features(
                encoder, data, collate, special, pairs=pairs, rows=rows[split], after_batch=advance
            )
            done += len(rows[split])
            if split in ("train", "validation"):
                labels[split] = numpy.asarray(data.labels)[rows[split]]
    fitted = logistic_regression(
        features["train"],
        labels["train"],
        features["validation"],
        lambda predictions: score([metric], predictions, labels["validation"])[metric],
    )
    others = {split: fitted.predict(each) for split, each in features.items() if split != "train"}
    return Probe(fitted.penalty, {split: [int(value) for value in each] for split, each in others.items()})


@contextmanager
def _on_accelerator(encoder: nn.Module) -> Iterator[None]:
    """The encoder on the device on which it will be trained, for the block."""
    before = next(encoder.parameters()).device
    if before.type == "cpu" and torch.accelerator.is_available():
        encoder.to(torch.accelerator.current_accelerator())
    try:
        yield
    finally:
        encoder.to(before)


def _encoder_key(encoder: Any) -> str:
    """A hash of weights and settings; the pooler, which may start at random, plays no part."""
    total = hashlib.sha256()
    left_out = ("_name_or_path", "transformers_version", "id2label", "label2id", "problem_type", "num_labels")
    settings = {name: value for name, value in encoder.config.to_dict().items() if name not in left_out}
    total.update(json.dumps(settings, sort_keys=True, default=str).encode())
    for name, tensor in encoder.state_dict().items():
        if not name.startswith("pooler."):
            total.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
            total.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def _examples_key(data: Any) -> str:
    """A hash of token ids, token types and labels."""
    total = hashlib.sha256()
    for array in (data.ids, data.starts, data.types, numpy.asarray(data.labels or (), dtype=numpy.float64)):
        total.update(b"-" if array is None else array.tobytes())
    return total.hexdigest()
