"""The options of self-supervised attention, under the names of the authors where they have one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headwise.errors import InputError, choices
from headwise.registry import politely

CHOICES: dict[str, tuple[str, ...]] = {
    "model": ("hybrid", "cotraining"),
    "pool_softmax": ("probabilities", "logits", "uniform"),
    "sampler": ("uniform", "reference"),
    "label_rule": ("probe", "reference", "soft"),
    "precision": ("auto", "fp32", "bf16"),
}
# Names, which numbers they take, and the sentence for others.
RANGES: tuple[tuple[tuple[str, ...], Callable[[float], bool], str], ...] = (
    (
        (
            *("cls_weight", "attention_threshold", "attention_quantile", "aug_loss_weight", "aug_threshold"),
            *("rm_threshold", "mask_fraction", "ratio_step", "ratio_max"),
        ),
        lambda value: 0 <= value <= 1,
        "expected a number from 0 to 1",
    ),
    (
        ("mask_fraction", "ratio_step", "regression_tolerance"),
        lambda value: 0 < value < float("inf"),
        "expected a number above 0",
    ),
    (("token_share",), lambda value: 0 <= value < float("inf"), "expected a number of 0 or more"),
)
FLAGS = ("whole_words", "shuffle_labels", "share_weight", "normalise_blend", "only_bert")
# Two ways to say the same thing: ours with its default, the authors', and what both are about.
EITHER = (
    ("token_share", 0.3, "aug_loss_weight", "weigh the token loss"),
    ("attention_quantile", 0.5, "attention_threshold", "choose the tokens that are pooled"),
)
# What a saved model of an earlier version does not say, and did.
BEFORE: dict[str, Any] = {"normalise_blend": False}


@dataclass(frozen=True, kw_only=True)
class SSA:
    """Self-supervised attention (SSA), as an option of fine-tuning.

    The model predicts its training sentences with and without some of their tokens, and labels the hidden tokens by
    whether the prediction changes (`sampler`, `label_rule`). A token head learns these labels beside the task,

        L = L_task + w L_token,

    with w set so that the token loss has a share of the task's gradient (`token_share`). In the hybrid model its
    probabilities s also pool the tokens:

        kept = tokens with s in the upper part of their text (`attention_quantile`),  c = sum of softmax(s over kept) h,
        logits = W |p| (cls_weight p / |p| + (1 - cls_weight) c / |c|) + b,

    with p the vector that the classifier reads anyway. `cotraining` has the second loss and no pooling.

    The authors' settings, where they differ: `aug_loss_weight: 0.3`, L = (1 - 0.3) L_task + 0.3 L_token, whose second
    part has many times the gradient of the first; `attention_threshold: 0.3`, whatever the scores are like;
    `normalise_blend: false`, which adds vectors of different lengths; `sampler: reference` and `label_rule: reference`.
    `SSA.released()` has all of them. Where we always differ from their code: every example is used once per epoch;
    dropout stays on; nothing outside of the text is pooled.
    """

    model: str = "hybrid"
    """hybrid, which pools, or cotraining, which only learns the labels."""
    cls_weight: float = 0.5
    """Part of the classifier's own vector in the blend; the rest is pooled. Hybrid only."""
    attention_quantile: float | None = None
    """Tokens are pooled whose score is at least this quantile of the scores of their text: 0 pools all, 0.5 (the
    default) the upper half. Hybrid only."""
    attention_threshold: float | None = None
    """The authors' way instead: tokens whose score is at least this are pooled. Hybrid only."""
    normalise_blend: bool = True
    """Whether both vectors of the blend are scaled to the same length, that of the classifier's own. Hybrid only."""
    pool_softmax: str = "probabilities"
    """Over what the pooling weights are a softmax: probabilities (the authors'), logits, or uniform for a mean."""
    token_share: float | None = None
    """The gradient of the token loss on the query/key projections as a share of the task's (0.3 by default), measured
    as for the guides' `auto`; 0 needs no labels, so nothing is probed."""
    aug_loss_weight: float | None = None
    """The authors' way instead: a fixed part of the token loss in the whole; 0 needs no labels either."""
    sampler: str = "uniform"
    """Which tokens are hidden: uniform, or reference (the authors')."""
    aug_threshold: float = 0.1
    """Of the reference sampler: how often a token triggers a hidden span."""
    rm_threshold: float = 0.7
    """How long spans are: three tokens with probability 1 - x, two with 1 - x, one otherwise (for x of 0.5 or more)."""
    mask_fraction: float = 0.15
    """Of the uniform sampler: the expected part of the tokens that is hidden."""
    most_hidden: int | None = None
    """Of the uniform sampler: most tokens (or words) hidden at a time; None: 3 for probe and soft, whose labels must be
    attributable, else any."""
    whole_words: bool = False
    """Of the uniform sampler: hide words, not pieces of them."""
    label_rule: str = "probe"
    """probe: hidden tokens get 1 if the prediction changed, else 0. reference: 0 if it did not change, and all others
    1. soft: how much probability the right class lost."""
    shuffle_labels: bool = False
    """A control: the labels of an epoch, shuffled over its examples and over their tokens. Same base rate and amount,
    no meaning."""
    regression_tolerance: float = 0.06
    """For tasks with a number: how far two numbers may be apart to count as the same, as a part of the labels' range
    (0.06 of STS-B's 5 is the authors' 0.3)."""
    ratio_step: float = 0.2
    """By how much the labelled part of the training set grows with each epoch; the first one has none."""
    ratio_max: float = 0.8
    """The largest part that is labelled."""
    probes_per_example: int = 1
    """Hidden sets tried per example and pass."""
    max_passes: int = 5
    """At most so many passes of probes over the training set in one epoch."""
    precision: str = "auto"
    """Of probing: fp32, bf16, or auto for bf16 where the hardware multiplies it."""
    share_weight: bool = True
    """One decoder of the token head for all positions; false: one for each, which binds the model to its length."""
    use_saved: str | None = None
    """Folder of a classifier that was fine-tuned before, to start from; labels then start with the first epoch."""
    only_bert: bool = False
    """A control: no SSA at all, the same training otherwise."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise self._error(name, choices(str(getattr(self, name)), known))
        for ours, default, theirs, what in EITHER:
            if getattr(self, theirs) is None:
                object.__setattr__(self, ours, default if getattr(self, ours) is None else getattr(self, ours))
            elif getattr(self, ours) is not None:
                raise InputError(f"ssa.{ours} and ssa.{theirs} are two ways to {what}: leave one out.")
        unset = {name for ours, _, theirs, _ in EITHER for name in (ours, theirs) if getattr(self, name) is None}
        for names, fits, expected in RANGES:
            for name in names:
                value: Any = getattr(self, name)
                number = isinstance(value, int | float) and not isinstance(value, bool)
                if name not in unset and not (number and fits(value)):
                    raise self._error(name, expected)
        for name in ("probes_per_example", "max_passes", "most_hidden"):
            value = getattr(self, name)
            if (name, value) != ("most_hidden", None) and (type(value) is not int or value < 1):
                raise self._error(name, "expected a whole number of 1 or more")
        for name in FLAGS:  # the authors write 1 and 0
            if not isinstance(getattr(self, name), int) or getattr(self, name) not in (0, 1):
                raise self._error(name, "expected true or false")
            object.__setattr__(self, name, bool(getattr(self, name)))
        folder: Any = self.use_saved
        if folder == 0:  # the authors' way to say that there is none
            object.__setattr__(self, "use_saved", None)
        elif folder is not None and not (isinstance(folder, str) and folder):
            raise self._error("use_saved", "expected the folder of a fine-tuned classifier")
        if self.aug_loss_weight == 1:
            raise InputError("ssa.aug_loss_weight is 1, so the task itself would not be learned: set it below 1.")
        if self.ratio_max < self.ratio_step:
            raise InputError(
                f"ssa.ratio_max is {self.ratio_max}, less than one step (ratio_step: {self.ratio_step}), so nothing "
                "would ever be labelled: set it to the step or more."
            )
        for name in ("whole_words", "most_hidden"):
            if getattr(self, name) and self.sampler != "uniform":
                raise InputError(f"ssa.{name} is for the uniform sampler: set sampler: uniform, or leave it out.")

    def _error(self, name: str, expected: str) -> InputError:
        return InputError(f"ssa.{name} is {getattr(self, name)!r}: {expected}.")

    @classmethod
    def released(cls, **changes: Any) -> SSA:
        """The settings of the authors' released code; `changes` are those of a task, such as its cls_weight."""
        theirs = {"aug_loss_weight": 0.3, "attention_threshold": 0.3, "normalise_blend": False}
        return cls(**{**theirs, "sampler": "reference", "label_rule": "reference", **changes})

    @property
    def hidden_at_most(self) -> int | None:
        """The bound on hidden tokens, if there is one."""
        if self.most_hidden is not None:
            return self.most_hidden
        return None if self.label_rule == "reference" else 3

    @property
    def pools(self) -> bool:
        """Whether the classifier reads pooled tokens."""
        return self.model == "hybrid" and self.cls_weight < 1

    @property
    def learns_labels(self) -> bool:
        """Whether training uses token labels, so that probing is needed."""
        return not self.only_bert and (self.token_share or self.aug_loss_weight or 0) > 0

    def share(self, epoch: int) -> float:
        """Part of the training set that is labelled in an epoch, from 0: 0, .2, .4, .6, .8, .8 ...

        r_0 = 0; r_{e+1} = r_e + ratio_step while that is at most ratio_max. A model that was fine-tuned before
        (use_saved) can be probed at once, so it starts with ratio_step.
        """
        if not self.learns_labels:
            return 0.0
        steps = epoch + (1 if self.use_saved is not None else 0)
        most = int(self.ratio_max / self.ratio_step + 1e-9)  # 0.6 / 0.2 is a little less than 3
        return round(min(steps, most) * self.ratio_step, 9)


SSA.__init__ = politely(SSA, "ssa")  # type: ignore[method-assign]


def build_ssa(options: Any) -> SSA:
    """SSA from the options of a recipe."""
    if isinstance(options, SSA):
        return options
    if not isinstance(options, Mapping):
        raise InputError(f"ssa is {options!r:.60}: expected options with values, such as model: hybrid.")
    return SSA(**{str(name): value for name, value in options.items()})
