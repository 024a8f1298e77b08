"""Token labels of a training set, from the newest model: hide, predict again, compare.

Shapes: N examples, T tokens of all of them together.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

from headwise.errors import HeadwiseWarning, InputError, StateError
from headwise.ssa.config import SSA
from headwise.ssa.rules import Flags, Judge, Rule, Values, build_rule
from headwise.ssa.sampling import Drawer, Places, Probes, View, build_sampler
from headwise.ssa.token_labels import Examples, TextTokens, TokenLabels, assembled, read_examples, shuffled, summary

# One round of asking the model: originals once, then probes of those that are worth it.


Predict = Callable[[View], NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Answers:
    """What one process found out in a round: plain arrays, so that processes can send them to each other."""

    originals: int
    """How many examples were predicted for the first time."""
    right: int
    """How many of those were right."""
    hopeless: Places
    """Examples that are not worth a probe."""
    probes: Probes
    accepted: Flags
    """[P]"""
    flips: Flags
    """[P] where the answer changed."""
    values: Values
    """[P] the label of the hidden tokens."""


class Asker:
    """Asks the model about examples; remembers its answers to the originals."""

    def __init__(self, examples: Examples, judge: Judge, rule: Rule, drawer: Drawer, predict: Predict, mask_id: int):
        """For one call of the labeller, in which the model stays the same."""
        self._examples, self._judge, self._rule, self._drawer = examples, judge, rule, drawer
        self._predict, self._mask_id = predict, mask_id
        self._seen = numpy.zeros(len(examples), bool)
        self._originals: NDArray[Any] = numpy.zeros((len(examples), 0))  # [N,C] once C is known, filled where seen

    def ask(self, chosen: Places, turn: int, count: int) -> Answers:
        """Probe these examples, `count` times each, in pass number `turn`."""
        originals, right = self._predict_originals(chosen[~self._seen[chosen]])
        worth = self._worth(chosen)
        probes = self._drawer.draw(chosen[worth], turn, count)
        return self._judged(probes, originals, right, chosen[~worth])

    def _worth(self, chosen: Places) -> Flags:
        if not len(chosen):  # as may be in one of several processes
            return numpy.zeros(0, bool)
        return self._rule.worth(self._judge, self._originals[chosen], self._examples.gold[chosen])

    def _judged(self, probes: Probes, originals: int, right: int, hopeless: Places) -> Answers:
        if not len(probes):
            none = numpy.zeros(0, bool)
            return Answers(originals, right, hopeless, probes, none, none, numpy.zeros(0, numpy.float32))
        before, gold = self._originals[probes.examples], self._examples.gold[probes.examples]
        after = self._logits(probes)
        accepted, values = self._rule.judge_probes(self._judge, before, after, gold)
        self._drawer.forget(probes.examples[accepted])
        return Answers(originals, right, hopeless, probes, accepted, ~self._judge.same(before, after), values)

    def _predict_originals(self, fresh: Places) -> tuple[int, int]:
        """Predict examples as they are; how many, and how many of them are right."""
        if not len(fresh):
            return 0, 0
        logits = self._logits(Probes.nothing_hidden(fresh))
        if not self._seen.any():
            self._originals = numpy.zeros((len(self._examples), logits.shape[1]), logits.dtype)
        self._originals[fresh] = logits
        self._seen[fresh] = True
        return len(fresh), int(self._judge.right(logits, self._examples.gold[fresh]).sum())

    def _logits(self, probes: Probes) -> NDArray[Any]:
        logits = numpy.asarray(self._predict(View(self._examples, probes, self._mask_id)))
        if logits.ndim != 2 or len(logits) != len(probes):
            raise InputError(
                f"predict gave an array of shape {list(logits.shape)} for {len(probes)} examples: expected a row of "
                "logits for each, [examples, logits]."
            )
        if not numpy.isfinite(logits).all():  # NaN would become a label that says "ignored"
            raise StateError("the model's outputs are not finite: training has diverged; lower the learning rate.")
        return logits


# Which examples are asked about when, and what has come of it; the same in every process.


# The part of the examples asked about that yields labels is measured, and never taken for less than this: a model which
# is never right is found out soon.
LEAST = 0.05
# So much more than the yield says is asked for after the first round, since one round is cheaper than two.
MORE = 1.1
# Rounds after the first are of 1 / PARTS of all examples at least, which bounds their number, and fill a batch.
PARTS, BATCH = 32, 16


class Rounds:
    """The state of one call of the labeller."""

    def __init__(self, starts: Places, order: Places, need: int) -> None:
        """`starts` [N+1]: where examples begin; `order` [N]: who comes first; `need`: how many are to be labelled."""
        self._starts, self._order, self.need = starts, order, need
        self.places = numpy.empty_like(order)
        """[N] the place of each example in the order."""
        self.places[order] = numpy.arange(len(order))
        self.found = numpy.full(int(starts[-1]), numpy.nan, numpy.float32)
        """[T] labels of the tokens that accepted probes hid; NaN at others."""
        self.originals, self.right, self.probes, self.passes = 0, 0, 0, 0
        self._accepted = numpy.zeros(len(order), bool)
        self._hopeless = numpy.zeros(len(order), bool)
        self._taken, self._accepted_probes, self._flips, self._hidden = 0, 0, 0, 0

    @property
    def done(self) -> int:
        """How many examples are labelled."""
        return min(int(self._accepted.sum()), self.need)

    @property
    def kept(self) -> Flags:
        """[N] which examples are labelled: of those with an accepted probe the first in the order."""
        chosen = self._order[self._accepted[self._order]][: self.need]
        kept = numpy.zeros(len(self._order), bool)
        kept[chosen] = True
        return kept

    def plan(self, max_passes: int) -> Iterator[tuple[Places, int]]:
        """The examples of each round and the number of its pass; the results must be added before the next one."""
        for turn in range(max_passes):
            waiting = self._order[~(self._accepted | self._hopeless)[self._order]]
            if self.done == self.need or not len(waiting):
                return
            self.passes = turn + 1
            begin = 0
            while begin < len(waiting) and self.done < self.need:
                chosen = waiting[begin : begin + self._size()]
                begin += len(chosen)
                self._taken += len(chosen)
                yield chosen, turn

    def add(self, parts: Sequence[Answers]) -> None:
        """The results of a round, from all processes."""
        for part in parts:
            self.originals += part.originals
            self.right += part.right
            self.probes += len(part.probes)
            self._flips += int(part.flips.sum())
            self._accepted_probes += int(part.accepted.sum())
            self._hidden += len(part.probes.hidden)
            self._hopeless[part.hopeless] = True
            self._accepted[part.probes.examples[part.accepted]] = True
            self._write(part)

    def statistics(self) -> dict[str, float]:
        """Numbers about the rounds, for the log."""
        probes, count = max(self.probes, 1), len(self._order)
        return {
            "share": self.done / count,
            "examples": float(count),
            "needed": float(self.need),
            # Of those that were not worth a probe, one is counted as tried and rejected, as the authors would.
            "acceptance": self._accepted_probes / max(self.probes + int(self._hopeless.sum()), 1),
            "flips": self._flips / probes,
            "hidden": self._hidden / probes,
            "right": self.right / max(self.originals, 1),
            "probes": float(self.probes),
            "originals": float(self.originals),
            "passes": float(self.passes),
        }

    def _size(self) -> int:
        """How many examples the next round takes: first what would do if all were to yield, so that none is wasted."""
        if not self._taken:
            return self.need
        seen = max(int(self._accepted.sum()) / self._taken, LEAST)
        return max(math.ceil(MORE * (self.need - self.done) / seen), len(self._order) // PARTS, BATCH)

    def _write(self, part: Answers) -> None:
        """A token gets the smallest value of the accepted probes that hid it."""
        probes, counts = part.probes, numpy.diff(part.probes.starts)
        tokens = numpy.repeat(self._starts[probes.examples], counts) + probes.hidden
        # fmin passes over NaN: every token begins with it, and it is the value of a probe that was not accepted.
        numpy.fmin.at(self.found, tokens, numpy.repeat(part.values, counts))


Gather = Callable[[list[Answers]], list[Answers]]

# First words of the keys of generators. Without them the order of examples would be that of the batches, which have the
# key (seed, epoch) too, and numpy takes keys for equal that differ by zeros at the end.
ORDER, PROBE, SHUFFLE = 601, 602, 603


@dataclass(frozen=True)
class Labelling:
    """The labels of an epoch, and numbers about how they came about."""

    labels: TokenLabels
    statistics: dict[str, float]


class Labeller:
    """Labels the tokens of a training set anew for each epoch.

    An example is predicted as it is, then with some tokens hidden; what the label rule accepts becomes labels. Only as
    many examples are probed as the share needs, in an order that (seed, epoch) decides; those that yield nothing are
    tried again with other hidden sets, in at most `max_passes` passes. All work is O(N).

    Where we differ from the authors' released code: each example is in the epoch once, labelled or not (theirs draws
    labelled ones and originals apart, with doubles and gaps); empty hidden sets are no probes (theirs accepts them);
    passes are bounded (theirs may never end); a pass covers what is needed and predicts no original twice (theirs all
    examples, each time).
    """

    def __init__(self, data: Any, options: SSA, text: TextTokens, *, kind: str, seed: int) -> None:
        """Read the training set once.

        Args:
            data: has len(), and `data[i]` gives input_ids without padding, labels and what else the model needs;
                word_ids too for whole_words. It is never changed.
            options: what decides SSA.
            text: which tokens are text, and the mask token.
            kind: of the task: classification, regression or ranking.
            seed: of the order of examples and of the hidden sets.
        """
        self._examples = read_examples(data, text, whole_words=options.whole_words)
        self._judge = Judge.of(kind, self._examples.gold, options.regression_tolerance)
        self._rule = build_rule(options.label_rule)
        self._sampler = build_sampler(options)
        self._options, self._text, self._seed = options, text, seed

    def blank(self) -> TokenLabels:
        """The labels of an epoch without probes: of text tokens what the rule gives unprobed ones, else none."""
        examples = self._examples
        nothing, none = numpy.full(len(examples.ids), numpy.nan, numpy.float32), numpy.zeros(len(examples), bool)
        return assembled(nothing, none, examples.text, examples.starts, self._rule)

    def label(
        self,
        predict: Predict,
        *,
        epoch: int,
        share: float,
        after: Callable[[int], None] | None = None,
        split: tuple[int, int] = (0, 1),
        gather: Gather | None = None,
    ) -> Labelling:
        """Label floor(N share) examples, or as many as can be.

        Args:
            predict: [n,C] logits of a data set of n items (with `lengths`) by the newest model in evaluation mode.
            epoch: number of the epoch, from 0.
            share: part of the examples to label.
            after: told after each round how many examples are labelled.
            split: number of this process and how many there are; each asks about its part of the examples.
            gather: joins the lists of all processes, in their order; every process calls it equally often. The labels
                are the same for any number of processes.
        """
        began = time.perf_counter()
        _check(share, split, gather)
        rank, world = split
        rounds, asker = self._rounds(epoch, share), self._asker(predict, epoch)
        for chosen, turn in rounds.plan(self._options.max_passes):
            # By its place in the order an example stays with one process, which remembers its logits and hidden sets.
            mine = chosen[rounds.places[chosen] % world == rank]
            answers = [asker.ask(mine, turn, self._options.probes_per_example)]
            rounds.add(answers if gather is None else gather(answers))
            if after is not None:
                after(rounds.done)
        labels = self._labels(rounds, epoch)
        if rounds.need and not rounds.done and rank == 0:
            warnings.warn(_nothing(rounds, epoch), HeadwiseWarning, stacklevel=2)
        seconds = time.perf_counter() - began
        return Labelling(labels, {**rounds.statistics(), **summary(labels), "seconds": seconds})

    def _rounds(self, epoch: int, share: float) -> Rounds:
        count = len(self._examples)
        # The share may be a little less than meant: 0.29 of 100 is 28.999..., and options round it to nine digits.
        need = min(int(count * share + 1e-9 * (count + 1)), count)
        order = numpy.random.default_rng([ORDER, self._seed, epoch]).permutation(count)
        return Rounds(self._examples.starts, order, need)

    def _asker(self, predict: Predict, epoch: int) -> Asker:
        drawer = Drawer(self._examples, self._sampler, (PROBE, self._seed, epoch))
        return Asker(self._examples, self._judge, self._rule, drawer, predict, self._text.mask_id)

    def _labels(self, rounds: Rounds, epoch: int) -> TokenLabels:
        kept, text = rounds.kept, self._examples.text
        labels = assembled(rounds.found, kept, text, self._examples.starts, self._rule)
        if not self._options.shuffle_labels:
            return labels
        return shuffled(labels, kept, text, (SHUFFLE, self._seed, epoch))


def _check(share: float, split: tuple[int, int], gather: Gather | None) -> None:
    if not 0 <= share <= 1:
        raise InputError(f"share is {share}: expected a part of the examples, from 0 to 1.")
    rank, world = split
    if not 0 <= rank < world:
        raise InputError(f"split is {split}: expected (rank, world) with 0 <= rank < world.")
    if world > 1 and gather is None:
        raise InputError(f"split {split} divides the examples among {world} processes: give gather, which joins them.")


def _nothing(rounds: Rounds, epoch: int) -> str:
    if not rounds.right:
        fix = "train longer before labelling, or with a larger learning rate"
    elif not rounds.probes:
        fix = "the texts are too short to hide a part of them: set sampler: uniform and whole_words: false"
    else:
        fix = "raise max_passes, hide less (mask_fraction, aug_threshold) or choose another label_rule"
    passes = "1 pass" if rounds.passes == 1 else f"{rounds.passes} passes"
    return (
        f"SSA found no token labels for epoch {epoch} (from 0): {rounds.right} of {rounds.originals} predictions were "
        f"right, and none of {rounds.probes} probes was accepted in {passes}; {fix}."
    )
