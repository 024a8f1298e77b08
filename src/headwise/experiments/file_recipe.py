"""A recipe from a file of examples: which columns count, what is predicted, and how the file is split."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.data.catalogue import build_task
from headwise.data.conll import SUFFIXES as CONLL_SUFFIXES
from headwise.data.conll import open_conll
from headwise.data.dialects import SUFFIXES, Dialect, suffix_of
from headwise.data.examples import label_text
from headwise.data.readers import Table, detect_table, is_number, open_table
from headwise.data.task import KINDS, FileTask
from headwise.errors import InputError, choices, listed
from headwise.experiments.recipe_files import Dumper, plain_name

if TYPE_CHECKING:
    from headwise.data import Split
    from headwise.experiments.splits import Splits

CLASSES, NUMBERS, SETS, WORDS = KINDS
TASKS = {
    CLASSES: ("sentences", "pairs"),
    NUMBERS: ("sentences-regression", "pairs-regression"),
    SETS: ("sentences-labels", "pairs-labels"),
    WORDS: ("token-labels",),
}
DESCRIBED = {
    CLASSES: "one class",
    NUMBERS: "a number (regression)",
    SETS: "any number of classes (multi_label)",
    WORDS: "a class for each word (token_labels)",
}
# Names that people give to the column of the label, the likeliest first.
LABEL_NAMES = (
    "label labels class category target sentiment gold_label y score rating stars intent topic topics emotion type "
    "tag tags ner ner_tags"
).split()
PAIR_NAMES = (
    ("sentence1", "sentence2"),
    ("sentence_a", "sentence_b"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question_1", "question_2"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("query", "passage"),
    ("question", "answer"),
    ("claim", "evidence"),
)
SEPARATORS = (";", "|", ",")
# More different whole numbers than this are a quantity, not classes.
MOST_NUMBERED_CLASSES = 10
MOST_CLASSES = 200
HELD_OUT = {"validation_fraction": 0.15, "test_fraction": 0.15}
LENGTHS = (32, 64, 128, 256)
BATCH = 16
LEAST_STEPS = 200
DEV_NAMES = {"train": ("train",), "validation": ("validation", "valid", "dev", "val"), "test": ("test",)}
MOST_SHOWN = 20
COMMENTS = {
    "task": "The columns; `headwise list tasks` shows other tasks. Files are relative to the folder of the data.",
    "model": "A folder with a model, or a name on the Hugging Face Hub.",
    "head": "What the classifier reads: cls, mean, or for pairs segments (docs/training.md).",
    "guides": "Attention guides, such as {mdg: {weight: {share: 0.03}}}; `headwise list guides` shows all.",
    "data": "Lengths in tokens; parts of train to hold out.",
    "training": "Fields of transformers.TrainingArguments.",
    "seed": "Of weights, order and the choice of what is held out.",
}


@dataclass(frozen=True)
class Choice:
    """What a user says about a file; None is detected."""

    text: str | None = None
    pair: str | None = None
    label: str | None = None
    kind: str | None = None
    model: str | None = None
    written: Mapping[str, str | None] = field(default_factory=dict)
    """How the file is written: delimiter, encoding and sheet, as in the task of a recipe."""

    @property
    def options(self) -> dict[str, str]:
        """The options of a task that say how the file is written."""
        return {name: value for name, value in self.written.items() if value is not None}


@dataclass(frozen=True)
class Columns:
    """A file of examples, read once."""

    path: Path
    names: tuple[str, ...]
    header: bool
    values: Mapping[str, Sequence[Any]]
    """Of each column, row by row."""
    conll: bool

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return max(map(len, self.values.values()), default=0)

    def filled(self, name: str) -> list[Any]:
        """The values of a column that are not empty."""
        return [each for each in self.values[name] if label_text(each)]

    def words(self, name: str) -> float:
        """The mean number of words; 0 for numbers."""
        texts = self.filled(name)
        if not texts or all(not isinstance(each, str | list) or is_number(str(each)) for each in texts):
            return 0.0
        return sum(len(each) if isinstance(each, list) else len(str(each).split()) for each in texts) / len(texts)


@dataclass(frozen=True)
class FileRecipe:
    """A recipe, and what was detected to write it."""

    data: dict[str, Any]
    """Keys and values, as a recipe file has them."""
    root: Path
    """The folder to which the file names in it are relative."""
    notes: list[str] = field(default_factory=list)
    """What was detected, for people."""


def find_files(data: Path) -> tuple[Path, dict[str, str]]:
    """The folder of the data and its file for each split: of a file that is train, of a folder those that it has."""
    if data.is_file():
        return data.parent, {"train": data.name}
    if not data.is_dir():
        raise InputError(f"data={data}: there is no such file or folder; name a file of examples.")
    known = {*SUFFIXES, *CONLL_SUFFIXES}
    files: dict[str, str] = {}
    for split, stems in DEV_NAMES.items():
        found = [path for path in sorted(data.iterdir()) if path.stem.lower() in stems and suffix_of(path) in known]
        if len(found) > 1:
            raise InputError(f"{data} has several files for {split}: {listed(path.name for path in found)}; keep one.")
        if found:
            files[split] = found[0].name
    if "train" not in files:
        names = [path.name for path in sorted(data.iterdir())]
        raise InputError(f"{data} has no file named train, only {listed(names)}: name a file, or a recipe.")
    return data, files


def read_columns(path: Path, choice: Choice) -> Columns:
    """Read all columns of a file; without a header they are column1, column2 and so on."""
    suffix = suffix_of(path)
    conll = suffix in (".conll", ".conll2003", ".bio", ".iob", ".iob2") or (choice.kind == WORDS and suffix == ".txt")
    task = build_task(TASKS[CLASSES][0], choice.options)  # which checks the options
    dialect = task.dialect if isinstance(task, FileTask) else Dialect()
    table: Table | None = open_conll(path, dialect) if conll else None
    header = True
    names: tuple[str, ...]
    if table is None:
        found = detect_table(path, dialect)
        table, header, conll = open_table(path, dialect), found.header, False
    names = table.first if header else tuple(f"column{number}" for number in range(1, len(table.first) + 1))
    wanted = [name for name in names if names.count(name) == 1 and name.strip()]
    values: dict[str, list[Any]] = {name: [] for name in wanted}
    broken: list[str] = []
    for _, row in table.rows(wanted, None if header else names, broken.append, wanted):
        for name, value in zip(wanted, row, strict=True):
            values[name].append(value)
    columns = Columns(path, names, header, values, conll)
    if not columns.rows:
        raise InputError(broken[0] if broken else f"{path} has no rows below its header: add examples.")
    return columns


def complete(columns: Columns, choice: Choice) -> Choice:
    """The choice with what was detected; names that the file does not have are refused."""
    for option in ("text", "pair", "label"):
        name = getattr(choice, option)
        if name is not None and name not in columns.values:
            without = "" if columns.header else " (the file has no header)"
            raise InputError(
                f"{option}={name}: {columns.path} has no such column{without}; {choices(name, columns.values)}."
            )
    named = [name for name in (choice.text, choice.pair, choice.label) if name is not None]
    if len(set(named)) < len(named):
        raise InputError(f"text, pair and label are {listed(named)}: expected different columns; name each once.")
    label = choice.label or _guess_label(columns, named)
    text, pair = choice.text, choice.pair
    if text is None:
        lower = {name.lower(): name for name in columns.values}
        both = next((each for each in PAIR_NAMES if {*each} <= {*lower}), None)
        if both is not None and pair is None and label not in (lower[both[0]], lower[both[1]]):
            text, pair = lower[both[0]], lower[both[1]]
        else:
            text = _guess_text(columns, [label, *([] if pair is None else [pair])])
    kind = choice.kind or detect_kind(columns.filled(label), columns.filled(text), f"{columns.path}, column {label!r}")
    if kind not in KINDS:
        raise InputError(f"kind={kind}: {choices(kind, KINDS)}.")
    if kind == WORDS and pair is not None:
        raise InputError("kind=token_labels labels the words of one text: leave pair out.")
    return Choice(text, pair, label, kind, choice.model or "builtin:minilm-l6", choice.written)


def _guess_label(columns: Columns, used: Sequence[str]) -> str:
    left = {name.lower(): name for name in columns.values if name not in used}
    for name in LABEL_NAMES:
        if name in left:
            return left[name]
    different = {name: len(_different(columns.filled(name))) for name in left.values()}
    few = [name for name, count in different.items() if 2 <= count <= _most(columns.rows)]
    fewest = [name for name in few if different[name] == min(different[each] for each in few)]
    if len(fewest) == 1:
        return fewest[0]
    raise InputError(
        f"{columns.path} has the columns {listed(columns.values)}, and which one has the labels is not clear: name it "
        "(label=...)."
    )


def _guess_text(columns: Columns, used: Sequence[str]) -> str:
    left = [name for name in columns.values if name not in used and columns.words(name) > 0]
    if not left:
        raise InputError(f"{columns.path} has no column of texts beside {listed(used)}: name one (text=...).")
    return max(left, key=columns.words)


def _different(values: Iterable[Any]) -> set[str]:
    return {label_text(each) for value in values for each in (value if isinstance(value, list) else [value])}


def _most(rows: int) -> int:
    return min(MOST_CLASSES, max(MOST_NUMBERED_CLASSES, rows // 2))


# -- what is predicted -------------------------------------------------------------------------------------------------


def detect_kind(labels: Sequence[Any], texts: Sequence[Any], where: str) -> str:
    """The kind of task that these labels are for.

    Args:
        labels: of all examples, as read.
        texts: of all examples.
        where: the file and the column, for messages.
    """
    if not labels:
        raise InputError(f"{where} has no labels: fill it in, or name another column (label=...).")
    if any(isinstance(each, list) for each in labels):
        both = zip(labels, texts, strict=False)
        alike = all(isinstance(text, list) and isinstance(own, list) and len(text) == len(own) for own, text in both)
        return WORDS if alike and texts else SETS
    written = [label_text(each) for each in labels]
    counts = Counter(written)
    if all(map(is_number, written)):
        whole = all(float(each).is_integer() for each in counts)
        return CLASSES if whole and len(counts) <= MOST_NUMBERED_CLASSES else NUMBERS
    if find_separator(written) is not None:
        return SETS
    if len(counts) > _most(len(written)):
        raise InputError(
            f"{where} has {len(counts)} different values in {len(written)} rows ({listed(list(counts)[:3])} ...): "
            "expected classes that occur several times, or numbers; name the column of the labels (label=...)."
        )
    return CLASSES


def find_separator(labels: Sequence[str]) -> str | None:
    """What is between several labels in one cell; None if each cell has one.

    Cells share labels then, and there are no more labels than different cells: "Health; Science" beside "Sports" is a
    class with a semicolon in its name.
    """
    cells = set(labels)
    for separator in SEPARATORS:
        parts = Counter(part for cell in cells for part in {each.strip() for each in cell.split(separator)} if part)
        if any(separator in cell for cell in cells) and len(parts) <= len(cells) and max(parts.values(), default=0) > 1:
            return separator
    return None


# -- the recipe --------------------------------------------------------------------------------------------------------


def file_recipe(data: Path, choice: Choice, *, columns: Columns | None = None) -> FileRecipe:
    """A recipe for a file of examples, or for a folder with train, validation and test.

    Args:
        data: the file or folder.
        choice: what is known about it.
        columns: of the training file, if it has been read.
    """
    data = data.expanduser()
    root, files = find_files(data)
    columns = columns or read_columns(root / files["train"], choice)
    choice = complete(columns, choice)
    kind, text, label = str(choice.kind), str(choice.text), str(choice.label)
    texts = [text] if choice.pair is None else [text, choice.pair]
    names = TASKS[kind]
    task: dict[str, Any] = {
        "name": names[len(texts) - 1],
        "texts": texts,
        "label": label,
        "files": files,
        **choice.options,
    }
    if not columns.header:
        task["columns"] = list(columns.names)
    if columns.conll:
        del task["texts"], task["label"]
    labels = columns.filled(label)
    notes = [] if columns.header else [f"{columns.path} has no header: its columns are {', '.join(columns.names)}"]
    notes.append(f"from {' and '.join(map(repr, texts))} to {label!r}: {DESCRIBED[kind]}")
    if kind == SETS:
        task["label_separator"] = find_separator([each for each in labels if isinstance(each, str)]) or ";"
        notes[-1] += f", with {task['label_separator']!r} between them"
    unlabelled = len(columns.values[label]) - len(labels)
    if unlabelled and kind != SETS:
        task["unlabelled"] = {"rule": "drop"}
        notes.append(f"rows without a label, which are left out: {unlabelled}")
    rows = zip(*(columns.values[name] for name in texts), strict=True)
    empty = sum(not all(label_text(each).strip() for each in row) for row in rows)
    if empty:
        task["broken_rows"] = "drop"
        notes.append(f"rows without a text, which are left out: {empty}")
    held_out = {name: part for name, part in HELD_OUT.items() if name.removesuffix("_fraction") not in files}
    if len(files) > 1:
        held_out.pop("test_fraction", None)
    options: dict[str, Any] = {"max_length": _length(columns, texts), **held_out}
    if held_out:
        options |= {"group_by": "near_duplicates"} | ({"stratify": True} if kind == CLASSES else {})
    head = "cls" if kind == WORDS else "mean" if choice.pair is None else "segments"
    count = max(1, columns.rows * (1 - sum(held_out.values())))
    epochs = max(4, min(20, math.ceil(LEAST_STEPS * BATCH / count)))
    training = {"num_train_epochs": epochs, "per_device_train_batch_size": BATCH, "learning_rate": 1e-4}
    content = {
        "name": plain_name(
            re.sub(r"\.(csv|tsv|txt|jsonl|json|xlsx|gz)$", "", data.resolve().name, flags=re.IGNORECASE)
        ),
        "task": task,
        "model": choice.model,
        "head": head,
        "guides": {},
        "data": options,
        "training": training,
        "seed": 1,
    }
    return FileRecipe(content, root, notes)


def _length(columns: Columns, texts: Sequence[str]) -> int:
    """Tokens that hold 19 of 20 examples, with half as many more than words."""
    totals = sorted(
        sum(len(each) if isinstance(each, list) else len(str(each).split()) for each in row)
        for row in zip(*(columns.values[name] for name in texts), strict=True)
    )
    needed = 1.5 * totals[int(0.95 * (len(totals) - 1))] + 3
    return next((length for length in LENGTHS if length >= needed), LENGTHS[-1])


def split_table(splits: Splits) -> tuple[list[str], list[list[str]]]:
    """The headings and rows of a table of the splits: their sizes, and how often each class occurs."""
    named, kind = splits.named, splits.task.kind
    rows = [["examples", *(str(len(split)) for split in named.values())]]
    classes = splits.task.labels
    counts = {name: _class_counts(split, kind) for name, split in named.items()}
    shown = sorted(range(len(classes)), key=lambda index: -counts["train"][index])
    for index in shown[:MOST_SHOWN]:
        rows.append([classes[index], *(str(count[index]) for count in counts.values())])
    if len(classes) > MOST_SHOWN:
        rows.append([f"{len(classes) - MOST_SHOWN} more", *("" for _ in named)])
    return ["", *named], rows


def _class_counts(split: Split, kind: str) -> Counter[int]:
    """How many examples, or words, have each class."""
    if kind == NUMBERS:
        return Counter()
    labels: Any = split.labels
    rows = [(each,) if isinstance(each, int) else each for each in labels if each is not None]
    if kind == SETS:
        return Counter(index for row in rows for index, given in enumerate(row) if given)
    return Counter(index for row in rows for index in row)


def commented(data: Mapping[str, Any], first: str) -> str:
    """A recipe as YAML with a comment above each part; `first` is the first comment."""
    import yaml

    parts = [f"# {first}\n"]
    for key, value in data.items():
        comment = f"# {COMMENTS[key]}\n" if key in COMMENTS else ""
        parts.append(comment + yaml.dump({key: value}, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120))
    return "".join(parts)
