"""Options with wrong values, unknown and missing options, and options that do not go together."""

from __future__ import annotations

from pathlib import Path

from campaign.options import Option, commands
from campaign.orders import BAD, OPEN, Case, Draw

# Options whose text may be anything.
FREE = {"title", "text", "pair", "study", "claim", "description"}
JUNK = ("qqq", "-", "\\", "*", "none\nsuch", "a" * 300, "ünïcode", "\udcff", "{", "[1,", "a=b=c", "0x10", "\x1b[31mred")
NO_NUMBERS = ("abc", "", "1,5", "0x1f", "1_000x", "--", "١x", "1 2", "True")
WRONG_FLOATS = ("nan", "inf", "-inf", "-1", "-1e308")
# Options that would let a command run for minutes if the value were large.
LONG = {"epochs", "workers", "threads", "port", "examples", "resamples", "rounds", "random"}


def wrong_value(draw: Draw) -> Case | None:
    """A value of the wrong type or out of range."""
    options = [each for each in commands()[draw.order.command] if each.kind is not bool and each.flags]
    if not options:
        return None
    option = draw.chance.choice(options)
    value, verdict = _value(draw, option)
    _give(draw, option, value)
    if draw.order.dry and option.name in ("address", "storage"):
        verdict = OPEN
    return draw.case(f"{option.flags[0]} {value!r:.40}", verdict)


def unknown_option(draw: Draw) -> Case:
    """An option that no command has, or one that lacks its value."""
    kind = draw.chance.randrange(4)
    if kind == 0:
        draw.words.insert(draw.chance.randint(1, len(draw.words)), "--no-such-option")
        return draw.case("an unknown option", BAD if "--" not in draw.words else OPEN)
    options = [each for each in commands()[draw.order.command] if each.flags and each.kind is not bool]
    if kind == 1 and options:
        draw.words.append(draw.chance.choice(options).flags[0])
        return draw.case(f"{draw.words[-1]} without a value", BAD)
    if kind == 2 and options:
        flag = draw.chance.choice(options).flags[0]
        draw.words += [f"{flag[:-1]}{'x' if flag[-1] != 'x' else 'y'}", "1"]
        return draw.case(f"the typo {draw.words[-2]}", BAD)
    many = any(each.many and not each.flags for each in commands()[draw.order.command])
    draw.words.append("one-word-too-many")
    return draw.case("one argument too many", OPEN if many else BAD)


def missing_word(draw: Draw) -> Case:
    """The command without one of its words, or two of them swapped."""
    first = len(draw.order.command)
    if len(draw.words) <= first:
        draw.words = draw.words[:1]
        return draw.case("no more than its first word", OPEN)
    place = draw.chance.randrange(first, len(draw.words))
    if draw.chance.random() < 0.5:
        gone = draw.words.pop(place)
        return draw.case(f"without {gone!r}", OPEN)
    other = draw.chance.randrange(first, len(draw.words))
    draw.words[place], draw.words[other] = draw.words[other], draw.words[place]
    return draw.case(f"{draw.words[place]!r} and {draw.words[other]!r} swapped", OPEN)


def combination(draw: Draw) -> Case | None:
    """Several more options at once, each with a value that could be right."""
    options = [each for each in commands()[draw.order.command] if each.flags and each.name not in LONG]
    options = [each for each in options if each.name not in ("download", "open", "browser", "debug")]
    if len(options) < 2:
        return None
    chosen = draw.chance.sample(options, draw.chance.randint(2, min(4, len(options))))
    for option in chosen:
        if option.kind is bool:
            draw.words.append(option.flags[0])
        else:
            _give(draw, option, _plausible(draw, option))
    return draw.case(f"with {' '.join(option.flags[0] for option in chosen)}", OPEN)


def _give(draw: Draw, option: Option, value: str) -> None:
    """Put a value in the place of the one that is there, or add it."""
    for flag in option.flags:
        if flag in draw.words and not option.many:
            draw.words[draw.words.index(flag) + 1] = value
            return
    draw.words += [option.flags[0], value]


def _value(draw: Draw, option: Option) -> tuple[str, str]:
    chance = draw.chance
    if option.kind in (int, float):
        return _number(draw, option)
    if option.kind is Path:
        return chance.choice(("", "no/such/place", "a" * 300, "\udcff", "~nobody-at-all/x", "x\ny")), OPEN
    value = chance.choice((*JUNK, ""))
    return value, OPEN if option.name in FREE or value in ("", "*") else BAD


def _number(draw: Draw, option: Option) -> tuple[str, str]:
    kind = draw.chance.randrange(5)
    if kind == 0:
        return draw.chance.choice(NO_NUMBERS), BAD
    if kind == 1:
        least = 0 if option.least is None else option.least
        return f"{least - draw.chance.choice((1, 2, 10**6)):.0f}", BAD
    if kind == 2 and option.most is not None:
        return str(option.most + draw.chance.choice((1, 1000))), BAD
    if kind == 3 and option.kind is float:
        return draw.chance.choice(WRONG_FLOATS), BAD
    if kind == 4 and option.name not in LONG:
        return draw.chance.choice(("0", "999999999", str(10**30), "1e3")), OPEN
    return draw.chance.choice(("1.5x", "nan" if option.kind is int else "x")), BAD


def _plausible(draw: Draw, option: Option) -> str:
    chance = draw.chance
    if option.kind in (int, float):
        return str(chance.choice((0, 1, 2, 3)))
    if option.kind is Path:
        here = sorted(path.name for path in draw.box.iterdir())
        return chance.choice((*here, "new", "new.json", "new.html"))
    words = {
        "split": ("test", "validation", "train", "all"),
        "task": ("agree", "type", "pairs"),
        "form": ("csv", "latex", "json"),
        "sampler": ("tpe", "random"),
        "change": ("training.max_steps=1", "seed=3", "guides=", "training=3"),
        "vary": ("seed=[1, 2]", "training.per_device_train_batch_size={low: 2, high: 4}"),
        "only": ("system=plain", "layer=0"),
        "precision": ("bf16", "fp32"),
        "layout": ("beir", "scifact", "cross-genre"),
    }
    return chance.choice(words.get(option.name, ("none", "1", "a,b", "plain")))
