"""Recipes and sweeps with wrong keys, types and values, in the file or by --set."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import yaml

from campaign.options import commands
from campaign.orders import BAD, OPEN, Case, Draw

Path = tuple[str | int, ...]

# Keys under which the user's own names stand.
OWN_NAMES = {"tasks", "grid", "system", "layer"}
# Keys that take values of several types.
ANY_TYPE = {"task", "guides", "weight", "by", "seeds", "within", "layers", "heads", "report_to", "pattern", "freeze"}
# Texts that may be any text.
ANY_TEXT = {"description", "name"}
# Values so large that a run would take days are not wrong.
ENDLESS = {"num_train_epochs", "max_steps", "gradient_accumulation_steps"}
WRONG: dict[type, tuple[Any, ...]] = {
    bool: ("maybe", 3, [True], {"a": 1}),
    int: ("many", [1], {"a": 1}, 1.5, True),
    float: ("much", [0.1], {"a": 0.1}, True),
    str: (3, 2.5, ["a"], {"a": "b"}, True),
    list: ("a", 3, {"a": 1}),
    dict: ("a", 3, [1, 2]),
}


def places(data: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every part of nested data, with the way to it."""
    yield path, data
    parts = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, each in parts:
        yield from places(each, (*path, key))


def part(data: Any, path: Path) -> Any:
    """What lies at the end of the way."""
    for key in path:
        data = data[key]
    return data


def put(data: Any, path: Path, value: Any) -> None:
    """Replace what lies at the end of the way."""
    part(data, path[:-1])[path[-1]] = value


def wrong_recipe(draw: Draw) -> Case | None:
    """One mistake in a recipe or a sweep."""
    if draw.order.recipe is None:
        return None
    file = draw.box / draw.order.recipe
    data = yaml.safe_load(file.read_text(encoding="utf-8"))
    mistake = draw.chance.choice((typo, extra_key, wrong_type, wrong_type, wrong_number, missing_key))
    made = mistake(data, draw.chance)
    if made is None:
        return None
    what, verdict = made
    file.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return draw.case(f"{file.name}: {what}", verdict)


def typo(data: Any, chance: random.Random) -> tuple[str, str] | None:
    """A key with a letter too many."""
    keys = [path for path, _ in places(data) if path and isinstance(path[-1], str)]
    path = chance.choice(keys)
    parent, key = part(data, path[:-1]), str(path[-1])
    wrong = chance.choice((f"{key}s", key[:-1], key.upper(), f" {key}", f"{key}\n"))
    content = {wrong if name == key else name: value for name, value in parent.items()}
    parent.clear()
    parent.update(content)
    own = len(path) > 1 and path[-2] in OWN_NAMES
    return f"{'.'.join(map(str, path))} as {wrong!r}", OPEN if own else BAD


def extra_key(data: Any, chance: random.Random) -> tuple[str, str] | None:
    """A key that nothing has."""
    path, parent = chance.choice([(path, each) for path, each in places(data) if isinstance(each, dict)])
    key = chance.choice(("no_such_key", 3, None, 2.5, "a.b", "é"))
    parent[key] = chance.choice((1, "x", [1], {"y": 2}))
    return f"{key!r} in {'.'.join(map(str, path)) or 'the recipe'}", BAD


def wrong_type(data: Any, chance: random.Random) -> tuple[str, str] | None:
    """A value of another type."""
    path, value = chance.choice([(path, each) for path, each in places(data) if path and each is not None])
    wrong = chance.choice(WRONG[type(value)])
    put(data, path, wrong)
    lenient = path[-1] in ANY_TYPE | ANY_TEXT | OWN_NAMES or isinstance(path[-1], int) or path[-2:-1] == ("system",)
    whole = isinstance(value, float) and isinstance(wrong, int) and not isinstance(wrong, bool)
    return f"{'.'.join(map(str, path))}: {wrong!r}", OPEN if lenient or whole else BAD


def wrong_number(data: Any, chance: random.Random) -> tuple[str, str] | None:
    """A number out of range."""
    numbers = [
        (path, each)
        for path, each in places(data)
        if path and isinstance(each, int | float) and not isinstance(each, bool)
    ]
    if not numbers:
        return None
    path, _ = chance.choice(numbers)
    bad = chance.random() < 0.7
    value = chance.choice((-1, float("nan"), float("inf"), -float("inf")) if bad else (0, 10**9, 10**40, 1e-300))
    if path[-1] in ENDLESS and value > 0:
        value = -3
        bad = True
    put(data, path, value)
    return f"{'.'.join(map(str, path))}: {value!r}", BAD if bad else OPEN


def missing_key(data: Any, chance: random.Random) -> tuple[str, str] | None:
    """A key less."""
    path = chance.choice([path for path, _ in places(data) if path])
    del part(data, path[:-1])[path[-1]]
    return f"without {'.'.join(map(str, path))}", OPEN


CHANGES: tuple[tuple[str, str], ...] = (
    ("training.epoch=1", BAD),
    ("trainin.epochs=1", BAD),
    ("training.per_device_train_batch_size", BAD),
    ("=3", BAD),
    ("", BAD),
    ("training.per_device_train_batch_size=", OPEN),
    ("training.per_device_train_batch_size=many", BAD),
    ("training.per_device_train_batch_size=-1", BAD),
    ("training.per_device_train_batch_size=1.5", BAD),
    ("training.per_device_train_batch_size=[1]", BAD),
    ("training.per_device_train_batch_size={a: 1}", BAD),
    ("training.per_device_train_batch_size={", BAD),
    ("training.per_device_train_batch_size=!!python/object/apply:os.system [true]", BAD),
    ("training.per_device_train_batch_size=*a", BAD),
    ("training.per_device_train_batch_size.size=3", BAD),
    ("training..batch=3", BAD),
    (".training=3", BAD),
    ("training=3", BAD),
    ("task=no-such-task", BAD),
    ("task.name=3", BAD),
    ("model=/no/such/model", BAD),
    ("model=no-such/model", BAD),
    ("guides.mdgg.weight=1", BAD),
    ("guides.mdg.weight=-1", BAD),
    ("guides.mdg.weight=nan", BAD),
    ("guides.mdg.layers=[99]", BAD),
    ("seed=-1", BAD),
    ("seed=99999999999999999999", BAD),
    ("data.max_length=3", BAD),
    ("data.max_length=4000", BAD),
    ("data.fraction=0", BAD),
    ("data.fraction=2", BAD),
    ("training.learning_rate=.nan", BAD),
    ("training.learning_rate=1", BAD),
    ("training.lr_scheduler_type=none", BAD),
    ("training.bf16=fp8", BAD),
    ("head=none", BAD),
    ("name=../x", BAD),
    ("name=", BAD),
    ("report_to=[nobody]", BAD),
    ("ssa=3", BAD),
    ("ssa.no_such=1", BAD),
    ("training.freeze=[9]", BAD),
    ("data.limit.dev=3", BAD),
    ("é=1", BAD),
    ("training.per_device_train_batch_size=2\x00", BAD),
    ("name=" + "a" * 100_000, OPEN),
)


# Keys whose values only a loaded model can refuse.
MODEL_KEYS = ("model=", "training.freeze=", "guides.mdg.layers=", "data.max_length=")


def wrong_change(draw: Draw) -> Case | None:
    """One --set that is wrong, or two."""
    if not any("--set" in option.flags for option in commands()[draw.order.command]):
        return None
    chosen = [each for each in draw.chance.sample(CHANGES, draw.chance.randint(1, 2)) if "\0" not in each[0]]
    joint = "joint" in (draw.order.recipe or "")
    sweep = "sweep" in draw.order.name
    if not chosen:
        return None
    for change, _ in chosen:
        draw.words += ["--set", change]
    # A plan, and knowledge about words, need no model.
    modelless = draw.order.dry or draw.order.command[0] == "knowledge"
    bad = not joint and not sweep
    bad = bad and any(
        verdict == BAD and not (modelless and change.startswith(MODEL_KEYS)) for change, verdict in chosen
    )
    return draw.case(f"--set {' --set '.join(change[:60] for change, _ in chosen)}", BAD if bad else OPEN)
