"""What self-supervised attention adds to a classifier: a token head, pooled tokens and a second loss.

Shapes: B examples, T tokens, D size of a state.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear

from headwise.attention import query_key_projections
from headwise.errors import HeadwiseWarning, InputError, StateError
from headwise.guides.gradient_share import Balance
from headwise.guides.weights import Auto
from headwise.ssa.config import SSA

TOKEN = "token"
"""The name of the token loss among those that are balanced."""
IGNORED = -100.0
"""The label of a token that has none, in a batch."""
SPECIAL = ("cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id", "pad_token_id")


@dataclass(frozen=True)
class TextTokens:
    """Separates text, which may be hidden, labelled and pooled, from the special tokens of a tokenizer."""

    special_ids: tuple[int, ...]
    mask_id: int
    """The token that replaces hidden text."""

    @classmethod
    def of(cls, tokenizer: Any) -> TextTokens:
        """Read the ids from a tokenizer."""
        mask = getattr(tokenizer, "mask_token_id", None)
        if mask is None:
            raise InputError(
                f"SSA hides tokens behind a mask token, and {type(tokenizer).__name__} has none: use an encoder that "
                "was pretrained with one, or set tokenizer.mask_token."
            )
        ids = {int(each) for each in (getattr(tokenizer, name, None) for name in SPECIAL) if each is not None}
        return cls(tuple(sorted(ids - {int(mask)})), int(mask))

    def eligible(self, ids: Tensor, attention_mask: Tensor | None, special: Tensor | None = None) -> Tensor:
        """[B,T] True at tokens of the text; `special` is the tokenizer's special_tokens_mask, if there is one."""
        if special is None:
            others = torch.tensor(self.special_ids, device=ids.device, dtype=ids.dtype)
            text = (ids[:, :, None] != others).all(2)  # torch.isin, in operations that ONNX has
        else:
            text = special == 0
        return text if attention_mask is None or attention_mask.dim() != 2 else text & (attention_mask != 0)


class TokenHead(nn.Module):
    """Two scores for each token: z = V LayerNorm(gelu(U h + a)) + c; its second softmax entry is P(token matters).

    With `positions` every position has a decoder V, c (the authors' share_weight=0). Theirs has no bias that is ever
    used, and needs the full length at every call; ours has one, and takes shorter inputs.
    """

    def __init__(
        self, size: int, *, positions: int | None = None, spread: float = 0.02, epsilon: float = 1e-12
    ) -> None:
        """Fresh weights from N(0, spread)."""
        super().__init__()
        self.positions = positions
        self.transform = nn.Linear(size, size)
        self.norm = nn.LayerNorm(size, eps=epsilon)
        leading = () if positions is None else (positions,)
        self.decoder = nn.Parameter(torch.empty(*leading, 2, size))  # [2,D] or [S,2,D]
        self.decoder_bias = nn.Parameter(torch.zeros(*leading, 2))
        nn.init.normal_(self.transform.weight, std=spread)
        nn.init.zeros_(self.transform.bias)
        nn.init.normal_(self.decoder, std=spread)

    def forward(self, states: Tensor, positions: Tensor) -> Tensor:
        """[B,T,D] states and [B,T] their positions in the text, from 0 -> [B,T,2]."""
        hidden = self.norm(gelu(self.transform(states)))
        if self.positions is None:
            return linear(hidden, self.decoder, self.decoder_bias)
        if positions.shape[1] > self.positions:  # otherwise there is no need to wait for the device
            longest = int(positions.max()) + 1
            if longest > self.positions:
                raise InputError(
                    f"the batch is {longest} tokens long, and this token head has a decoder for each of "
                    f"{self.positions} positions (share_weight: false): tokenise with max_length={self.positions}, or "
                    "train with share_weight: true."
                )
        decoder, bias = self.decoder[positions], self.decoder_bias[positions]  # [B,T,2,D], [B,T,2]
        return torch.einsum("btd,btcd->btc", hidden, decoder.to(hidden.dtype)) + bias


def tokens_above(scores: Tensor, eligible: Tensor, options: SSA) -> Tensor:
    """[B,T] which eligible tokens have a score of at least the threshold, or the quantile of their own text."""
    if options.attention_threshold is not None:
        return eligible & (scores >= options.attention_threshold)
    # As Tensor.nanquantile with interpolation="lower" does it, in operations that ONNX has.
    ordered = scores.detach().masked_fill(~eligible, torch.inf).sort(1).values
    last = eligible.sum(1, keepdim=True) - 1
    rank = scores.new_tensor(options.attention_quantile or 0.0) * last.clamp(min=0)
    return eligible & (scores >= ordered.gather(1, rank.long()))  # [B,1] infinite in a text without tokens


def kept_tokens(scores: Tensor, eligible: Tensor, options: SSA) -> Tensor:
    """[B,T] which tokens are pooled: see `tokens_above`.

    Where no token reaches the threshold, all eligible ones are (the authors' code then spreads over padding and special
    tokens).
    """
    kept = tokens_above(scores, eligible, options)
    return kept | (eligible & ~kept.any(1, keepdim=True))


def pool(states: Tensor, values: Tensor, kept: Tensor) -> Tensor:
    """[B,D] the states weighted by a softmax of the values over the kept tokens; 0 for an example without any."""
    weights = values.masked_fill(~kept, torch.finfo(values.dtype).min).softmax(1).masked_fill(~kept, 0.0)
    return torch.einsum("bt,btd->bd", weights.to(states.dtype), states)


def token_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean over all labelled tokens of -(t log s + (1 - t) log(1 - s)); 0 where none is labelled.

    For labels of 0 and 1 it is the cross-entropy of the two logits. A flat mean over the batch, as the authors': long
    texts weigh more.

    Args:
        logits: [B,T,2].
        labels: [B,T] from 0 to 1, or -100 for tokens that are not labelled.
    """
    counts = labels != IGNORED
    target = labels.masked_fill(~counts, 0.0)
    log = logits.log_softmax(-1)  # [B,T,2]
    losses = -(target * log[..., 1] + (1 - target) * log[..., 0])
    return (losses * counts).sum() / counts.sum().clamp(min=1)


# The forward pass of each thread. Not in the modules: PEFT copies them together with their hooks, and a hook that knew
# its Supervision would then know a copy that nobody calls.
_THREAD = threading.local()


@dataclass
class ForwardPass:
    """One forward pass: its inputs, and the outputs of the token head."""

    supervision: Supervision
    eligible: Tensor
    positions: Tensor
    token_head: bool
    """Whether the token head runs, even where the classifier does not read it."""
    logits: Tensor | None = None
    scores: Tensor | None = None
    kept: Tensor | None = None
    context: Tensor | None = None


@dataclass
class TokenLosses:
    """The parts of the last training loss, detached."""

    task: Tensor
    token: Tensor | None
    """None if the batch came without token labels."""
    weight: float | None = None
    """Of the token loss, if it is balanced by `token_share`."""


class Supervision(nn.Module):
    """The token head of a classifier, and its part in the forward pass.

    It is a module of the classifier, named `ssa`: its weights are saved, moved and trained with it.
    """

    def __init__(self, options: SSA, text: TextTokens, head: TokenHead, dropout: float) -> None:
        """Build it from its parts."""
        super().__init__()
        self.options = options
        self.text = text
        self.head = head
        # The authors create a dropout for the hybrid model and never use it; the classifier's own vector has one.
        self.dropout = nn.Dropout(dropout)
        self.losses: TokenLosses | None = None
        self.kept: Tensor | int = 0
        """Tokens above the threshold or quantile in training, since the last reset; `seen` counts all of them."""
        self.seen: Tensor | int = 0
        self._balance = Balance({TOKEN: Auto(options.token_share)}) if options.token_share else None
        self._batches = 0
        self._model: weakref.ref[nn.Module] | None = None
        self._token: Tensor | None = None
        self._waiting = False
        self._warned: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        """For copies: without the graph of the last step, which cannot be copied."""
        return {**self.__dict__, "_token": None, "_waiting": False, "_model": None}

    @property
    def pools(self) -> bool:
        """Whether the classifier reads pooled tokens."""
        return self.options.pools

    def run(
        self,
        model: nn.Module,
        call: Callable[[], Any],
        inputs: dict[str, Any],
        *,
        labels: Tensor | None,
        output_ssa: bool,
    ) -> Any:
        """Call the classifier, score its tokens on the way, and add the token loss to its loss."""
        self._model = weakref.ref(model)
        ids, mask, special = (inputs.get(name) for name in ("input_ids", "attention_mask", "special_tokens_mask"))
        if ids is None:
            raise InputError("a model with SSA needs input_ids, to know text from special tokens; it got none.")
        eligible = self.text.eligible(ids, mask, special)
        real = torch.ones_like(ids) if mask is None or mask.dim() != 2 else mask
        current = ForwardPass(self, eligible, (real.cumsum(1) - 1).clamp(min=0), output_ssa or labels is not None)
        outer, _THREAD.current = getattr(_THREAD, "current", None), current
        try:
            output = call()
        finally:
            _THREAD.current = outer
        if self.training and current.scores is not None:
            self.kept = self.kept + tokens_above(current.scores, eligible, self.options).sum()
            self.seen = self.seen + eligible.sum()
        self._token = None if labels is None else self._token_loss(current, labels)
        output = self._with_loss(output)
        if not output_ssa or current.logits is None:
            return output
        more = {"ssa_logits": current.logits, "ssa_scores": current.scores, "ssa_kept": current.kept}
        if isinstance(output, tuple):
            return (*output, *more.values())
        for name, value in more.items():
            output[name] = value
        return output

    def score(self, current: ForwardPass, states: Tensor) -> None:
        """Score the tokens by the last states of the encoder, and pool them if the classifier reads that."""
        if not (current.token_head or self.pools):
            return
        if states.dim() != 3:
            raise StateError(
                f"the encoder gives states of shape {list(states.shape)}, expected [batch, tokens, size]: load it with "
                "attn_implementation='sdpa'."
            )
        logits = self.head(states, current.positions)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # the softmax needs all its digits
        scores = logits.softmax(-1)[..., 1]  # [B,T] P(token matters)
        kept = kept_tokens(scores, current.eligible, self.options)
        current.logits, current.scores, current.kept = logits, scores, kept
        if self.pools:
            values = {
                "probabilities": scores,
                "logits": logits[..., 1] - logits[..., 0],
                "uniform": torch.zeros_like(scores),
            }
            current.context = self.dropout(pool(states, values[self.options.pool_softmax], kept))

    def total(self, task: Tensor) -> Tensor:
        """The task's loss and the token loss of the last forward pass: task + w token, w by `token_share`.

        With the authors' `aug_loss_weight` it is (1 - w) task + w token. Called for you where the model computes its
        own loss. Call it yourself where the loss is computed outside of the model (label smoothing, a custom loss
        function). A batch without ssa_labels keeps the task's loss; one whose tokens all have none (-100) has a token
        loss of 0.
        """
        token, self._token, self._waiting = self._token, None, False  # nothing of the graph is kept
        self.losses = TokenLosses(task.detach(), None if token is None else token.detach())
        if token is None:
            if self.training and self.options.learns_labels:
                self._warn(
                    "this model learns token labels, and a training batch came without ssa_labels: train with "
                    "hw.SSACallback, or pass them."
                )
            return task
        if self._balance is None:
            weight = self.options.aug_loss_weight or 0.0
            return (1 - weight) * task + weight * token
        model = None if self._model is None else self._model()
        if model is None or not (self.training and torch.is_grad_enabled() and task.requires_grad):
            self.losses.weight = self._balance.weight(TOKEN)
            return task + self.losses.weight * token
        self.check_balance(model)
        self.losses.weight = self._balance.weights(model, task, {TOKEN: token}, self._batches)[TOKEN]
        self._batches += 1  # `every` counts batches here
        total = task + self.losses.weight * token
        self._balance.follow(model, total)
        return total

    def check_balance(self, model: nn.Module) -> None:
        """Refuse a model on which the share of the token loss cannot be measured."""
        if self._balance is not None and not query_key_projections(model):
            raise StateError(
                "ssa.token_share compares gradients on the query and key projections, and none of them is trainable: "
                "unfreeze some (or give them adapters), or set aug_loss_weight instead."
            )

    def collect(self) -> None:
        """Use what the last backward pass has shown of the gradients; before a checkpoint, in all processes."""
        if self._balance is not None:
            self._balance.collect()

    def balance_state(self) -> dict[str, Any]:
        """What a checkpoint needs to continue with the same weight of the token loss."""
        return {} if self._balance is None else {"batches": self._batches, **self._balance.state()}

    def load_balance(self, state: Mapping[str, Any]) -> None:
        """Resume from `balance_state`."""
        if self._balance is not None and state:
            self._batches = int(state["batches"])
            self._balance.load(state)

    def threshold(self, scores: Tensor, kept: Tensor) -> float | None:
        """From which score on the tokens of one text are pooled; None if nothing is pooled.

        Args:
            scores: [T] of its tokens.
            kept: [T] which of them are pooled.
        """
        if not self.pools:
            return None
        if self.options.attention_threshold is not None:
            return self.options.attention_threshold
        return float(scores[kept].min().detach()) if bool(kept.any()) else 0.0

    def reset_counts(self, kept: int = 0, seen: int = 0) -> None:
        """Restart counting, or continue from these counts."""
        self.kept, self.seen = kept, seen

    def _token_loss(self, current: ForwardPass, labels: Tensor) -> Tensor | None:
        """Of text alone: labels at special tokens and padding do not count."""
        if labels.shape != current.eligible.shape:
            raise InputError(
                f"ssa_labels has the shape {list(labels.shape)}, expected one label for each of the input_ids, "
                f"{list(current.eligible.shape)}: pad them with -100."
            )
        text = labels.masked_fill(~current.eligible, IGNORED)
        return None if current.logits is None else token_loss(current.logits, text)

    def _with_loss(self, output: Any) -> Any:
        if self._waiting and self.training:
            self._warn(
                "the token loss of SSA is never added to a loss that is computed outside of the model: use "
                "GuidedTrainer, or call supervision(model).total(loss)."
            )
        task = output[0] if isinstance(output, tuple) else output.get("loss")
        if not isinstance(task, Tensor) or task.dim() != 0:
            self._waiting = self.training and self._token is not None and torch.is_grad_enabled()
            return output
        if isinstance(output, tuple):
            return (self.total(task), *output[1:])
        output.loss = self.total(task)
        return output

    def _warn(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            warnings.warn(message, HeadwiseWarning, stacklevel=3)


def score_states(_: nn.Module, __: Any, output: Any) -> None:
    """Hook behind the encoder: score the tokens by its last states."""
    current = getattr(_THREAD, "current", None)
    if current is not None:
        current.supervision.score(current, output[0])


def blend_vector(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
    """Hook before the last linear layer: blend its input p with the pooled tokens c, w p + (1 - w) c, w = cls_weight.

    With `normalise_blend` c has the length of p. An example without text keeps p.
    """
    current = getattr(_THREAD, "current", None)
    if current is None or current.context is None:
        return None
    own, *rest = inputs
    options, context = current.supervision.options, current.context
    if options.normalise_blend:
        length, wanted = (torch.linalg.vector_norm(each, dim=1, keepdim=True) for each in (context, own.to(context)))
        context = context * (wanted / length.masked_fill(length == 0, 1.0))  # that of an example without text is 0
    blended = options.cls_weight * own + (1 - options.cls_weight) * context.to(own.dtype)
    return (torch.where(current.eligible.any(1)[:, None], blended, own), *rest)
