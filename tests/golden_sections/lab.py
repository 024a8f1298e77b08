"""Running commands, and what is kept of what they give."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import os
import re
import runpy
import shlex
import shutil
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from golden_sections.inputs import RUNS, write_yaml

Section = Callable[["Lab"], Any]
SECTIONS: dict[str, Section] = {}
# Keys of a command's JSON that say where, when and on what it ran.
VOLATILE = {
    "bytes",
    "command",
    "examples_key",
    "folder",
    "key",
    "packages",
    "pairs_per_second",
    "record",
    "seconds",
    "seconds_per_epoch",
    "seconds_per_step",
    "storage",
    "times",
    "tokenizer",
    "versions",
}
# Columns of a log that measure time, or that the Trainer counts anew in a resumed run.
UNSTEADY = "runtime|second|flos|^train_loss$"
# Keys whose values are sentences: they will be rewritten, and the tests check what they must say.
PROSE = {"description", "minimises", "title", "source", "legend", "notes", "note", "message", "install", "help"}


def section(name: str) -> Callable[[Section], Section]:
    """Enter a function, whose answer is recorded under this name."""

    def decorate(function: Section) -> Section:
        SECTIONS[name] = function
        return function

    return decorate


class Lab:
    """Runs commands in this process and keeps the trained runs, which sections share."""

    def __init__(self) -> None:
        self._trained: dict[str, dict[str, Any]] = {}
        self._copies = 0

    def type(self, line: str) -> tuple[int, str, str]:
        """`python -m headwise LINE`: the exit code, stdout and stderr."""
        out, err, before, code = io.StringIO(), io.StringIO(), sys.argv, 0
        sys.argv = ["headwise", *shlex.split(line)]
        try:
            with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
                runpy.run_module("headwise", run_name="__main__")
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        finally:
            sys.argv = before
        return code, out.getvalue(), err.getvalue()

    def json(self, line: str, drop: Sequence[str] = ()) -> Any:
        """What a command prints with --json, without what changes from run to run."""
        code, out, err = self.type(f"{line} --json")
        if code:
            raise RuntimeError(f"headwise {line}: exit code {code}: {err[-2000:]}")
        return clean(json.loads(out), drop)

    def train(self, name: str) -> dict[str, Any]:
        """The JSON of a run of RUNS, which is trained when it is first asked for."""
        if name not in self._trained:
            data, folder = RUNS[name]
            file = write_yaml(f"{name}.yaml", data)
            self._trained[name] = self.json(f"train {file} --data {folder} --output runs/{name}")
        return self._trained[name]

    def run(self, name: str) -> str:
        """The folder of a run, to read only."""
        self.train(name)
        return f"runs/{name}"

    def copy(self, name: str) -> str:
        """A copy of its folder, to write into: so no section sees what another one has left."""
        self._copies += 1
        target = f"copy{self._copies}/{name}"
        shutil.copytree(self.run(name), target)
        return target


def clean(data: Any, drop: Sequence[str] = ()) -> Any:
    """Without what changes from run to run, and without these keys."""
    if isinstance(data, dict):
        return {key: clean(value, drop) for key, value in data.items() if key not in {*VOLATILE, *PROSE, *drop}}
    if isinstance(data, list):
        return [clean(value, drop) for value in data]
    return tidy(data) if isinstance(data, str) else data


def tidy(text: str) -> str:
    """Without the names of folders that depend on the machine or on the order of sections."""
    return re.sub(r"copy\d+/", "copy/", text.replace(os.getcwd(), "WORK"))


# -- a run -------------------------------------------------------------------------------------------------------------


def summary(run: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """What a run is worth: scores, steps, examples, what guides, SSA and IAT did, and its weights."""
    results = holder(run, "metrics", "best_step")
    kept = ("metrics", "last", "primary", "labels", "steps", "best_step", "examples", "claims", "truncated")
    found: dict[str, Any] = {key: results[key] for key in (*kept, "guides", "iat") if key in results}
    found |= {"seed": holder(run, "seed")["seed"], "fingerprint": fingerprint(run)}
    found |= {key: columns(results[key]) for key in ("evaluations", "ssa") if key in results}
    kept = ("kind", "primary", "labels", "examples", "truncated")
    found["tasks"] = {name: {key: task[key] for key in kept} for name, task in results.get("tasks", {}).items()}
    log = (Path(folder) / "log.jsonl").read_text(encoding="utf-8").splitlines()
    found["log"] = log_sums([json.loads(line) for line in log])
    for part in ("", "last", "control", "control/last"):
        if (Path(folder) / part).is_dir():
            found[" ".join(["weights", *part.split("/")]).strip()] = weights(Path(folder) / part)
    return found


def holder(data: Any, *keys: str) -> dict[str, Any]:
    """The outermost dict that has all of these keys, whatever it is called."""
    level = [data]
    while level:
        for each in level:
            if isinstance(each, dict) and all(key in each for key in keys):
                return each
        inner = [list(each.values()) if isinstance(each, dict) else each for each in level]
        level = [value for each in inner if isinstance(each, list) for value in each]
    raise KeyError(f"no part has {keys}")


def fingerprint(data: Any) -> str | None:
    """The hash of the examples: the first text with the key `examples`."""
    if not isinstance(data, dict):
        return None
    if isinstance(data.get("examples"), str):
        return str(data["examples"])
    return next((found for value in data.values() if (found := fingerprint(value))), None)


def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Rows of a table as one list for each column."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def log_sums(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How many lines a log has, and the sum of every column."""
    sums: dict[str, float] = {}
    for line in lines:
        for key, value in line.items():
            if isinstance(value, int | float) and not re.search(UNSTEADY, key):
                sums[key] = sums.get(key, 0.0) + value
    return {"lines": len(lines), "sums": dict(sorted(sums.items()))}


# -- numbers -----------------------------------------------------------------------------------------------------------


def weights(folder: str | Path) -> dict[str, Any]:
    """Of all tensors in the safetensors files of a folder, whatever they and their files are called."""
    files = sorted(Path(folder).glob("*.safetensors"))
    return tensors_of([tensor for file in files for tensor in load_file(file).values()])


def tensors_of(tensors: Sequence[Tensor]) -> dict[str, Any]:
    """A hash, and a sum that rounding on another processor changes little."""
    digests = []
    for tensor in tensors:
        content = tensor.detach().contiguous().cpu()
        head = f"{content.dtype} {tuple(content.shape)} ".encode()
        digests.append(hashlib.sha256(head + content.numpy().tobytes()).hexdigest())
    total = math.fsum(float(tensor.detach().double().abs().sum()) for tensor in tensors)
    return {
        "tensors": len(tensors),
        "numbers": sum(tensor.numel() for tensor in tensors),
        "absolute_sum": float(f"{total:.4g}"),
        "sha256": hashlib.sha256("".join(sorted(digests)).encode()).hexdigest(),
    }


def stats(tensor: Tensor) -> dict[str, Any]:
    """Shape, sum and norm."""
    values = tensor.detach().double()
    return {"shape": list(values.shape), "sum": float(values.sum()), "norm": float(values.norm())}


def total(data: Any) -> dict[str, float]:
    """How many numbers there are anywhere inside, and the sum of their absolute values."""
    numbers = list(numbers_in(data))
    return {"numbers": len(numbers), "absolute_sum": math.fsum(map(abs, numbers))}


def condensed(data: Any, *keys: str) -> Any:
    """With the totals in place of the values of these keys."""
    if isinstance(data, dict):
        return {key: total(value) if key in keys else condensed(value, *keys) for key, value in data.items()}
    return [condensed(value, *keys) for value in data] if isinstance(data, list) else data


def numbers_in(data: Any) -> Iterator[float]:
    if isinstance(data, Mapping):
        data = list(data.values())
    if isinstance(data, list | tuple):
        for value in data:
            yield from numbers_in(value)
    elif isinstance(data, int | float) and not isinstance(data, bool):
        yield float(data)


# -- files -------------------------------------------------------------------------------------------------------------


def page(html: str) -> dict[str, Any]:
    """A report: how many numbers each view holds, their sum, and the arrays."""
    payload = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', html, re.S)[0]
    arrays = re.findall(r'<script type="text/plain"[^>]*data-bytes[^>]*>(.*?)</script>', html, re.S)
    unpacked = [zlib.decompress(base64.b64decode(text), -zlib.MAX_WBITS) for text in arrays]
    return {
        "content": {name: total(view) for name, view in json.loads(payload)["views"].items()},
        "arrays": len(arrays),
        "array_bytes": sum(map(len, unpacked)),
        "array_sum": float(sum(map(sum, unpacked))),
    }


def table(path: Path) -> dict[str, Any]:
    """The columns of a file: words as they are, of numbers the first and the sum."""
    lines = path.read_text(encoding="utf-8").splitlines()
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in lines]
    else:
        names, *rest = (line.split("," if path.suffix == ".csv" else "\t") for line in lines)
        rows = [dict(zip(names, fields, strict=True)) for fields in rest]
    return {name: summed(values) for name, values in columns(rows).items()}


def summed(values: Sequence[Any]) -> Any:
    try:
        return {"first": float(values[0]), "sum": math.fsum(float(value) for value in values)}
    except ValueError:
        return list(values)
    except TypeError:  # lists or dicts
        return total(values)


def trec(path: Path) -> dict[str, Any]:
    """The papers of every claim in their order, and the sum of the scores."""
    lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    order: dict[str, list[str]] = {}
    for claim, _, paper, *_ in lines:
        order.setdefault(claim, []).append(paper.removeprefix(f"{claim}-"))
    return {"order": order, "scores": math.fsum(float(line[4]) for line in lines)}
