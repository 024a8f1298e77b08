"""A user's options: what a recipe may change in a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headwise.data.dialects import FORMATS
from headwise.data.examples import RULES, Unlabelled, label_text
from headwise.data.mark_sources import AGREEMENTS, COLUMNS, EXPORTS, FILES, SOURCES, UNITS, Marks
from headwise.data.readers import SPLITS, Hub, Layout
from headwise.data.task import (
    CLASSIFICATION_METRICS,
    KINDS,
    MULTI_LABEL_METRICS,
    PAPER_METRICS,
    REGRESSION_METRICS,
    WORD_METRICS,
    FileTask,
)
from headwise.errors import InputError, choices

# The metrics of a kind, and those that are the default.
METRICS_OF = {
    "classification": CLASSIFICATION_METRICS,
    "regression": REGRESSION_METRICS,
    "multi_label": MULTI_LABEL_METRICS,
    "token_labels": WORD_METRICS,
}
DEFAULT_METRICS = METRICS_OF | {"classification": PAPER_METRICS}
OPTIONS = tuple(
    "files format delimiter quoting encoding sheet texts label header columns kind labels label_names label_separator "
    "metrics primary unlabelled broken_rows hub hub_config hub_splits marks".split()
)
_TEXT_MARKS = (*COLUMNS, "lexicon")
_TOOLS = ("doccano", "label_studio")
# Options of marks -> the sources that have them.
MARK_OPTIONS = {
    "text": _TEXT_MARKS,
    "widen": ("column", "spans", *_TOOLS, "ssa"),
    "unit": ("spans",),
    "agreement": ("tokens",),
    "names": _TOOLS,
    "threshold": ("ssa",),
}


def one_of(value: Any, known: Sequence[str], option: str) -> str:
    """One of some words."""
    if not isinstance(value, str) or value not in known:
        raise InputError(f"{option}: {value!r} is not known; {choices(str(value), known)}.")
    return value


def text(value: Any, option: str) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value:
        raise InputError(f"{option}: expected a text, got {value!r}; quote it if it is one.")
    return value


def texts(value: Any, option: str) -> tuple[str, ...]:
    """A list of different texts; a single one needs no list."""
    items = (value,) if isinstance(value, str) else value
    if not isinstance(items, Sequence) or not items:
        raise InputError(f"{option}: expected a list of texts, got {value!r}; list at least one.")
    checked = tuple(text(item, option) for item in items)
    if len(set(checked)) < len(checked):
        raise InputError(f"{option}: expected different texts, got {list(checked)!r}; name each once.")
    return checked


def mapping(value: Any, option: str) -> Mapping[Any, Any]:
    """A mapping."""
    if not isinstance(value, Mapping):
        raise InputError(f"{option}: expected a mapping, got {value!r}; write it as key: value.")
    return value


def _class_name(value: Any, option: str) -> str:
    """A class as it is written in a file; whole numbers need no quotation marks."""
    # YAML reads yes, no, on and off as booleans, which is never what was meant.
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InputError(f"{option}: expected a text or a whole number, got {value!r}; quote it.")
    return str(value)


def configured(task: FileTask, options: Mapping[str, Any]) -> FileTask:
    """The task with the user's options."""
    for option in mapping(options, f"options of task {task.name!r}"):
        if option not in OPTIONS:
            raise InputError(f"task {task.name!r} has no option {option!r}: {choices(str(option), OPTIONS)}.")
    if {"texts", "label", "header", "columns"} & set(options):
        # The user's columns are then the only ones that the task looks for.
        task = replace(task, layouts=(_layout(task, options),))
    task = _with_metrics(_with_labels(_with_files(task, options), options), options)
    if "broken_rows" in options:
        task = replace(task, broken_rows=one_of(options["broken_rows"], ("error", "drop"), "broken_rows"))
    return _with_hub(_with_marks(task, options), options)


def _with_files(task: FileTask, options: Mapping[str, Any]) -> FileTask:
    """Which files are read, and how they are written."""
    files, dialect = task.files, task.dialect
    if "files" in options:
        known = tuple(dict.fromkeys([*SPLITS, *files.splits]))
        own = {
            one_of(split, known, "files"): text(str(path), f"files.{split}")
            for split, path in mapping(options["files"], "files").items()
        }
        files = replace(files, own=own, names={} if files.guessed else files.names)
    for option, known in {"format": FORMATS, "quoting": ("none", "minimal")}.items():
        if option in options:
            dialect = replace(dialect, **{option: one_of(options[option], known, option)})
    if "delimiter" in options:
        delimiter = options["delimiter"]
        delimiter = {"tab": "\t", "\\t": "\t"}.get(delimiter, delimiter) if isinstance(delimiter, str) else delimiter
        if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter.isalnum() or delimiter in '"\r\n':
            raise InputError(f"delimiter: expected one sign, such as ; or tab, got {delimiter!r}; quote it.")
        dialect = replace(dialect, delimiter=delimiter)
    if "sheet" in options:
        dialect = replace(dialect, sheet=text(options["sheet"], "sheet"))
    if "encoding" in options:
        encoding = text(options["encoding"], "encoding")
        try:
            "".encode(encoding)
        except LookupError:
            raise InputError(
                f"encoding: {encoding!r} is not a text encoding; give one, such as utf-8 or latin-1."
            ) from None
        dialect = replace(dialect, encoding=encoding)
    return replace(task, files=files, dialect=dialect)


def _layout(task: FileTask, options: Mapping[str, Any]) -> Layout:
    """Which columns hold the texts and the label, and what they are called without a header."""
    layout = task.layouts[0]
    if "texts" in options:
        names = texts(options["texts"], "texts")
        if len(names) != task.sentences:
            raise InputError(
                f"texts: task {task.name!r} takes {task.sentences} of them, got {list(names)!r}; use another task, "
                f"such as {'sentences' if len(names) == 1 else 'pairs'}."
            )
        layout = replace(layout, texts=names)
    if "label" in options:
        layout = replace(layout, label=text(options["label"], "label"))
    header = options.get("header", "columns" not in options and layout.columns is None)
    if not isinstance(header, bool):
        raise InputError(f"header: expected true or false, got {header!r}; write one of them.")
    if header and "columns" in options:
        raise InputError("columns are for files without a header: leave them out, or set header: false.")
    if header:
        return replace(layout, columns=None)
    columns = texts(options["columns"], "columns") if "columns" in options else layout.columns
    if columns is None:
        raise InputError("header: false needs the names of all columns: give them in order, as columns.")
    for name in layout.text_columns:
        if name not in columns:
            raise InputError(
                f"texts: {name!r} is not among the columns {list(columns)!r} of a file without a header; "
                "name it there, or set header: true."
            )
    return replace(layout, columns=columns)


def _with_labels(task: FileTask, options: Mapping[str, Any]) -> FileTask:
    """Classes or numbers, and which classes."""
    if "kind" in options:
        kind = one_of(options["kind"], KINDS, "kind")
        if kind == "token_labels" and task.sentences > 1:
            raise InputError(f"kind: token_labels is for words of one text, and {task.name!r} has two: use sentences.")
        if kind != task.kind:
            metrics = DEFAULT_METRICS[kind]
            task = replace(task, kind=kind, known_labels=(), aliases={}, metrics=metrics, primary=metrics[0])
    if task.kind == "regression" and {"labels", "label_names"} & set(options):
        raise InputError(f"task {task.name!r} predicts numbers and has no labels: leave labels and label_names out.")
    if "label_separator" in options:
        task = replace(task, label_separator=text(options["label_separator"], "label_separator"))
    if "labels" in options:
        value = options["labels"]
        if isinstance(value, str) or not isinstance(value, list | tuple) or len(value) < 2:
            raise InputError(f"labels: expected a list of at least two, got {value!r}; list all classes in order.")
        labels = texts([_class_name(label, "labels") for label in value], "labels")
        # Aliases stay that still lead to a class, and do not hide a class of that name.
        aliases = {name: label for name, label in task.aliases.items() if label in labels and name not in labels}
        task = replace(task, known_labels=labels, aliases=aliases)
    if "label_names" in options:
        names = mapping(options["label_names"], "label_names")
        aliases = {label_text(raw): _class_name(label, "label_names") for raw, label in names.items()}
        for label in aliases.values():
            if task.known_labels and label not in task.known_labels:
                raise InputError(
                    f"label_names: {label!r} is not a label of task {task.name!r}; {choices(label, task.known_labels)}."
                )
        task = replace(task, aliases={**task.aliases, **aliases})
    if "unlabelled" in options:
        value = mapping(options["unlabelled"], "unlabelled")
        for key in value:
            one_of(key, ("values", "rule"), "unlabelled")
        values, rule = value.get("values", task.unlabelled.values), value.get("rule", task.unlabelled.rule)
        if isinstance(values, str) or not isinstance(values, list | tuple):
            raise InputError(f"unlabelled.values: expected a list, got {values!r}; write it in brackets.")
        unlabelled = Unlabelled(tuple(map(label_text, values)), one_of(rule, RULES, "unlabelled.rule"))
        task = replace(task, unlabelled=unlabelled)
    return task


def _with_metrics(task: FileTask, options: Mapping[str, Any]) -> FileTask:
    """How the task is scored."""
    known = METRICS_OF[task.kind]
    metrics = texts(options["metrics"], "metrics") if "metrics" in options else task.metrics
    for name in metrics:
        one_of(name, known, f"metrics of a {task.kind} task")
    if "f1" in metrics and len(task.known_labels) > 2:
        raise InputError(
            f"metrics: f1 is for two classes, task {task.name!r} has {len(task.known_labels)}: use macro_f1."
        )
    default = task.primary if task.primary in metrics else metrics[0]
    primary = one_of(text(options.get("primary", default), "primary"), metrics, "primary")
    return replace(task, metrics=metrics, primary=primary)


def _with_hub(task: FileTask, options: Mapping[str, Any]) -> FileTask:
    """A data set on the Hub instead of files."""
    used = [option for option in ("hub", "hub_config", "hub_splits") if option in options]
    if not used:
        return task
    if "hub" not in options:
        raise InputError(f"{used[0]} says how to read a data set on the Hub: name it with hub, or leave this out.")
    if "files" in options:
        raise InputError(f"task {task.name!r} is given both files and hub: leave one out.")
    config = options.get("hub_config")
    splits = mapping(options.get("hub_splits", SPLITS), "hub_splits")
    hub = Hub(
        text(options["hub"], "hub"),
        None if config is None else text(config, "hub_config"),
        {text(split, "hub_splits"): text(name, f"hub_splits.{split}") for split, name in splits.items()},
    )
    return replace(task, hub=hub)


def _with_marks(task: FileTask, options: Mapping[str, Any]) -> FileTask:
    """Where the words come from that decide the label."""
    if options.get("marks") is None:
        return task
    value = mapping(options["marks"], "marks")
    for option in value:
        one_of(option, (*SOURCES, *MARK_OPTIONS), "marks")
    sources = [source for source in SOURCES if source in value]
    if len(sources) != 1:
        got = f"both {' and '.join(sources)}" if sources else f"only {list(value)!r}"
        raise InputError(f"marks: expected one source, got {got}; {'keep one of them' if sources else 'add a source'}.")
    (source,) = sources
    for option in value:
        if option != source and source not in MARK_OPTIONS[option]:
            raise InputError(
                f"marks.{option} is an option of {', '.join(MARK_OPTIONS[option])}, not of {source}: leave it out."
            )
    if source in EXPORTS and "texts" not in options:
        task = _with_export_columns(task, source)
    sentence = None if "text" not in value else _sentence(task, text(value["text"], "marks.text"))
    if sentence is None and task.sentences == 1:
        sentence = 0
    if sentence is None and source in ("column", "tokens", "evidence", "edit_of"):
        raise InputError(
            f"marks.{source}: task {task.name!r} has two texts, and marks.text does not say which one the marks are "
            "in; set it to the column of that text."
        )
    return replace(task, marks=_marks(task, source, value, sentence))


def _marks(task: FileTask, source: str, value: Mapping[str, Any], sentence: int | None) -> Marks:
    """The source with its options."""
    for option in (source if source == "stars" or source in EXPORTS else "", "widen"):
        if option in value and not isinstance(value[option], bool):
            raise InputError(f"marks.{option}: expected true or false, got {value[option]!r}; write one of them.")
    if value[source] is False:
        raise InputError(f"marks.{source} is false, and there is no other source: set it to true, or leave marks out.")
    threshold = value.get("threshold")
    if isinstance(threshold, bool) or not isinstance(threshold, int | float | None):
        raise InputError(f"marks.threshold: expected a number from 0 to 1, got {threshold!r}; write one.")
    columns: tuple[str, ...] = ()
    if source in COLUMNS:
        columns = texts(value[source], f"marks.{source}")
        if len(columns) > 1 and source != "tokens":
            raise InputError(f"marks.{source}: expected one column, got {list(columns)!r}; name one.")
    return Marks(
        source,
        columns,
        text(value[source], f"marks.{source}") if source in FILES else "",
        tuple(each if isinstance(each, str) else each[-1] for each in task.layouts[0].texts),
        sentence,
        unit=one_of(value.get("unit", UNITS[0]), UNITS, "marks.unit"),
        agreement=one_of(value.get("agreement", "majority"), AGREEMENTS, "marks.agreement"),
        widen=value.get("widen", True),
        names=texts(value["names"], "marks.names") if "names" in value else (),
        threshold=threshold,
    )


def _sentence(task: FileTask, name: str) -> int:
    """Which text of an example a column is, or is a part of."""
    for layout in task.layouts:
        for number, each in enumerate(layout.texts):
            if name in ((each,) if isinstance(each, str) else each):
                return number
    return layout.texts.index(one_of(name, task.layouts[0].text_columns, "marks.text"))


def _with_export_columns(task: FileTask, source: str) -> FileTask:
    """The columns that the export of a tool has, before those of the task, which other files may have."""
    columns = {1: ("text",), 2: ("query", "text")} if source == "eraser" else {1: ("text",)}
    if task.sentences not in columns:
        return task
    layout = replace(task.layouts[0], texts=columns[task.sentences], columns=None)
    return replace(task, layouts=(layout, *task.layouts))
