"""A recipe for several tasks that share one encoder."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from headwise.data import build_task
from headwise.documents import sentence
from headwise.errors import InputError, choices
from headwise.experiments.recipe import (
    Data,
    Recipe,
    Strict,
    TaskChoice,
    Training,
    check_depth,
    check_recipe,
    options_or_none,
    or_defaults,
)
from headwise.heads.iat import IAT, build_iat

# What tasks of one batch size and one model have in common.
SHARED = ("max_length", "padding", "buckets")
# What only a recipe for one task has.
SINGLE = ("guides", "ssa", "head", "share_every")


class JointTask(Strict):
    """One of the tasks: which, the user's options for it, and what differs from the recipe's `data`."""

    name: str | None = None
    """In the table of tasks; if not given, the task's key."""
    options: dict[str, Any] = {}
    data: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: Any) -> Any:
        """`rte: ` and `rte: {files: ..., data: {...}}` are how people write it."""
        if value is None:
            return {}
        if isinstance(value, dict) and "options" not in value:
            own = {key: value[key] for key in ("name", "data") if value.get(key) is not None}
            return own | {"options": {key: each for key, each in value.items() if key not in ("name", "data")}}
        return value

    def over(self, common: Data) -> Data:
        """The recipe's `data` with what this task has of its own; of `limit`, split by split."""
        given, own = common.model_dump(), dict(self.data)
        if isinstance(own.get("limit"), dict):
            own["limit"] = given["limit"] | own["limit"]
        return Data(**(given | own))


def _by_name(value: Any) -> Any:
    """`tasks: [sst2, rte]` means the tasks as they come."""
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        twice = sorted({name for name in value if value.count(name) > 1})
        if twice:
            raise ValueError(f"each task once, but {twice[0]} stands there twice; give tasks names of their own")
        return {name: None for name in value}
    return value


class JointRecipe(Strict):
    """A whole run on several tasks."""

    name: str = Field("run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    description: str = ""
    tasks: Annotated[dict[str, JointTask], BeforeValidator(_by_name)] = Field(min_length=1)
    sampling: Literal["proportional", "square_root", "annealed"] = "proportional"
    """Whose turn it is: by the tasks' sizes, by their square roots, or annealed from the one to nearly even."""
    model: str = "builtin:minilm-l6"
    start_from: str | None = None
    """A run on several tasks whose encoder, and heads of the same names, this one starts from."""
    linear: bool = False
    """Train nothing: fit each task's classifier by least squares on the vectors of the encoder."""
    iat: Annotated[dict[str, Any] | None, options_or_none("{start: 0.9}")] = None
    """Important attention-head training, by the options of `hw.IAT`; none if not given, the defaults if empty ({})."""
    data: Annotated[Data, BeforeValidator(or_defaults)] = Field(default_factory=Data)
    training: Annotated[Training, BeforeValidator(or_defaults)] = Field(default_factory=Training)
    seed: int = Field(1, ge=0, lt=2**32)
    report_to: Annotated[tuple[str, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _some_length(self) -> JointRecipe:
        if self.training.epochs is None and self.training.steps is None:
            raise ValueError("training needs epochs or steps")
        return self

    @property
    def important(self) -> IAT | None:
        """The options of IAT; None without it."""
        return None if self.iat is None else build_iat(self.iat)

    def single(self, task: str) -> Recipe:
        """The recipe that one of the tasks would have by itself."""
        part = self.tasks[task]
        return Recipe(
            name=f"{self.name}-{task}",
            description=self.description,
            task=TaskChoice(name=part.name or task, options=part.options),
            model=self.model,
            data=part.over(self.data),
            training=self.training,
            seed=self.seed,
            report_to=self.report_to,
        )

    def without_iat(self) -> JointRecipe:
        """The recipe of the control."""
        return self.model_copy(update={"iat": None})

    def as_data(self) -> dict[str, Any]:
        """Plain data, as a file would have it."""
        data = self.model_dump(mode="json")
        data["tasks"] = {key: _as_written(part) for key, part in data["tasks"].items()}
        for key in ("iat", "start_from"):
            if data[key] is None:
                del data[key]
        if not self.linear:
            del data["linear"]
        return data


def _as_written(part: dict[str, Any]) -> dict[str, Any]:
    named = {} if part["name"] is None else {"name": part["name"]}
    return {**named, **part["options"], **({"data": part["data"]} if part["data"] else {})}


def check_joint_recipe(data: Any, place: str) -> JointRecipe:
    """A recipe for several tasks from plain data; what is wrong is said in one sentence with the place of it."""
    for key in SINGLE:
        if key in data:
            raise InputError(f"{place}: {key} is for one task, and this recipe has `tasks`: leave {key} out.")
    check_depth(data, place)
    try:
        recipe = JointRecipe.model_validate(data)
    except ValidationError as error:
        raise InputError(f"{place}: {sentence(error, JointRecipe)}") from error
    try:
        for name, part in recipe.tasks.items():
            _check_task(recipe, name, part, place)
        _check_iat(recipe)
    except InputError as error:
        raise InputError(f"{place}: {error}" if not str(error).startswith(place) else str(error)) from error
    return recipe


def _check_task(recipe: JointRecipe, name: str, part: JointTask, place: str) -> None:
    if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
        raise InputError(f"tasks names {name!r}: expected letters, digits, hyphens and underscores; call it otherwise.")
    for key in part.data:
        if key in SHARED:
            raise InputError(f"tasks.{name}.data.{key} is the same for all tasks: set data.{key} instead.")
    try:
        data = part.over(recipe.data)
    except ValidationError as error:
        raise InputError(f"tasks.{name}.data: {sentence(error, Data)}") from error
    options = recipe.as_data()
    single = {key: options[key] for key in ("model", "training", "seed")}
    task = {"name": part.name or name, **part.options}
    check_recipe(single | {"task": task, "data": data.model_dump(mode="json")}, f"{place}: tasks.{name}")
    kind = build_task(part.name or name, part.options).kind
    if recipe.training.snapshots:
        raise InputError(f"training.snapshots is for runs on one task, and {name} is one of several: leave it out.")
    if kind == "ranking":
        raise InputError(f"tasks.{name} ranks candidates, which has a batch of its own kind: train it by itself.")
    if kind == "regression" and recipe.training.label_smoothing:
        raise InputError(f"training.label_smoothing is for classes, and tasks.{name} is a regression: leave it out.")


def _check_iat(recipe: JointRecipe) -> None:
    if recipe.important is not None and recipe.linear:
        raise InputError("linear trains nothing, so there is no iat: leave one of them out.")
    if recipe.important is not None and recipe.training.early_stopping is not None:
        raise InputError("iat starts at a given part of all steps: leave training.early_stopping out.")
    if recipe.important is not None and not recipe.important.shared and len(recipe.tasks) == 1:
        raise InputError(
            "iat.shared is false, which leaves out heads that are important to all tasks, and with one task those are "
            "all: set shared: true, or add a task."
        )


def check_any_recipe(data: Any, place: str) -> Recipe | JointRecipe:
    """A recipe of either kind from plain data."""
    if not isinstance(data, dict) or "tasks" not in data:
        return check_recipe(data, place)
    if "task" in data:
        raise InputError(f"{place}: the recipe has both task and tasks: take one of them away.")
    return check_joint_recipe(data, place)


def only_single(recipe: Recipe | JointRecipe, place: str) -> Recipe:
    """Refuse several tasks where there must be one."""
    if isinstance(recipe, Recipe):
        return recipe
    raise InputError(f"{place} is for several tasks ({', '.join(recipe.tasks)}): expected a recipe with `task:`.")


def chosen_task(recipe: JointRecipe, task: str | None) -> str:
    """The task that the user named; one sentence if none was, or another."""
    if task is None:
        raise InputError(
            f"this run has several tasks ({', '.join(recipe.tasks)}), and one is needed: name it with --task, where "
            "the command has that option."
        )
    if task not in recipe.tasks:
        raise InputError(f"--task {task}: {choices(task, recipe.tasks)}.")
    return task
