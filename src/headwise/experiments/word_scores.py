"""How much each word of an example counts for what a run predicts.

    drop(w)       log p(y | x) - log p(y | x without w), with y the predicted class; of a number, its change
    attention(w)  the attention that the tokens of w receive, the mean over layers, heads and queries, as its share

A drop above 0 speaks for the prediction. Both are measures of this model, not of the language: a word may have a drop
of 0 because another one says the same, and attention shows where the model looks, not why it decides.
"""

from __future__ import annotations

from typing import Any

import numpy
import torch
from numpy.typing import NDArray

from headwise.attention import capture
from headwise.data import Collator, Split, encode
from headwise.data.near_duplicates import word_positions
from headwise.errors import InputError
from headwise.experiments.apply import Loaded
from headwise.training import Listener, Silence, predict_logits
from headwise.training.predict import evaluating

MOST_WORDS = 400
"""Of one example: more are not scored, and an example costs a forward pass for each."""


def score_words(
    run: Loaded,
    split: Split,
    logits: NDArray[Any],
    *,
    batch: int | None = None,
    progress: Listener | None = None,
) -> list[list[dict[str, Any]]]:
    """The scores of the words of each example, in their order: word, text (0 or 1), start, end, drop and attention.

    Args:
        run: a finished run that gives one answer to each text.
        split: the examples.
        logits: [N,C] what the run answers to them.
        batch: examples at a time.
        progress: shows how far it is.
    """
    if run.task.kind == "token_labels":
        raise InputError("explain is for one answer to each text, and this run labels each word: leave it out.")
    progress = progress or Silence()
    results = []
    progress.start("words", len(split))
    for number, (texts, row) in enumerate(zip(split.texts, logits, strict=True), 1):
        words = [(text, *span) for text in range(len(texts)) for span in word_positions(texts[text])][:MOST_WORDS]
        drops = _drops(run, texts, words, row, batch)
        shares = _attention(run, texts, words)
        results.append(
            [
                {"word": texts[text][start:end], "text": text, "start": start, "end": end}
                | {"drop": round(float(drop), 6), "attention": round(float(share), 6)}
                for (text, start, end), drop, share in zip(words, drops, shares, strict=True)
            ]
        )
        progress.advance(number)
    progress.end()
    return results


def _drops(
    run: Loaded, texts: tuple[str, ...], words: list[tuple[int, int, int]], row: NDArray[Any], batch: int | None
) -> NDArray[Any]:
    """[W] how much less sure the model is of its answer without each word."""
    if not words:
        return numpy.empty(0)
    changed = tuple(
        tuple(_without(each, start, end) if number == text else each for number, each in enumerate(texts))
        for text, start, end in words
    )
    others = predict_logits(
        run.model,
        encode(Split(changed, (None,) * len(changed)), run.tokenizer, run.recipe.data.max_length),
        Collator.of(run.tokenizer, run.task.kind, max_length=run.recipe.data.max_length),
        batch=batch or run.recipe.training.per_device_eval_batch_size,
    )
    whole, parts = (_certainty(run, each) for each in (row[None], others))
    answer = int(whole[0].argmax()) if run.labels else 0
    drops: NDArray[Any] = whole[0, answer] - parts[:, answer]
    return drops


def _without(text: str, start: int, end: int) -> str:
    """The text without a word; a text of one word becomes a blank."""
    return f"{text[:start].rstrip()} {text[end:].lstrip()}".strip() or " "


def _certainty(run: Loaded, logits: NDArray[Any]) -> NDArray[Any]:
    """[N,C] the logarithm of each probability, or the number."""
    if not run.labels:
        return logits
    values = torch.from_numpy(logits.astype(numpy.float64))
    logs = torch.nn.functional.logsigmoid(values) if run.task.kind == "multi_label" else values.log_softmax(1)
    return logs.numpy()


def _attention(run: Loaded, texts: tuple[str, ...], words: list[tuple[int, int, int]]) -> NDArray[Any]:
    """[W] the share of each word in the attention that all words receive."""
    split = Split((texts,), (None,))
    encoded = encode(split, run.tokenizer, run.recipe.data.max_length, offsets=True)
    inputs = Collator.of(run.tokenizer, "classification")([encoded[0]])
    device = next(run.model.parameters()).device
    with evaluating(run.model), torch.inference_mode(), capture(run.model) as record:
        run.model(**{name: each.to(device) for name, each in inputs.items()})
        received = torch.cat([record[layer][0] for layer in record]).double().mean(0).cpu().numpy()  # [T]
    if encoded.offsets is None or encoded.sources is None:
        raise InputError("the tokens have no offsets in their texts: use a fast tokenizer.")
    sources, (begins, ends) = encoded.sources, encoded.offsets.T
    inside = [received[(sources == text) & (begins < end) & (ends > start)].sum() for text, start, end in words]
    total = sum(inside)
    return numpy.asarray(inside) / total if total else numpy.zeros(len(words))
