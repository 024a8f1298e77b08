"""Token labels of a training set, from the newest model: hide tokens, predict again, compare.

Shapes: N examples, T tokens of all examples together, P probes, C logits.
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
from headwise.ssa.dataset import ProbeDataset, Probes, TokenLabels, read_examples
from headwise.ssa.model import TextTokens
from headwise.ssa.rules import UNLABELLED, Flags, Scorer, Values, score_labels
from headwise.ssa.sampling import Indices, build_sampler

# First words of the keys of random generators. Without them the order of examples would be that of the batches, which
# have the key (seed, epoch) too, and numpy treats keys as equal that differ by zeros at the end.
ORDER, PROBE, SHUFFLE = 601, 602, 603

# The part of the probed examples that yields labels is measured, and never assumed to be less than this: a model which
# is never right ends soon.
LEAST_YIELD = 0.05
# After the first round this many times more examples are probed than the yield says: one round is cheaper than two.
SURPLUS = 1.1
# Rounds after the first are of 1 / PARTS of all examples at least, which bounds their number, and fill a batch.
PARTS, BATCH = 32, 16

Predict = Callable[[ProbeDataset], NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Predictions:
    """What one process learned in a round, as plain arrays that processes can send to each other."""

    originals: int
    """How many examples were predicted for the first time."""
    right: int
    """How many of those were right."""
    hopeless: Indices
    """Examples that are not worth a probe."""
    probes: Probes
    accepted: Flags
    """[P]"""
    changed: Flags
    """[P] where the prediction changed."""
    values: Values
    """[P] the label of the hidden tokens."""


Gather = Callable[[list[Predictions]], list[Predictions]]


@dataclass(frozen=True)
class Labelling:
    """The labels of an epoch, and statistics about them."""

    labels: TokenLabels
    statistics: dict[str, float]


class Labeller:
    """Labels the tokens of a training set again for each epoch.

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
            options: the choices of SSA.
            text: which tokens are text, and the mask token.
            kind: of the task: classification, regression or ranking.
            seed: of the order of examples and of the hidden sets.
        """
        self.examples = read_examples(data, text, whole_words=options.whole_words)
        self.scorer = Scorer.of(kind, self.examples.gold, options.regression_tolerance)
        self.sampler = build_sampler(options)
        self.options, self.text, self.seed = options, text, seed

    def blank(self) -> TokenLabels:
        """The labels of an epoch without probes: text tokens get the background label of the rule."""
        nothing = numpy.full(len(self.examples.ids), numpy.nan, numpy.float32)
        return self._labels(nothing, numpy.zeros(len(self.examples), bool))

    def label(
        self,
        predict: Predict,
        *,
        epoch: int,
        share: float,
        split: tuple[int, int] = (0, 1),
        gather: Gather | None = None,
    ) -> Labelling:
        """Label floor(N share) examples, or as many as possible.

        Args:
            predict: [n,C] logits of a data set of n items (with `lengths`) by the newest model in evaluation mode.
            epoch: number of the epoch, from 0.
            share: part of the examples to label.
            split: rank of this process and how many there are; each probes its part of the examples.
            gather: joins the lists of all processes, in their order; every process calls it equally often. The labels
                are the same for any number of processes.
        """
        began = time.perf_counter()
        rank, world = split
        if not 0 <= share <= 1:
            raise InputError(f"share is {share}: expected a part of the examples, from 0 to 1.")
        if not 0 <= rank < world:
            raise InputError(f"split is {split}: expected (rank, world) with 0 <= rank < world.")
        if world > 1 and gather is None:
            raise InputError(
                f"split {split} divides the examples among {world} processes: give gather, which joins them."
            )
        count = len(self.examples)
        # The share may be a little less than meant: 0.29 of 100 is 28.999..., and options round it to nine digits.
        need = min(int(count * share + 1e-9 * (count + 1)), count)
        order = numpy.random.default_rng([ORDER, self.seed, epoch]).permutation(count)
        schedule, prober = Schedule(self.examples.starts, order, need), Prober(self, predict, epoch)
        for examples, turn in schedule.rounds(self.options.max_passes):
            # By its rank in the order an example stays with one process, which keeps its logits and hidden sets.
            mine = [prober.probe(examples[schedule.ranks[examples] % world == rank], turn)]
            schedule.add(mine if gather is None else gather(mine))
        labelled = schedule.labelled
        labels = self._labels(schedule.values, labelled)
        if self.options.shuffle_labels:
            labels = labels.shuffled(labelled, self.examples.text, (SHUFFLE, self.seed, epoch))
        if need and not schedule.done and rank == 0:
            warnings.warn(_no_labels(schedule, epoch), HeadwiseWarning, stacklevel=2)
        seconds = time.perf_counter() - began
        return Labelling(labels, {**schedule.statistics(), **labels.statistics(), "seconds": seconds})

    def _labels(self, probed: Values, labelled: Flags) -> TokenLabels:
        # The authors' code gives 1 to tokens that were never tested; the other rules leave them out.
        background = 1.0 if self.options.label_rule == "reference" else UNLABELLED
        return TokenLabels.build(self.examples, probed, labelled, background)


class Prober:
    """Predicts examples with and without hidden tokens, in one call of the labeller, where the model stays the same.

    The logits of originals are kept. Hidden sets are drawn so that neither batches nor processes change them; none is
    tried twice for an example, and none is empty.
    """

    def __init__(self, labeller: Labeller, predict: Predict, epoch: int) -> None:
        """For the examples and options of a labeller."""
        self._labeller, self._predict, self._epoch = labeller, predict, epoch
        self._known = numpy.zeros(len(labeller.examples), bool)
        self._originals: NDArray[Any] = numpy.zeros((len(labeller.examples), 0))  # [N,C] once C is known
        self._tried: dict[int, set[bytes]] = {}

    def probe(self, examples: Indices, turn: int) -> Predictions:
        """Probe these examples in pass number `turn`."""
        scorer, rule, gold = self._labeller.scorer, self._labeller.options.label_rule, self._labeller.examples.gold
        new, right = examples[~self._known[examples]], 0
        if len(new):
            logits = self._logits(Probes.of(new))
            if not self._known.any():
                self._originals = numpy.zeros((len(self._known), logits.shape[1]), logits.dtype)
            self._originals[new], self._known[new] = logits, True
            right = int(scorer.right(logits, gold[new]).sum())
        # Worth a probe is what is predicted right. For `soft` all are: a wrong prediction can become more wrong.
        worth = numpy.ones(len(examples), bool)
        if rule != "soft" and len(examples):  # one of several processes may have none
            worth = scorer.right(self._originals[examples], gold[examples])
        probes = self._draw(examples[worth], turn)
        accepted, changed, values = numpy.zeros(0, bool), numpy.zeros(0, bool), numpy.zeros(0, numpy.float32)
        if len(probes):
            before, after = self._originals[probes.examples], self._logits(probes)
            accepted, values = score_labels(rule, scorer, before, after, gold[probes.examples])
            changed = ~scorer.same(before, after)
            for example in probes.examples[accepted].tolist():  # it will not be probed again
                self._tried.pop(example, None)
        return Predictions(len(new), right, examples[~worth], probes, accepted, changed, values)

    def _draw(self, worth: Indices, turn: int) -> Probes:
        """Up to `probes_per_example` hidden sets of each example."""
        labeller, examples = self._labeller, self._labeller.examples
        drawn: list[tuple[int, Indices]] = []
        for example in worth.tolist():
            segments, tried = examples.segments(example), self._tried.setdefault(example, set())
            words = None if examples.words is None else examples.words[examples.part(example)]
            for probe in range(labeller.options.probes_per_example):
                random = numpy.random.default_rng([PROBE, labeller.seed, self._epoch, example, turn, probe])
                hidden = labeller.sampler.hidden(segments, random, words)
                # An empty set hides nothing and would be accepted; the outcome of a set tried before is known.
                if len(hidden) and hidden.tobytes() not in tried:
                    tried.add(hidden.tobytes())
                    drawn.append((example, hidden))
        return Probes.of([example for example, _ in drawn], [hidden for _, hidden in drawn])

    def _logits(self, probes: Probes) -> NDArray[Any]:
        view = ProbeDataset(self._labeller.examples, probes, self._labeller.text.mask_id)
        logits = numpy.asarray(self._predict(view))
        if logits.ndim != 2 or len(logits) != len(probes):
            raise InputError(
                f"predict gave an array of shape {list(logits.shape)} for {len(probes)} examples: expected a row of "
                "logits for each, [examples, logits]."
            )
        if not numpy.isfinite(logits).all():  # NaN would become a label that says "none"
            raise StateError("the model's outputs are not finite: training has diverged; lower the learning rate.")
        return logits


class Schedule:
    """Which examples are probed when, and the results so far; the same in every process."""

    def __init__(self, starts: Indices, order: Indices, need: int) -> None:
        """`starts` [N+1]: where examples begin; `order` [N]: which come first; `need`: how many to label."""
        self._starts, self._order, self.need = starts, order, need
        self.ranks = numpy.empty_like(order)
        """[N] the rank of each example in the order."""
        self.ranks[order] = numpy.arange(len(order))
        self.values = numpy.full(int(starts[-1]), numpy.nan, numpy.float32)
        """[T] labels of the tokens that accepted probes hid; NaN at others."""
        self.originals, self.right, self.probes, self.passes = 0, 0, 0, 0
        self._accepted = numpy.zeros(len(order), bool)
        self._hopeless = numpy.zeros(len(order), bool)
        self._taken, self._accepted_probes, self._changed, self._hidden = 0, 0, 0, 0

    @property
    def done(self) -> int:
        """How many examples are labelled."""
        return min(int(self._accepted.sum()), self.need)

    @property
    def labelled(self) -> Flags:
        """[N] which examples are labelled: of those with an accepted probe the first in the order."""
        flags = numpy.zeros(len(self._order), bool)
        flags[self._order[self._accepted[self._order]][: self.need]] = True
        return flags

    def rounds(self, max_passes: int) -> Iterator[tuple[Indices, int]]:
        """The examples of each round and the number of its pass; add the predictions before taking the next one."""
        for turn in range(max_passes):
            waiting = self._order[~(self._accepted | self._hopeless)[self._order]]
            if self.done == self.need or not len(waiting):
                return
            self.passes = turn + 1
            begin = 0
            while begin < len(waiting) and self.done < self.need:
                size = self.need  # first as many as are enough if all yield labels, so that no probe is wasted
                if self._taken:
                    measured = max(int(self._accepted.sum()) / self._taken, LEAST_YIELD)
                    size = max(
                        math.ceil(SURPLUS * (self.need - self.done) / measured), len(self._order) // PARTS, BATCH
                    )
                examples = waiting[begin : begin + size]
                begin += len(examples)
                self._taken += len(examples)
                yield examples, turn

    def add(self, parts: Sequence[Predictions]) -> None:
        """Add the predictions of a round, from all processes."""
        for part in parts:
            probes, counts = part.probes, numpy.diff(part.probes.starts)
            self.originals += part.originals
            self.right += part.right
            self.probes += len(probes)
            self._changed += int(part.changed.sum())
            self._accepted_probes += int(part.accepted.sum())
            self._hidden += len(probes.hidden)
            self._hopeless[part.hopeless] = True
            self._accepted[probes.examples[part.accepted]] = True
            # A token gets the smallest value of the accepted probes that hid it. fmin passes over NaN: every token
            # begins with it, and it is the value of a probe that was not accepted.
            tokens = numpy.repeat(self._starts[probes.examples], counts) + probes.hidden
            numpy.fmin.at(self.values, tokens, numpy.repeat(part.values, counts))

    def statistics(self) -> dict[str, float]:
        """Numbers about the rounds, for the log."""
        probes, count = max(self.probes, 1), len(self._order)
        return {
            "share": self.done / count,
            "examples": float(count),
            "needed": float(self.need),
            # An example that is not worth a probe counts as one probe that was rejected, as in the authors' code.
            "acceptance": self._accepted_probes / max(self.probes + int(self._hopeless.sum()), 1),
            "flips": self._changed / probes,
            "hidden": self._hidden / probes,
            "right": self.right / max(self.originals, 1),
            "probes": float(self.probes),
            "originals": float(self.originals),
            "passes": float(self.passes),
        }


def _no_labels(schedule: Schedule, epoch: int) -> str:
    if not schedule.right:
        fix = "train longer before labelling, or with a larger learning rate"
    elif not schedule.probes:
        fix = "the texts are too short to hide a part of them: set sampler: uniform and whole_words: false"
    else:
        fix = "raise max_passes, hide less (mask_fraction, aug_threshold) or choose another label_rule"
    passes = "1 pass" if schedule.passes == 1 else f"{schedule.passes} passes"
    return (
        f"SSA found no token labels for epoch {epoch} (from 0): {schedule.right} of {schedule.originals} predictions "
        f"were right, and none of {schedule.probes} probes was accepted in {passes}; {fix}."
    )
