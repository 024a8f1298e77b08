"""A recipe: everything that decides a run, checked key by key."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from headwise.data import Task, build_task
from headwise.documents import sentence
from headwise.errors import InputError
from headwise.guides import build
from headwise.limits import MAX_DEPTH, deeper_than
from headwise.patterns import Pattern, refuse_named_code
from headwise.retrieval.retrieval_task import RetrievalTask
from headwise.ssa import SSA, build_ssa

Schedule = Literal["linear", "cosine", "constant", "constant_with_warmup", "polynomial", "inverse_sqrt"]


class Strict(BaseModel):
    """Unknown keys are errors, true is no number, and values do not change afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def or_defaults(value: Any) -> Any:
    """A part whose keys are all commented out is as it comes."""
    return {} if value is None else value


class TaskChoice(Strict):
    """Which task, with the user's own options for it (files, columns, labels; see `headwise list tasks`)."""

    name: str
    options: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: Any) -> Any:
        """`task: sick` and `task: {name: pairs, texts: [...]}` are how people write it."""
        if isinstance(value, str):
            return {"name": value}
        if isinstance(value, dict) and "options" not in value:
            rest = {key: each for key, each in value.items() if key != "name"}
            return ({"name": value["name"]} if "name" in value else {}) | {"options": rest}
        return value


class Data(Strict):
    """How text becomes batches."""

    max_length: int = Field(128, ge=4)
    padding: Literal["dynamic", "fixed"] = "dynamic"
    buckets: bool = True
    """Examples of similar length share a batch."""
    fraction: float = Field(1.0, gt=0, le=1)
    """Part of the training set that is used (Figure 6): a seeded choice, and a larger part contains a smaller one."""
    limit: dict[Literal["train", "validation", "test"], Annotated[int, Field(ge=1)]] = {}
    """At most so many examples of a split: a seeded choice for train, the first ones otherwise."""
    validation_fraction: float | None = Field(None, gt=0, lt=1)
    """Part of the training set to hold out if there is no validation set."""
    test_fraction: float | None = Field(None, gt=0, lt=1)
    """Part of the training set to hold out if there is no test set."""


class Training(Strict):
    """How to train."""

    epochs: float | None = Field(3.0, gt=0)
    steps: int | None = Field(None, ge=1)
    """Optimiser steps; if given, `epochs` has no say."""
    batch: int = Field(16, ge=1)
    accumulation: int = Field(1, ge=1)
    evaluation_batch: int = Field(64, ge=1)
    learning_rate: float = Field(5e-5, gt=0, lt=1)
    schedule: Schedule = "linear"
    warmup: float = Field(0.1, ge=0)
    """Part of all steps if below 1, else steps."""
    weight_decay: float = Field(0.01, ge=0)
    clip: float = Field(1.0, ge=0)
    """Largest gradient norm; 0 for none."""
    precision: Literal["fp32", "bf16"] = "fp32"
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    early_stopping: int | None = Field(None, ge=1)
    """Evaluations without a better one after which training stops."""
    evaluate_every: int | None = Field(None, ge=1)
    """Optimiser steps between evaluations; once per epoch if not given."""
    checkpoint_every: int = Field(200, ge=1)
    log_every: int = Field(20, ge=1)
    freeze: Annotated[tuple[str | int, ...], Field(strict=False)] = ()
    """embeddings, encoder, or numbers of layers."""
    snapshots: int = Field(0, ge=0)
    """Validation examples on which the heads are looked at before training and at each evaluation; 0 for none."""

    @model_serializer(mode="wrap")
    def _without_nothing(self, as_usual: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Snapshots change no result: a recipe without them is the recipe that it was before there were any."""
        data: dict[str, Any] = as_usual(self)
        if not self.snapshots:
            del data["snapshots"]
        return data


def _plain_guides(value: Any) -> Any:
    """`guides: [mdg, pdg]` and `guides: {mdg: }` mean the guides as they come."""
    if value is None:
        return {}
    if isinstance(value, str):
        value = [value]
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return {name: {} for name in value}
    if isinstance(value, dict):
        return {name: _plain_options(options) for name, options in value.items()}
    return value


def _plain_options(options: Any) -> Any:
    """JSON writes the layers of `heads: {0: [1, 2]}` as text: they are numbers again."""
    heads = options.get("heads") if isinstance(options, dict) else None
    if not isinstance(heads, dict):
        return {} if options is None else options
    layers = {int(layer) if str(layer).removeprefix("-").isdecimal() else layer: each for layer, each in heads.items()}
    return {**options, "heads": layers}


def options_or_none(example: str) -> BeforeValidator:
    """Options by name, such as the example, or nothing at all."""

    def check(value: Any) -> Any:
        if value is not None and not isinstance(value, dict):
            raise ValueError(f"options with values, such as {example}, or {{}} for all as they come")
        return value

    return BeforeValidator(check)


class Recipe(Strict):
    """A whole run. Guides are by name with their options, as in `hw.guide`."""

    name: str = Field("run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    description: str = ""
    task: TaskChoice
    model: str = "builtin:minilm-l6"
    head: Literal["pooler", "relu"] = "pooler"
    guides: Annotated[dict[str, dict[str, Any]], BeforeValidator(_plain_guides)] = {}
    ssa: Annotated[dict[str, Any] | None, options_or_none("{model: hybrid}")] = None
    """Self-supervised attention, by the options of `hw.SSA`; none if not given, the defaults if empty ({})."""
    share_every: int = Field(50, ge=0)
    """Optimiser steps between two measurements of the guides' gradient shares; 0 for never."""
    data: Annotated[Data, BeforeValidator(or_defaults)] = Field(default_factory=Data)
    training: Annotated[Training, BeforeValidator(or_defaults)] = Field(default_factory=Training)
    seed: int = Field(1, ge=0, lt=2**32)
    report_to: Annotated[tuple[str, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _some_length(self) -> Recipe:
        if self.training.epochs is None and self.training.steps is None:
            raise ValueError("training needs epochs or steps")
        return self

    def as_data(self) -> dict[str, Any]:
        """Plain data, as a file would have it."""
        data = self.model_dump(mode="json")
        data["task"] = {"name": self.task.name, **data["task"]["options"]}
        if self.ssa is None:
            del data["ssa"]
        return data

    @property
    def supervision(self) -> SSA | None:
        """The options of SSA; None without it, or if they say so (only_bert)."""
        options = None if self.ssa is None else build_ssa(self.ssa)
        return None if options is None or options.only_bert else options


def check_depth(data: Any, place: str) -> None:
    """Refuse data from Python that is nested so deep, or contains itself, that nothing could write it down."""
    if deeper_than(MAX_DEPTH, data):
        raise InputError(f"{place}: the recipe is nested deeper than {MAX_DEPTH} levels: write it with fewer.")


def check_recipe(data: Any, place: str) -> Recipe:
    """A recipe from plain data; what is wrong is said in one sentence with the place of it.

    One that names Python code needs permission (see `code_permission`).
    """
    if not isinstance(data, dict):
        raise InputError(f"{place}: a recipe is a list of keys and values, such as `task: sick`; got {data!r:.60}.")
    check_depth(data, place)
    try:
        recipe = Recipe.model_validate(data)
    except ValidationError as error:
        raise InputError(f"{place}: {sentence(error, Recipe)}") from error
    try:  # tasks and guides know their own options
        task = build_task(recipe.task.name, recipe.task.options)
        _check_ranking(recipe, task)
        _check_labels(recipe.supervision, task)
        for name, options in recipe.guides.items():
            pattern = getattr(build(name, **options), "pattern", None)
            if isinstance(pattern, Pattern):
                refuse_named_code(pattern, f"guides.{name}.pattern")
    except InputError as error:
        raise InputError(f"{place}: {error}") from error
    return recipe


def _check_ranking(recipe: Recipe, task: Task) -> None:
    """Refuse what makes no sense for one logit and for candidates."""
    if task.kind == "ranking" and recipe.training.label_smoothing:
        raise InputError("training.label_smoothing is for classes, not for rankings: leave it out.")
    if isinstance(task, RetrievalTask) and recipe.data.test_fraction is not None:
        raise InputError("test claims of a re-ranker are a split of the collection: set task.splits.test instead.")
    if isinstance(task, RetrievalTask) and "test" in recipe.data.limit and "test" not in task.splits_of:
        raise InputError("data.limit.test has nothing to limit: name the test claims with task.splits.test.")


def _check_labels(options: SSA | None, task: Task) -> None:
    """Refuse token labels where nobody can say whether one pair alone was answered rightly."""
    if options is not None and options.learns_labels and isinstance(task, RetrievalTask) and task.loss == "list":
        raise InputError(
            "ssa asks whether the model is right about each pair, and with task.loss: list only the order of a claim's "
            "candidates counts: use loss: pairs."
        )
