"""A classifier with any head as an ONNX file, for onnxruntime and a tokenizer: no torch, no headwise.

The folder has `model.onnx`, the files of the tokenizer, and a config.json with `id2label` and `model_max_length`. The
inputs are those that the tokenizer gives, [batch, length] each with both sizes free; the output is `logits`.

Shapes: B examples, T tokens, C classes.
"""

from __future__ import annotations

import copy
import logging
import os
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from headwise.errors import InputError
from headwise.training.predict import evaluating
from headwise.training.saving import save_tokenizer

FILE = "model.onnx"
OUTPUT = "logits"
# How far logits may be from those of torch, as a part of the largest one, or of 1 if that is smaller.
TOLERANCE = 1e-4
# Words in the texts of each batch that is compared. The first batch is traced, so no size in it is 1, which torch takes
# for a constant. The long text is cut to the longest input.
BATCHES = ((2, 6, 4), (3,), (1, 5), (400, 8))
# They report what they do not use, such as torchvision.
CHATTY = ("torch.onnx", "onnxscript", "onnx_ir")


@dataclass(frozen=True)
class OnnxExport:
    """What was written."""

    inputs: tuple[str, ...]
    """Names of the inputs, as the tokenizer has them."""
    largest_difference: float | None
    """Between the logits of torch and onnxruntime on a few texts; None without onnxruntime."""


class _Logits(nn.Module):
    """A classifier that takes tensors in the order of their names, and returns its logits alone."""

    def __init__(self, model: nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self.model = model
        self.names = tuple(names)

    def forward(self, *tensors: Tensor) -> Tensor:
        """[B,T] each -> [B,C]."""
        logits: Tensor = self.model(**dict(zip(self.names, tensors, strict=True))).logits
        return logits


def check_onnx() -> None:
    """Refuse before any work what cannot be done without packages of the extra `onnx`.

    Also keep onnxruntime, which torch's exporter imports, too, from reporting its use to its makers and from leaving a
    file behind for that; a value that the user has set stays.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise InputError("ONNX files need onnx and onnxscript: install them by pip install 'headwise[onnx]'.") from None


def save_onnx(model: Any, tokenizer: Any, folder: Path, *, max_length: int, pairs: bool) -> OnnxExport:
    """Write a classifier, its tokenizer and its config, and compare the file with the classifier.

    Args:
        model: a classifier with any head; it is converted to float32.
        tokenizer: its tokenizer, which learns the longest input.
        folder: an existing one.
        max_length: the longest input in tokens.
        pairs: whether the classifier reads two texts.
    """
    check_onnx()
    model.float()
    tokenizer.model_max_length = max_length
    batches = _batches(tokenizer, pairs=pairs)
    with evaluating(model), torch.no_grad():
        program = _trace(model, batches[0])
        program.save(folder / FILE)  # with a second file for the weights from 2 GB on, the limit of the format
        difference = _largest_difference(folder / FILE, model, batches)
    config = copy.deepcopy(model.config)
    config.dtype, config.model_max_length = "float32", max_length
    config.save_pretrained(folder)
    save_tokenizer(tokenizer, folder)
    return OnnxExport(tuple(batches[0]), difference)


def _batches(tokenizer: Any, *, pairs: bool) -> list[dict[str, Tensor]]:
    """Padded batches of words drawn from the vocabulary; of a classifier of pairs, the last has single texts."""
    chance = random.Random(0)
    words = sorted({*tokenizer.get_vocab().values()} - {*tokenizer.all_special_ids})
    batches = []
    for number, sizes in enumerate(BATCHES):
        texts = [[tokenizer.decode(chance.choices(words, k=size)) for size in each] for each in (sizes, sizes[::-1])]
        alone = not pairs or number == len(BATCHES) - 1
        batch = tokenizer(*texts[:1] if alone else texts, padding=True, truncation=True, return_tensors="pt")
        batches.append(dict(batch))
    return batches


def _trace(model: nn.Module, batch: Mapping[str, Tensor]) -> Any:
    """The program of a classifier, with a free number of examples and tokens."""
    names = list(batch)
    try:
        with _quiet():
            return torch.onnx.export(
                _Logits(model, names).eval(),
                tuple(batch.values()),
                input_names=names,
                output_names=[OUTPUT],
                dynamic_shapes=(tuple({0: "batch", 1: "length"} for _ in names),),
                dynamo=True,
                verbose=False,
            )
    except MemoryError:
        raise
    except Exception as error:  # of any kind, as a model may do anything
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason = " ".join(f"{type(cause).__name__}: {cause}".split())[:200].rstrip(". ")
        raise InputError(_refusal(model, reason)) from error


def _refusal(model: Any, reason: str) -> str:
    return (
        f"this {model.config.model_type} model cannot be written as ONNX ({reason}): use `headwise predict`, or load "
        "it with headwise.load."
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporters say about their own insides."""
    loggers = [logging.getLogger(name) for name in CHATTY]
    levels = [each.level for each in loggers]
    try:
        for each in loggers:
            each.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"(torch|onnxscript|onnx_ir|copyreg)\b")
            yield
    finally:
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)


def _largest_difference(file: Path, model: Any, batches: list[dict[str, Tensor]]) -> float | None:
    """Between the logits of torch and of a file; too large a difference is refused."""
    try:
        import onnxruntime  # type: ignore[import-untyped]
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    differences = []
    try:
        session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        for batch in batches:
            expected = model(**batch).logits.numpy()  # [B,C]
            (logits,) = session.run([OUTPUT], {name: tensor.numpy() for name, tensor in batch.items()})
            difference = float(numpy.abs(logits - expected).max())
            if not difference <= TOLERANCE * max(1.0, float(numpy.abs(expected).max())):
                raise InputError(_refusal(model, f"its logits differ by {difference:.2g} under onnxruntime"))
            differences.append(difference)
    except InputError:
        raise
    except Exception as error:  # onnxruntime has a class for each kind, none of them public
        reason = " ".join(str(error).split())[:200].rstrip(". ")
        raise InputError(_refusal(model, f"onnxruntime: {reason}")) from error
    return max(differences)
