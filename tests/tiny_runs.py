"""Small runs for the tests of recipes and commands: a tiny encoder on disk, small files, and commands typed in."""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import multiprocessing
import os
import pkgutil
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
import yaml
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from headwise.cli import main
from headwise.experiments import check_recipe
from headwise.experiments.prepare import RunPaths
from headwise.experiments.recipe import OLD_TRAINING_KEYS
from headwise.experiments.run import train

WORDS = "the a cat dog bird man woman house tree river sees likes finds holds red green old new and with".split()
# The word that decides an example's label.
SIGNS = {"agree": "surely", "deny": "never", "open": "perhaps"}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LONGEST = 40


def build_tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *WORDS, *SIGNS.values()])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=LONGEST,
        **{f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")},
    )


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a random BERT of two layers, with dropout."""
    return str(write_encoder(tmp_path_factory.mktemp("encoder")))


def write_encoder(folder: Path, tokenizer: Any = None, layers: int = 2) -> Path:
    """Save a random BERT and its tokenizer."""
    tokenizer = tokenizer or build_tokenizer()
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=LONGEST,
        initializer_range=0.2,
    )
    BertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def sentence(chance: random.Random, sign: str) -> str:
    words = chance.choices(WORDS, k=chance.randint(2, 8))
    words.insert(chance.randint(0, len(words)), sign)
    return " ".join(words)


def rows(count: int, seed: int, kind: str = "pairs") -> list[list[str]]:
    """Lines of a table, header first: `kind` is the name of a generic task."""
    chance, names = random.Random(seed), list(SIGNS)
    texts = ["sentence1", "sentence2"] if kind.startswith("pairs") else ["sentence"]
    table = [[*texts, "label"]]
    for number in range(count):
        name = names[number % 3]
        fields = [sentence(chance, SIGNS[name]) for _ in texts]
        label = f"{number % 3 + chance.random():.3f}" if kind.endswith("regression") else name
        table.append([*fields, label])
    return table


def write_table(path: Path, table: list[list[str]], delimiter: str = "\t") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(delimiter.join(row) + "\n" for row in table), encoding="utf-8")
    return path


def write_data(folder: Path, kind: str = "pairs", sizes: tuple[int, ...] = (40, 24, 21)) -> Path:
    """train.tsv, validation.tsv and test.tsv."""
    for number, (split, size) in enumerate(zip(("train", "validation", "test"), sizes, strict=True)):
        write_table(folder / f"{split}.tsv", rows(size, number, kind))
    return folder


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with sentence pairs of three classes; nobody writes into it."""
    return str(write_data(tmp_path_factory.mktemp("pairs")))


def changed(data: Mapping[str, Any], /, **changes: Any) -> dict[str, Any]:
    """A copy with other values; `training__batch=8` changes a part of a part, by its old or new name."""
    data = copy.deepcopy(dict(data))
    for name, value in changes.items():
        *parts, last = name.split("__")
        part = data
        for each in parts:
            part = part.setdefault(each, {})
        part[OLD_TRAINING_KEYS.get(last, last) if parts[-1:] == ["training"] else last] = value
    return data


def small(encoder: str, **changes: Any) -> dict[str, Any]:
    """A recipe of ten steps as plain data; `training__batch=8` changes a part of a part."""
    recipe: dict[str, Any] = {
        "name": "small",
        "task": "pairs",
        "model": encoder,
        "data": {"max_length": 24},
        "training": {
            "num_train_epochs": 2,
            "per_device_train_batch_size": 8,
            "learning_rate": 1e-3,
            "logging_steps": 1,
            "save_steps": 4,
        },
        # Measured again and again, so that the weights move all along.
        "guides": {name: {"weight": {"share": 0.1, "every": 3, "window": 4}} for name in ("mdg", "pdg")},
        "share_every": 3,
    }
    return changed(recipe, **changes)


# Of a run on several tasks: the generic task of each, and its examples of train, validation and test.
JOINT = {
    "agree": ("pairs", (40, 24, 21)),
    "type": ("sentences", (27, 18, 15)),
    "score": ("pairs-regression", (17, 12, 9)),
}


@pytest.fixture(scope="session")
def several(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with the files of three tasks: pairs, single sentences, a regression; nobody writes into it."""
    folder = tmp_path_factory.mktemp("several")
    for name, (kind, sizes) in JOINT.items():
        write_data(folder / name, kind, sizes)
    return str(folder)


def small_joint(encoder: str, among: Iterable[str] = JOINT, **changes: Any) -> dict[str, Any]:
    """A recipe of two epochs, 24 steps with all tasks, as plain data; `training__batch=4` changes a part of a part."""
    files = {task: {split: f"{task}/{split}.tsv" for split in ("train", "validation", "test")} for task in among}
    recipe: dict[str, Any] = {
        "name": "joint",
        "tasks": {task: {"name": JOINT[task][0], "files": files[task]} for task in among},
        "model": encoder,
        "data": {"max_length": 24},
        "training": {
            "num_train_epochs": 2,
            "per_device_train_batch_size": 8,
            "learning_rate": 1e-3,
            "logging_steps": 1,
        },
    }
    recipe["training"] |= {"save_steps": 4, "eval_steps": 7, "head_learning_rate_multiplier": 1}
    return changed(recipe, **changes)


# Important heads only from step 19 of 24 on.
IAT = {"start": 0.8, "heads": 0.3, "rewarm": False}  # then the control is a run without IAT


def ran_jointly(folder: Path, encoder: str, data: str | Path, **changes: Any) -> Path:
    """Train a small recipe for several tasks, without the command line, and return its folder."""
    torch.set_num_threads(1)
    recipe = check_recipe(small_joint(encoder, **changes), "test")
    assert not train(recipe, RunPaths(folder, Path(data))).interrupted
    return folder


@pytest.fixture(scope="session")
def with_iat(tmp_path_factory: pytest.TempPathFactory, encoder: str, several: str) -> Path:
    """A run on three tasks with IAT and its control, to look at only."""
    return ran_jointly(tmp_path_factory.mktemp("with-iat") / "run", encoder, several, iat=IAT)


def _writer(folder: Path, recipe: Callable[..., dict[str, Any]], *, in_order: bool) -> Callable[..., str]:
    """Write a recipe with changes as a new file of a folder, with its keys in order or sorted; returns its path."""

    def write(**changes: Any) -> str:
        path = folder / f"recipe{len(list(folder.glob('recipe*')))}.yaml"
        path.write_text(yaml.safe_dump(recipe(**changes), sort_keys=not in_order), encoding="utf-8")
        return str(path)

    return write


@pytest.fixture
def write_recipe(tmp_path: Path, encoder: str) -> Callable[..., str]:
    """Write a small recipe with changes; returns its path."""
    return _writer(tmp_path, partial(small, encoder), in_order=False)


@pytest.fixture
def write_joint(tmp_path: Path, encoder: str) -> Callable[..., str]:
    """The same for several tasks."""
    return _writer(tmp_path, partial(small_joint, encoder), in_order=True)


def digest(path: Path | str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def weights(run: Path | str) -> str:
    return digest(Path(run) / "model.safetensors")


def record(run: Path | str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((Path(run) / "headwise.json").read_text(encoding="utf-8"))
    return content


def log(run: Path | str) -> list[dict[str, Any]]:
    lines = (Path(run) / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def outcome(run: Path | str) -> tuple[Any, ...]:
    """All that must not depend on how often a run was stopped."""
    happened = record(run)["results"]
    kept = ("metrics", "best_step", "steps", "labels", "examples", "evaluations")
    return weights(run), *(happened[name] for name in kept)


Result = tuple[int, str, str]


def _quieten() -> None:
    """What the environment of a command does for libraries that it has not imported yet."""
    logging.getLogger("transformers").setLevel(logging.ERROR)
    transformers.logging.disable_progress_bar()


@pytest.fixture
def _tidy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The commands make other libraries quiet, for the whole process: not the tests' whole process."""
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    monkeypatch.setenv("TRANSFORMERS_VERBOSITY", "error")
    names = ("transformers", "accelerate")
    levels = {name: logging.getLogger(name).level for name in names}
    bars = transformers.logging.is_progress_bar_enabled()
    _quieten()
    yield
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    if bars:
        transformers.logging.enable_progress_bar()


@pytest.fixture
def headwise(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], _tidy: None) -> Callable[..., Result]:
    """Type a command; get the exit code, stdout and stderr."""

    def type_in(*words: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["headwise", *map(str, words)])
        capsys.readouterr()
        code: Any = 0
        try:
            main.run()
        except SystemExit as error:
            code = error.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return type_in


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, encoder: str, pairs: str) -> Path:
    """The run of the small recipe as it is, to look at only."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    torch.set_num_threads(1)
    train(check_recipe(small(encoder), "test"), RunPaths(folder, Path(pairs)))
    return folder


def undisturbed(folder: Path, encoder: str, pairs: str, changes: dict[str, Any]) -> Path:
    """Train a small recipe with changes, and let nobody disturb it."""
    train(check_recipe(small(encoder, **changes), "test"), RunPaths(folder, Path(pairs)))
    return folder


@pytest.fixture
def ran(tmp_path: Path, encoder: str, pairs: str) -> Callable[..., Path]:
    """Train a small recipe with changes, without the command line, and return its folder."""

    def run(output: str = "run", data: str | Path = pairs, resume: bool = False, **changes: Any) -> Path:
        recipe = check_recipe(small(encoder, **changes), "test")
        assert not train(recipe, RunPaths(tmp_path / output, Path(data)), resume=resume).interrupted
        return tmp_path / output

    return run


@pytest.fixture
def trained(headwise: Callable[..., Result], write_recipe: Callable[..., str], pairs: str, tmp_path: Path) -> Any:
    """Train a small recipe with changes and return its folder."""

    def type_in(output: str = "run", data: str | Path = pairs, **changes: Any) -> Path:
        folder = tmp_path / output
        code, _, err = headwise("train", write_recipe(**changes), "--data", data, "--output", folder)
        assert code == 0, err
        return folder

    return type_in


def assert_done(result: Result) -> tuple[str, str]:
    """A command that has succeeded: its stdout and stderr."""
    code, out, err = result
    assert code == 0, err
    return out, err


def json_of(result: Result) -> Any:
    """What a command that has succeeded printed as JSON."""
    return json.loads(assert_done(result)[0])


def assert_one_sentence(result: Result, *parts: str, code: int = 2) -> None:
    """A mistake of the caller: exit code 2, nothing on stdout, one line on stderr, no traceback."""
    assert (result[0], result[1]) == (code, ""), result
    lines = result[2].strip().splitlines()
    assert len(lines) == 1, result[2]
    assert lines[0].startswith("headwise: ")
    for part in parts:
        assert part in lines[0], lines[0]


# -- real processes ----------------------------------------------------------------------------------------------------


# Dotted name of a function, at which of its calls, and the signals to send then.
At = tuple[str, int, *tuple[int, ...]]


# A server that has imported everything and done nothing, which saves the seconds of a fresh start.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "tiny_runs",
        "headwise.cli.main",
        "headwise.experiments.run",
        "headwise.experiments.apply",
        "headwise.experiments.searcher",
        "scipy.stats",
    ]
)


def slowly(*values: Any) -> Any:
    """One more case of a test that needs seconds: for `make slow`."""
    return pytest.param(*values, marks=pytest.mark.slow)


class Process:
    """`headwise WORDS...` as a process of its own."""

    def __init__(
        self,
        folder: Path,
        *words: object,
        at: At | None = None,
        file_limit: int | None = None,
        terminal: str | None = None,
    ) -> None:
        """`at` sends the process signals at the n-th call of a function; stderr goes to a file or to a terminal."""
        folder.mkdir(parents=True, exist_ok=True)
        self._out, self._err = folder / "stdout", Path(terminal or folder / "stderr")
        arguments = ([str(word) for word in words], str(self._out), str(self._err), at, file_limit)
        self._process = FORKS.Process(target=type_in_here, args=arguments)
        self._process.start()

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.is_alive()

    def send(self, number: int) -> None:
        assert self._process.pid  # 0 would be the tests themselves
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, number)

    def wait_until(self, condition: Callable[[], bool], seconds: float = 120) -> bool:
        """Wait for something in the run's folder; False if the process ends before it happens."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if condition():
                return True
            if not self.running:
                return condition()
            time.sleep(0.001)
        raise AssertionError(f"nothing happened for {seconds} seconds: {self._err.read_text()}")

    def result(self, seconds: float = 240) -> Result:
        """Wait for the end: exit code (negative: the signal that killed it), stdout, stderr."""
        self._process.join(seconds)
        code = self._process.exitcode
        if code is None:
            self._process.kill()
            raise AssertionError(f"still running after {seconds} seconds: {self._err.read_text()}")
        return code, self._out.read_text(), self._err.read_text() if self._err.is_file() else ""


def type_in_here(words: list[str], out: str, err: str, at: At | None = None, file_limit: int | None = None) -> None:
    """Type a command in this process, which ends with it."""
    for path, number in ((out, 1), (err, 2)):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, number)
    if file_limit is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
    if at is not None:
        _signal_at(*at)
    torch.set_num_threads(1)  # as in the tests' own process: the number of threads decides the last bits
    _quieten()
    sys.argv = ["headwise", *words]
    main.run()


def _signal_at(name: str, count: int, *signals: int) -> None:
    owner_name, _, attribute = name.rpartition(".")
    owner = pkgutil.resolve_name(owner_name)
    original, calls = getattr(owner, attribute), []

    def watched(*args: Any, **options: Any) -> Any:
        calls.append(name)
        if len(calls) == count:
            if name == "torch.save":  # a kill in the middle of writing
                Path(args[1]).write_bytes(b"half of it")
            for number in signals:
                os.kill(os.getpid(), number)
        return original(*args, **options)

    setattr(owner, attribute, watched)
