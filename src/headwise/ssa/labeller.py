"""Token labels of a training set, from the newest model: hide, predict again, compare.

Shapes: N examples, T tokens of all of them together.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy

from headwise.errors import HeadwiseWarning, InputError
from headwise.ssa.answers import Answers, Asker, Predict
from headwise.ssa.examples import read_examples
from headwise.ssa.judge import Judge
from headwise.ssa.options import SSA
from headwise.ssa.probes import Drawer
from headwise.ssa.rounds import Rounds
from headwise.ssa.rules import build_rule
from headwise.ssa.samplers import build_sampler
from headwise.ssa.text_tokens import TextTokens
from headwise.ssa.token_labels import TokenLabels, assembled, shuffled, summary

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
