"""A recipe: everything that decides a run on one task, or on several that share an encoder, checked key by key.

The `training` block has fields of `transformers.TrainingArguments` under their own names. This module loads no torch,
so that commands that only read files start fast; what a task, a guide or SSA accepts is checked by their own modules.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo, model_validator

from headwise.documents import sentence
from headwise.errors import HeadwiseWarning, InputError, StateError
from headwise.limits import MAX_DEPTH, deeper_than

if TYPE_CHECKING:
    from headwise.data import Task
    from headwise.heads import IAT
    from headwise.ssa import SSA

# Names that headwise 0.1 used in `training`, and what they are called now.
OLD_TRAINING_KEYS = {
    "epochs": "num_train_epochs",
    "steps": "max_steps",
    "batch": "per_device_train_batch_size",
    "evaluation_batch": "per_device_eval_batch_size",
    "accumulation": "gradient_accumulation_steps",
    "schedule": "lr_scheduler_type",
    "warmup": "warmup_steps",
    "warmup_ratio": "warmup_steps",
    "clip": "max_grad_norm",
    "precision": "bf16",
    "label_smoothing": "label_smoothing_factor",
    "early_stopping": "early_stopping_patience",
    "evaluate_every": "eval_steps",
    "checkpoint_every": "save_steps",
    "log_every": "logging_steps",
}
# Keys of a recipe for one task only, and for several only.
ONE_TASK_KEYS = ("head", "guides", "ssa", "share_every")
SEVERAL_TASKS_KEYS = ("sampling", "start_from", "linear", "iat")
# Keys of `data` that all tasks have in common.
SHARED_DATA_KEYS = ("max_length", "padding", "buckets")


class Strict(BaseModel):
    """Unknown keys are errors, true is not a number, and values do not change afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


# A block whose keys are all commented out has its default values.
OrDefaults = BeforeValidator(lambda value: {} if value is None else value)


class TaskChoice(Strict):
    """Which task, and the user's options for it (files, columns, labels; see `headwise list tasks`)."""

    name: str
    options: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: Any) -> Any:
        """People write `task: sick` and `task: {name: pairs, texts: [...]}`."""
        return {"name": value} if isinstance(value, str) else _with_options(value, "name")


class SharedTask(Strict):
    """One of several tasks: which, the user's options for it, and what differs from the recipe's `data`."""

    name: str | None = None
    """In the list of tasks; the task's key if not given."""
    options: dict[str, Any] = {}
    data: Annotated[dict[str, Any], OrDefaults] = {}

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: Any) -> Any:
        """People write `rte: ` and `rte: {files: ..., data: {...}}`."""
        return {} if value is None else _with_options(value, "name", "data")


def _with_options(value: Any, *own: str) -> Any:
    """A task whose options stand beside its own keys."""
    if not isinstance(value, dict) or "options" in value:
        return value
    options = {key: each for key, each in value.items() if key not in own}
    return {key: value[key] for key in own if key in value} | {"options": options}


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
    min_words: int | None = Field(None, ge=2)
    """Leave out training examples whose first text has fewer words, before anything is held out."""
    whole_texts: bool = False
    """Leave out training examples whose text is a part of another one, before anything is held out: SST-2 has phrases,
    and a phrase in train with its sentence in validation is a leak."""
    group_by: Literal["text1", "text2", "near_duplicates"] | None = None
    """Hold out whole groups: examples whose first (second) text is equal, or all of whose texts are nearly the same,
    are never in two of the parts of train."""
    stratify: bool = False
    """Hold out the same part of every class."""


def _named_weights(value: Any) -> Any:
    """Weights by class, whose names may be whole numbers."""
    if not isinstance(value, dict):
        return value
    for key in value:
        if isinstance(key, bool) or not isinstance(key, str | int):
            raise ValueError(f"expected classes as keys, got {key!r}: quote it")
    return {str(key): weight for key, weight in value.items()}


ClassWeights = Annotated[
    Literal["balanced"] | dict[str, Annotated[float, Field(gt=0)]], BeforeValidator(_named_weights)
]


class Training(Strict):
    """How to train: fields of `transformers.TrainingArguments`, and the last four, which are ours."""

    old_names: ClassVar[dict[str, str]] = OLD_TRAINING_KEYS

    num_train_epochs: float | None = Field(3.0, gt=0)
    max_steps: int | None = Field(None, ge=1)
    """Optimizer steps; if given, `num_train_epochs` is not used."""
    per_device_train_batch_size: int = Field(16, ge=1)
    per_device_eval_batch_size: int = Field(64, ge=1)
    gradient_accumulation_steps: int = Field(1, ge=1)
    learning_rate: float = Field(5e-5, gt=0, lt=1)
    lr_scheduler_type: Literal["linear", "cosine", "constant", "constant_with_warmup", "polynomial", "inverse_sqrt"] = (
        "linear"
    )
    warmup_steps: float = Field(0.1, ge=0)
    """Part of all steps if below 1, else steps."""
    weight_decay: float = Field(0.01, ge=0)
    max_grad_norm: float = Field(1.0, ge=0)
    """Largest gradient norm; 0 for none."""
    bf16: bool = False
    label_smoothing_factor: float = Field(0.0, ge=0, lt=1)
    class_weights: ClassWeights | None = None
    """How much the examples of a class count in the loss: balanced, or weights by class."""
    eval_steps: int | None = Field(None, ge=1)
    """Optimizer steps between evaluations; once per epoch if not given."""
    save_steps: int = Field(200, ge=1)
    """Optimizer steps between checkpoints."""
    logging_steps: int = Field(20, ge=1)
    early_stopping_patience: int | None = Field(None, ge=1)
    """Evaluations without a better one after which training stops."""
    head_learning_rate_multiplier: float = Field(10.0, gt=0)
    """Times `learning_rate` is the learning rate of the weights above the encoder, its pooler among them."""
    freeze: Annotated[tuple[str | int, ...], Field(strict=False)] = ()
    """embeddings, encoder, or numbers of layers."""
    snapshots: int = Field(0, ge=0)
    """Validation examples on which the heads are captured before training and at each evaluation; 0 for none."""

    @model_validator(mode="before")
    @classmethod
    def _old_names(cls, value: Any) -> Any:
        return new_training_names(value, warn=True) if isinstance(value, dict) else value


def new_training_names(training: Mapping[str, Any], *, warn: bool = False) -> dict[str, Any]:
    """A `training` block with the names of TrainingArguments instead of those of headwise 0.1.

    A block that sets a value under both names is refused: it is not clear which one is meant.
    """
    result: dict[str, Any] = {}
    renamed = []
    for key, value in training.items():
        name = OLD_TRAINING_KEYS.get(str(key), key)
        if name in result or (name != key and name in training):
            raise ValueError(f"training sets {name} twice, once as {key}: take one of them away")
        if name != key:
            renamed.append(f"{key} is {name}")
        result[name] = value == "bf16" if key == "precision" and value in ("fp32", "bf16") else value
    if result.get("max_steps") == -1:  # how TrainingArguments writes "by epochs"
        result["max_steps"] = None
    if renamed and warn:
        warnings.warn(
            f"training has names of an earlier version ({', '.join(renamed)}): use the new ones.",
            HeadwiseWarning,
            stacklevel=2,
        )
    return result


def _guides(value: Any) -> Any:
    """`guides: [mdg, pdg]` and `guides: {mdg: }` are guides with their defaults.

    JSON writes the layers of `heads: {0: [1, 2]}` as text: they become numbers again.
    """
    value = [value] if isinstance(value, str) else {} if value is None else value
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        value = dict.fromkeys(value)
    if not isinstance(value, dict):
        return value
    guides = {name: {} if options is None else options for name, options in value.items()}
    for name, options in guides.items():
        if isinstance(options, dict) and isinstance(options.get("heads"), dict):
            heads = options["heads"].items()
            layers = {int(key) if str(key).removeprefix("-").isdecimal() else key: each for key, each in heads}
            guides[name] = {**options, "heads": layers}
    return guides


def _tasks(value: Any) -> Any:
    """`tasks: [sst2, rte]` are tasks with their defaults."""
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        return value
    for name in sorted(value):
        if value.count(name) > 1:
            raise ValueError(f"each task once, but {name} is listed twice; give each task its own name")
    return dict.fromkeys(value)


def _head(value: Any) -> Any:
    """`pooler` is the name of headwise 0.1 for cls."""
    if value != "pooler":
        return value
    warnings.warn("head: pooler is the name of an earlier version: use head: cls.", HeadwiseWarning, stacklevel=2)
    return "cls"


def _options(value: Any, info: ValidationInfo) -> Any:
    if value is not None and not isinstance(value, dict):
        example = "{model: hybrid}" if info.field_name == "ssa" else "{start: 0.9}"
        raise ValueError(f"options with values, such as {example}, or {{}} for the defaults")
    return value


class Recipe(Strict):
    """A whole run: `task` for one task, or `tasks` for several that share an encoder."""

    name: str = Field("run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    description: str = ""
    task: TaskChoice | None = None
    tasks: Annotated[dict[str, SharedTask] | None, BeforeValidator(_tasks)] = Field(None, min_length=1)
    sampling: Literal["proportional", "square_root", "annealed"] = "proportional"
    """Which task comes next: by the tasks' sizes, by their square roots, or annealed from the first to nearly even."""
    model: str = "builtin:minilm-l6"
    start_from: str | None = None
    """A run on several tasks whose encoder, and heads of the same names, this one starts from."""
    linear: bool = False
    """Train nothing: fit each task's classifier by least squares on the vectors of the encoder."""
    iat: Annotated[dict[str, Any] | None, BeforeValidator(_options)] = None
    """Important attention-head training, by the options of `hw.IAT`; none if not given, the defaults if empty ({})."""
    head: Annotated[Literal["cls", "mean", "segments", "relu"], BeforeValidator(_head)] = "cls"
    """What the classifier reads: the first token's state, the mean of all tokens, [u; v; |u-v|; u*v] of the means of
    the two texts, or ReLU of the first token's state."""
    guides: Annotated[dict[str, dict[str, Any]], BeforeValidator(_guides)] = {}
    """By name with their options, as in `hw.guide`."""
    ssa: Annotated[dict[str, Any] | None, BeforeValidator(_options)] = None
    """Self-supervised attention, by the options of `hw.SSA`; none if not given, the defaults if empty ({})."""
    share_every: int = Field(50, ge=0)
    """Optimizer steps between two measurements of the guides' gradient shares; 0 for never."""
    data: Annotated[Data, OrDefaults] = Field(default_factory=Data)
    training: Annotated[Training, OrDefaults] = Field(default_factory=Training)
    seed: int = Field(1, ge=0, lt=2**32)
    baseline: bool = True
    """Before training, score the most frequent class and logistic regression on features of the untrained encoder."""
    report_to: Annotated[tuple[str, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _some_length(self) -> Recipe:
        if self.training.num_train_epochs is None and self.training.max_steps is None:
            raise ValueError("training needs num_train_epochs or max_steps")
        return self

    @property
    def several(self) -> bool:
        """Whether the recipe is written with `tasks`: the model is a `MultiTask`, be there one task or more."""
        return self.task is None

    @property
    def only(self) -> TaskChoice:
        """The task of a recipe with `task`."""
        if self.task is None:
            raise StateError(f"the recipe has several tasks ({', '.join(self.tasks or {})}): choose one of parts.")
        return self.task

    @property
    def parts(self) -> dict[str, Recipe]:
        """For each task, the recipe that it would have if it were trained alone."""
        return {name: self.single(name) for name in self.tasks or {}} if self.task is None else {self.task.name: self}

    def single(self, name: str) -> Recipe:
        """The recipe that one of several tasks would have if it were trained alone."""
        part = (self.tasks or {})[name]
        common, own = self.data.model_dump(), dict(part.data)
        if isinstance(own.get("limit"), dict):
            own["limit"] = common["limit"] | own["limit"]
        shared = {key: getattr(self, key) for key in ("description", "model", "training", "seed", "report_to")}
        task = TaskChoice(name=part.name or name, options=part.options)
        return Recipe(name=f"{self.name}-{name}", task=task, data=Data(**(common | own)), **shared)

    def build_task(self) -> Task:
        """The task of a recipe with `task`."""
        import headwise.retrieval  # noqa: F401 (adds its task)
        from headwise.data import build_task

        return build_task(self.only.name, self.only.options)

    @property
    def supervision(self) -> SSA | None:
        """The options of SSA; None without it, or if they say so (only_bert)."""
        if self.ssa is None:
            return None
        from headwise.ssa import build_ssa

        options = build_ssa(self.ssa)
        return None if options.only_bert else options

    @property
    def important(self) -> IAT | None:
        """The options of IAT; None without it."""
        if self.iat is None:
            return None
        from headwise.heads import build_iat

        return build_iat(self.iat)

    def as_data(self) -> dict[str, Any]:
        """Plain data, as a file would have it: without keys of the other kind of recipe, and without optional ones."""
        data = self.model_dump(mode="json")
        if not self.training.snapshots:  # they change no result
            del data["training"]["snapshots"]
        if self.training.class_weights is None:
            del data["training"]["class_weights"]
        # As before there were these keys: earlier runs are resumed and compared.
        for key in ("group_by", "min_words", "whole_texts", "stratify"):
            if data["data"][key] in (None, False):
                del data["data"][key]
        left_out = {key for key in ("iat", "start_from", "ssa", "linear") if data[key] in (None, False)}
        left_out |= {"baseline"} if self.baseline else set()
        if self.task is not None:
            data["task"] = {"name": self.task.name, **data["task"]["options"]}
            left_out |= {"tasks", *SEVERAL_TASKS_KEYS}
        else:
            for key, part in data["tasks"].items():
                name = {} if part["name"] is None else {"name": part["name"]}
                data["tasks"][key] = name | part["options"] | ({"data": part["data"]} if part["data"] else {})
            left_out |= {"task", *ONE_TASK_KEYS}
        return {key: value for key, value in data.items() if key not in left_out}


# -- checks ------------------------------------------------------------------------------------------------------------


def check_recipe(data: Any, where: str, *, several: bool | None = None) -> Recipe:
    """A recipe from plain data; what is wrong is one sentence that names the key.

    A recipe that names Python code needs permission (see `limits`).

    Args:
        data: keys and values.
        where: the file, for messages.
        several: whether it must have `tasks` (True) or `task` (False); None: either.
    """
    if not isinstance(data, dict):
        raise InputError(f"{where}: a recipe is a list of keys and values, such as `task: sick`; got {data!r:.60}.")
    if deeper_than(MAX_DEPTH, data):
        raise InputError(f"{where}: the recipe is nested deeper than {MAX_DEPTH} levels: write it with fewer.")
    if "task" in data and "tasks" in data:
        raise InputError(f"{where}: the recipe has both task and tasks: take one of them away.")
    kind, other, wrong_keys = "task", "several tasks", SEVERAL_TASKS_KEYS
    if "tasks" in data:
        kind, other, wrong_keys = "tasks", "one task", ONE_TASK_KEYS
    if several is not None and several != (kind == "tasks"):
        named = f"several tasks ({', '.join(data.get('tasks') or ())}): expected a recipe with `task:`"
        raise InputError(f"{where} is for {named if data.get('tasks') else 'one task: expected `tasks:`'}.")
    if kind not in data:
        raise InputError(f"{where}: key 'task' is missing: every recipe needs it, or `tasks`.")
    if data[kind] is None:
        raise InputError(f"{where}: {kind} is None: expected keys with values.")
    for key in wrong_keys:
        if key in data:
            raise InputError(f"{where}: {key} is for {other}, and this recipe has `{kind}`: leave {key} out.")
    try:
        recipe = Recipe.model_validate(data)
    except ValidationError as error:
        raise InputError(f"{where}: {sentence(error, Recipe)}") from error
    try:
        if recipe.several:
            _check_several(recipe)
        else:
            _check_one(recipe)
        grouped = [part.data for part in recipe.parts.values() if part.data.group_by is not None]
        if grouped and all(data.validation_fraction is None and data.test_fraction is None for data in grouped):
            raise InputError(
                f"data.group_by is {grouped[0].group_by}, and nothing is held out of train: set "
                "data.validation_fraction or data.test_fraction, or leave group_by out."
            )
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    return recipe


def _check_one(recipe: Recipe) -> None:
    """Tasks, guides and SSA know their own options; here, what does not go together."""
    from headwise.guides import build

    task, supervision = recipe.build_task(), recipe.supervision
    if task.kind == "ranking" and recipe.training.label_smoothing_factor:
        raise InputError("training.label_smoothing_factor is for classes, not for rankings: leave it out.")
    if task.kind == "ranking" and recipe.data.min_words is not None:
        raise InputError("data.min_words is not for re-rankers, whose first text is a claim: leave it out.")
    if recipe.data.whole_texts and (task.kind == "ranking" or task.sentences != 1):
        raise InputError(f"data.whole_texts is for tasks of single texts, and {task.name} has two: leave it out.")
    if task.kind == "ranking" and recipe.data.group_by is not None:
        raise InputError("data.group_by is not for re-rankers, which hold out whole claims anyway: leave it out.")
    if recipe.data.group_by == "text2" and task.sentences != 2:
        raise InputError(f"data.group_by is text2, and examples of task {task.name} have one text: use text1.")
    if task.kind == "ranking":
        from headwise.retrieval.retrieval_task import retrieval_task

        task = retrieval_task(recipe.only.options)
        if recipe.data.test_fraction is not None:
            raise InputError("test claims of a re-ranker are a split of the collection: set task.splits.test instead.")
        if "test" in recipe.data.limit and "test" not in task.splits_of:
            raise InputError("data.limit.test has nothing to limit: name the test claims with task.splits.test.")
        if supervision is not None and supervision.learns_labels and task.loss == "list":
            raise InputError(
                "ssa asks whether the model is right about each pair, and with task.loss: list only the order "
                "of a claim's candidates counts: use loss: pairs."
            )
        if supervision is not None and (task.residual or task.warm_up):
            raise InputError(
                "ssa learns from the model's own answers to the pairs of claims: leave task.residual and task.warm_up "
                "out."
            )
    if recipe.data.stratify and task.kind != "classification":
        raise InputError("data.stratify holds out the same part of every class: leave it out of other tasks.")
    if task.kind in ("multi_label", "token_labels"):
        _check_several_labels(recipe, task.kind)
    if recipe.training.class_weights is not None:
        _check_class_weights(recipe, task.kind)
    if recipe.head == "segments" and task.sentences != 2:
        raise InputError(
            f"head: segments compares the two texts of an example, and those of task {task.name} have one: use cls or "
            "mean."
        )
    for name, options in recipe.guides.items():
        pattern: Any = getattr(build(name, **options), "pattern", None)
        if hasattr(pattern, "named_code"):
            from headwise.patterns import refuse_named_code

            refuse_named_code(pattern, f"guides.{name}.pattern")
    if "consistency" in recipe.guides:
        others = {
            "a re-ranker": task.kind == "ranking",
            "training.label_smoothing_factor": bool(recipe.training.label_smoothing_factor),
            "ssa": supervision is not None,
        }
        for other, given in others.items():
            if given:
                raise InputError(
                    f"guides.consistency needs the loss of the classifier alone, and {other} computes another one: "
                    "leave one of them out."
                )


def _check_class_weights(recipe: Recipe, kind: str) -> None:
    """What has another loss than the cross-entropy of classes."""
    refused = {
        f"a {kind} task": kind not in ("classification", "token_labels"),
        "training.label_smoothing_factor": bool(recipe.training.label_smoothing_factor),
        "guides.consistency": "consistency" in recipe.guides,
        "linear": recipe.linear,
    }
    for name, given in refused.items():
        if given:
            raise InputError(
                f"training.class_weights is for the cross-entropy of classes, and {name} has another loss: leave one "
                "of them out."
            )


def _check_several_labels(recipe: Recipe, kind: str) -> None:
    """What needs one class, or one answer for each text."""
    refused = {
        "ssa": recipe.supervision is not None,
        "linear": recipe.linear,
        "training.label_smoothing_factor": bool(recipe.training.label_smoothing_factor),
        "guides.consistency": kind == "token_labels" and "consistency" in recipe.guides,
        f"head: {recipe.head}": kind == "token_labels" and recipe.head != "cls",
    }
    for name, given in refused.items():
        if given:
            what = "several classes for a text" if kind == "multi_label" else "a class for each word"
            raise InputError(f"{name} is for one answer to each text, and this task has {what}: leave it out.")


def _check_several(recipe: Recipe) -> None:
    for name, part in (recipe.tasks or {}).items():
        if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
            raise InputError(f"tasks names {name!r}: expected letters, digits, hyphens and underscores; rename it.")
        for key in part.data:
            if key in SHARED_DATA_KEYS:
                raise InputError(f"tasks.{name}.data.{key} is the same for all tasks: set data.{key} instead.")
        try:
            single = recipe.single(name)
        except ValidationError as error:
            raise InputError(f"tasks.{name}.data: {sentence(error, Data)}") from error
        try:
            _check_one(single)
        except InputError as error:
            raise InputError(f"tasks.{name}: {error}") from error
        kind = single.build_task().kind
        if recipe.training.class_weights is not None:
            raise InputError(
                f"training.class_weights is for runs on one task, and {name} is one of several: leave it out."
            )
        if recipe.training.snapshots:
            raise InputError(f"training.snapshots is for runs on one task, and {name} is one of several: leave it out.")
        if kind == "ranking":
            raise InputError(f"tasks.{name} ranks candidates, which needs batches of its kind: train it alone.")
        if kind == "token_labels":
            raise InputError(f"tasks.{name} labels words, which needs a model of its kind: train it alone.")
        if kind == "regression" and recipe.training.label_smoothing_factor:
            raise InputError(
                f"training.label_smoothing_factor is for classes, and tasks.{name} is a regression: leave it out."
            )
    important = recipe.important
    if important is None:
        return
    if recipe.linear:
        raise InputError("linear trains nothing, so there is no iat: leave one of them out.")
    if recipe.training.early_stopping_patience is not None:
        raise InputError("iat starts at a given part of all steps: leave training.early_stopping_patience out.")
    if not important.shared and len(recipe.tasks or {}) == 1:
        raise InputError(
            "iat.shared is false, which leaves out heads that are important to all tasks, and with one task those are "
            "all: set shared: true, or add a task."
        )
