"""Time and peak memory of training with each guide, beside plain training."""

import gc
import time
from collections.abc import Iterable
from dataclasses import asdict
from statistics import mean, median

import torch
from guide_variants import PLAIN, attached, batch_for, carried_megabytes, form_of, guide_of, variants
from measure import SEED, SHAPES, Batch, Plan, Point, Row, Step, code_version
from memory import memory_in_child, peak_of

from headwise.guides import Regulariser, guidance_of

GROUP = 5  # guided steps between two plain ones
Clock = tuple[float, float]  # seconds, and as a ratio to plain


class Course:
    """One model that trains with the guides in turns: so all meet the same weights, and memory holds one model."""

    def __init__(self, point: Point, names: Iterable[str]) -> None:
        """Make the batches, and take one step of each variant that is not measured, since the first is slower."""
        torch.set_num_threads(point.threads)
        self.point = point
        self.step = Step(point, PLAIN)
        self.turns = {name: self._turn(guide_of(name)) for name in (PLAIN, *names)}
        self.losses = {name: self._first_loss(name) for name in self.turns}

    def round(self, backwards: bool) -> dict[str, Clock]:
        """A step with each guide, compared with the plain steps before and behind the few that it stands among."""
        names = [name for name in self.turns if name != PLAIN][:: -1 if backwards else 1]
        before, clocks, plain = self._clock(PLAIN), {}, []
        for start in range(0, len(names), GROUP):
            taken = {name: self._clock(name) for name in names[start : start + GROUP]}
            behind = self._clock(PLAIN)
            base = (before + behind) / 2
            clocks |= {name: (seconds, seconds / base) for name, seconds in taken.items()}
            plain.append(base)
            before = behind
        return clocks | {PLAIN: (mean(plain), 1.0)}

    def _turn(self, guide: Regulariser | None) -> tuple[Regulariser | None, Batch]:
        return guide, batch_for(guide, self.point, SHAPES[self.point.shape].batch, self.point.length)

    def _clock(self, name: str) -> float:
        """Wall seconds of one step; attaching the guide and taking it off are not counted."""
        guide, batch = self.turns[name]
        with attached(self.step.model, guide):
            return self.step.clock(batch)[0]

    def _first_loss(self, name: str) -> float:
        """What the guide itself is at the beginning (without one: the loss), to see that it does something."""
        guide, batch = self.turns[name]
        torch.manual_seed(SEED)
        with attached(self.step.model, guide):
            loss = self.step.take(batch)
            found = guidance_of(self.step.model)
            part = None if found is None else found.losses.guides.get(guide.name)
            return round(loss if part is None else float(part.raw), 6)


def time_guides(point: Point, names: list[str], plan: Plan) -> list[Row]:
    """A row for each guide: the median over rounds of its ratio to plain."""
    course = Course(point, names)
    rounds: list[dict[str, Clock]] = []
    start = time.perf_counter()
    while plan.wants_another(len(rounds), time.perf_counter() - start):
        rounds.append(course.round(backwards=len(rounds) % 2 == 1))  # alternating cancels drift of the machine
    losses = course.losses
    del course
    gc.collect()  # models hold reference cycles
    plain = round(median(clocks[PLAIN][0] for clocks in rounds), 4)
    return [time_row(point, name, [clocks[name] for clocks in rounds], plain, losses[name]) for name in names]


def time_row(point: Point, name: str, clocks: list[Clock], plain: float, loss: float) -> Row:
    return {
        **heading("time", point, name),
        "first_loss": loss,
        "rounds": len(clocks),
        "seconds": round(median(seconds for seconds, _ in clocks), 4),
        "seconds_plain": plain,
        "ratio": round(median(ratio for _, ratio in clocks), 4),
        "round_ratios": [round(ratio, 4) for _, ratio in clocks],
        "code": code_version(),
    }


def heading(kind: str, point: Point, name: str) -> Row:
    return {"kind": kind, "guide": name, "form": form_of(variants()[name]), "point": asdict(point)}


def weigh_in_child(point: Point, name: str) -> Row:
    return memory_in_child(point, name, program="guides.py")


def memory_row(point: Point, name: str, plain: Row) -> Row:
    """A row for one guide, given what was weighed without any."""
    weighed = weigh_in_child(point, name)
    return {
        **heading("memory", point, name),
        "megabytes_above_baseline": weighed["above_baseline"],
        "megabytes_above_baseline_plain": plain["above_baseline"],
        "ratio": round(weighed["above_baseline"] / max(plain["above_baseline"], 0.1), 4),
        "source": weighed["source"],
        "code": weighed["code"],
    }


def weigh(point: Point, name: str) -> Row:
    """What the child does; knowledge that the batch must carry counts as memory of the guide."""
    torch.set_num_threads(point.threads)
    guide = guide_of(name)
    step = Step(point, PLAIN, keep_gradients=True)
    batch = batch_for(guide, point, SHAPES[point.shape].batch, point.length)
    with attached(step.model, guide):
        found = peak_of(step, batch_for(guide, point, 1, 8), batch)
    return found | {"above_baseline": round(found["above_baseline"] + carried_megabytes(batch), 1)}
