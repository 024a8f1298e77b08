"""Add self-supervised attention to a classifier, remove it, and find it again."""

from __future__ import annotations

import functools
import inspect
from dataclasses import asdict
from typing import Any

from torch import Tensor, nn

from headwise.attention import encoder_of
from headwise.errors import InputError, StateError, UnsupportedModelError
from headwise.ssa import TOKEN_HEAD, supervision_of
from headwise.ssa.config import BEFORE, SSA, build_ssa
from headwise.ssa.model import Supervision, TextTokens, TokenHead, blend_vector, score_states

CONFIG = "headwise_ssa"
# Further arguments of a model with SSA.
ARGUMENTS = ("ssa_labels", "special_tokens_mask", "output_ssa")
# The dropout rate of the classifier, by the names of all families.
DROPOUTS = (
    *("classifier_dropout", "classifier_dropout_prob", "cls_dropout", "seq_classif_dropout"),
    *("hidden_dropout_prob", "dropout"),
)


def self_supervise(
    model: nn.Module, options: SSA | dict[str, Any] | None = None, *, tokenizer: Any, max_length: int | None = None
) -> nn.Module:
    """Add a token head to a sequence classifier, in place; in the hybrid model its classifier reads pooled tokens too.

        model = hw.self_supervise(model, hw.SSA(model="hybrid"), tokenizer=tokenizer)

    The model keeps its class, has the weights `ssa.*` beside its own, takes `ssa_labels` [B,T] in a batch, and
    returns `ssa_logits`, `ssa_scores` and `ssa_kept` when called with `output_ssa=True` (last, if it returns tuples).
    Labels come from `hw.SSACallback`. `model.save_pretrained` keeps all of it, and `hw.load` brings it back. With
    PEFT afterwards the token head learns if it is named: `modules_to_save=["classifier", "ssa"]`.

    Args:
        model: a transformers classifier of any encoder family, before `hw.guide` and before wrapping (PEFT, DDP).
        options: the choices of SSA; the defaults if not given.
        tokenizer: knows the special tokens, and the mask token that hides others.
        max_length: the longest input; needed for `share_weight: false`, which has a decoder for each position.

    Returns:
        The same model.
    """
    ssa = SSA() if options is None else build_ssa(options)
    return model if ssa.only_bert else _attach(model, ssa, TextTokens.of(tokenizer), max_length)


def _attach(model: nn.Module, options: SSA, text: TextTokens, positions: int | None) -> nn.Module:
    inner = encoder_of(model)
    if inner is not model:
        raise InputError(
            f"{type(model).__name__} wraps a {type(inner).__name__}: add SSA to the inner model, before wrapping it."
        )
    if supervision_of(model) is not None:
        raise StateError("this model has SSA already: remove it with remove_supervision(model) first.")
    if "forward" in model.__dict__:
        raise StateError("this model is already guided or wrapped: call self_supervise(model, ...) before that.")
    classifier: Any = model
    final = getattr(model, "classifier", None)
    final = getattr(final, "out_proj", final)
    if not isinstance(final, nn.Linear) or not hasattr(model, "base_model"):
        raise UnsupportedModelError(
            f"{type(model).__name__} has no classifier that ends in a linear layer, which SSA needs: load it with "
            "AutoModelForSequenceClassification."
        )
    config = classifier.config
    size = int(getattr(config, "hidden_size", None) or config.dim)
    if options.model == "hybrid" and final.in_features != size:
        raise UnsupportedModelError(
            f"the classifier of {config.model_type} reads {final.in_features} numbers, and its tokens have {size}: "
            "they cannot be blended; use ssa model: cotraining."
        )
    if options.share_weight:
        positions = None
    elif isinstance(positions, bool) or not isinstance(positions, int) or positions < 1:
        raise InputError(
            f"share_weight: false has a decoder for each position, and max_length is {positions!r}: expected a whole "
            "number of 1 or more."
        )
    spread = float(getattr(config, "initializer_range", None) or 0.02)
    epsilon = float(getattr(config, "layer_norm_eps", 1e-12))
    head = TokenHead(size, positions=positions, spread=spread, epsilon=epsilon)
    rates = (getattr(config, name, None) for name in DROPOUTS)
    dropout = float(next((rate for rate in rates if isinstance(rate, int | float)), 0.0))
    supervision = Supervision(options, text, head, dropout).to(final.weight.device, final.weight.dtype)
    classifier.add_module(TOKEN_HEAD, supervision.train(classifier.training))
    # Before a hook by which a classifier reads means of tokens, which may leave no states behind.
    classifier.base_model.register_forward_hook(score_states, prepend=True)
    final.register_forward_pre_hook(blend_vector)
    kind: Any = type(classifier)
    classifier.__class__ = _supervised(kind)
    # A folder of this machine is no part of a model that is passed on.
    saved = {name: value for name, value in asdict(options).items() if name != "use_saved"}
    settings = {"options": saved, "frame_ids": list(text.special_ids), "mask_id": text.mask_id, "positions": positions}
    setattr(config, CONFIG, settings)
    return model


def settings_in(config: Any) -> dict[str, Any] | None:
    """The SSA settings in a saved model's config; None for a model without."""
    settings = getattr(config, CONFIG, None)
    if settings is not None and not isinstance(settings, dict):
        raise InputError(f"the model's config has a damaged {CONFIG} ({settings!r:.40}): save the model again.")
    return settings


def reattach(model: nn.Module, settings: dict[str, Any]) -> nn.Module:
    """Add the token head of a saved config to a freshly loaded classifier; its weights are loaded afterwards."""
    try:
        options = build_ssa({**BEFORE, **settings["options"]})
        text = TextTokens(tuple(int(each) for each in settings["frame_ids"]), int(settings["mask_id"]))
        positions = None if settings["positions"] is None else int(settings["positions"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the model's config has a damaged {CONFIG} ({error}): save the model again.") from error
    return _attach(model, options, text, positions)


def remove_supervision(model: nn.Module) -> nn.Module:
    """Remove SSA: the model is the plain classifier that it was before, with the weights that it has learned."""
    classifier: Any = encoder_of(model)
    if supervision_of(model) is None:
        raise StateError("this model has no SSA: there is nothing to remove.")
    if "forward" in classifier.__dict__:
        raise StateError("this model is guided: call unguide(model) first.")
    for hooks in (each for part in classifier.modules() for each in (part._forward_hooks, part._forward_pre_hooks)):
        for key in [key for key, hook in hooks.items() if hook in (score_states, blend_vector)]:
            del hooks[key]
    delattr(classifier, TOKEN_HEAD)
    classifier.__class__ = type(classifier).__mro__[1]
    delattr(classifier.config, CONFIG)
    return model


def supervision(model: nn.Module) -> Supervision:
    """The token head of a model with SSA: its options, losses and counts."""
    current = supervision_of(model)
    if current is None:
        raise StateError("this model has no SSA: call self_supervise(model, ...) first.")
    return current


@functools.lru_cache(maxsize=64)
def _supervised(kind: Any) -> Any:
    """The class of the model with another forward; it keeps its name, by which it is saved."""
    forward = kind.forward
    plain = inspect.signature(forward)

    @functools.wraps(forward)
    def supervised(
        self: Any,
        *args: Any,
        ssa_labels: Tensor | None = None,
        special_tokens_mask: Tensor | None = None,
        output_ssa: bool = False,
        **kwargs: Any,
    ) -> Any:
        inputs = plain.bind_partial(self, *args, **kwargs).arguments | {"special_tokens_mask": special_tokens_mask}
        call = functools.partial(forward, self, *args, **kwargs)
        return self.ssa.run(self, call, inputs, labels=ssa_labels, output_ssa=output_ssa)

    # Trainers read the signature to choose columns.
    own = list(plain.parameters.values())
    more = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in ARGUMENTS]
    end = len(own) - (1 if own and own[-1].kind is inspect.Parameter.VAR_KEYWORD else 0)
    signature = plain.replace(parameters=[*own[:end], *more, *own[end:]])
    supervised.__signature__ = signature  # type: ignore[attr-defined]
    members = {"forward": supervised, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (kind,), members)
