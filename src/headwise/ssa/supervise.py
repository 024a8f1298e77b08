"""Give a classifier self-supervised attention, take it away, and find it again."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from torch import Tensor, nn

from headwise.attention import encoder_of
from headwise.errors import InputError, StateError, UnsupportedModelError
from headwise.ssa.config import SSA, build_ssa
from headwise.ssa.model import Supervision, TokenHead, blend_vector, see_states
from headwise.ssa.token_labels import TextTokens

NAME = "ssa"
CONFIG = "headwise_ssa"
# What a model with SSA takes beyond its own arguments.
ARGUMENTS = ("ssa_labels", "special_tokens_mask", "output_ssa")


def self_supervise(
    model: nn.Module, options: SSA | dict[str, Any] | None = None, *, tokenizer: Any, max_length: int | None = None
) -> nn.Module:
    """Add a token head to a sequence classifier, in place; in the hybrid model its classifier reads pooled tokens too.

        model = hw.self_supervise(model, hw.SSA(model="hybrid"), tokenizer=tokenizer)

    The model stays of its class, with the weights `ssa.*` beside its own, takes `ssa_labels` [B,T] in a batch, and
    gives `ssa_logits`, `ssa_scores` and `ssa_kept` when it is called with `output_ssa=True` (last, if it gives tuples).
    Labels come from `hw.relabel(trainer)`. `model.save_pretrained` keeps all of it, and `hw.load` brings it back. With
    PEFT afterwards the token head learns if it is named: `modules_to_save=["classifier", "ssa"]`.

    Args:
        model: a transformers classifier of any encoder family, before `hw.guide` and before wrapping (PEFT, DDP).
        options: the choices of SSA; the defaults if not given.
        tokenizer: tells text from special tokens, and what hides a token.
        max_length: the longest input; needed for `share_weight: false`, which has a decoder for each position.

    Returns:
        The same model.
    """
    chosen = SSA() if options is None else build_ssa(options)
    if chosen.only_bert:
        return model
    return attach(model, chosen, TextTokens.of(tokenizer), max_length)


def attach(model: nn.Module, options: SSA, text: TextTokens, positions: int | None) -> nn.Module:
    """As `self_supervise`, with what the tokenizer would say."""
    classifier: Any = _bare(model)
    final, config = _final(classifier), classifier.config
    size = _hidden_size(config)
    if options.model == "hybrid" and final.in_features != size:
        raise UnsupportedModelError(
            f"the classifier of {config.model_type} reads {final.in_features} numbers, and its tokens have {size}: "
            "they cannot be blended; use ssa model: cotraining."
        )
    places = None if options.share_weight else _places(positions)
    spread = float(getattr(config, "initializer_range", None) or 0.02)
    head = TokenHead(size, positions=places, spread=spread, epsilon=float(getattr(config, "layer_norm_eps", 1e-12)))
    weight = final.weight
    supervision = Supervision(options, text, head, _dropout(config)).to(weight.device, weight.dtype)
    classifier.add_module(NAME, supervision.train(classifier.training))
    classifier.base_model.register_forward_hook(see_states)
    final.register_forward_pre_hook(blend_vector)
    kind: Any = type(classifier)
    classifier.__class__ = _supervised(kind)
    # Where the weights came from is nobody's business who gets the model.
    told = {name: value for name, value in options.as_data().items() if name != "use_saved"}
    settings = {"options": told, "frame_ids": list(text.frame_ids), "mask_id": text.mask_id}
    setattr(config, CONFIG, settings | {"positions": places})
    return model


def settings_in(config: Any) -> dict[str, Any] | None:
    """What a saved model's config says of its SSA; None for one without."""
    found = getattr(config, CONFIG, None)
    if found is not None and not isinstance(found, dict):
        raise InputError(f"the model's config has a damaged {CONFIG} ({found!r:.40}): save the model again.")
    return found


def reattach(model: nn.Module, settings: dict[str, Any]) -> nn.Module:
    """Give a freshly loaded classifier the token head, not yet its weights, that its config tells of."""
    try:
        options = build_ssa(settings["options"])
        text = TextTokens(tuple(int(each) for each in settings["frame_ids"]), int(settings["mask_id"]))
        positions = None if settings["positions"] is None else int(settings["positions"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the model's config has a damaged {CONFIG} ({error}): save the model again.") from error
    return attach(model, options, text, positions)


def _bare(model: nn.Module) -> nn.Module:
    """The model itself, if nothing was put on or around it yet."""
    inner = encoder_of(model)
    if inner is not model:
        raise InputError(
            f"{type(model).__name__} wraps a {type(inner).__name__}: add SSA to the inner model, before wrapping it."
        )
    if supervision_of(model) is not None:
        raise StateError("this model has SSA already: take it away with remove_supervision(model) first.")
    if "forward" in model.__dict__:
        raise StateError("this model is already guided or wrapped: call self_supervise(model, ...) before that.")
    return model


def remove_supervision(model: nn.Module) -> nn.Module:
    """Take SSA away: the model is the plain classifier that it was before, but for what it has learned."""
    classifier: Any = encoder_of(model)
    if supervision_of(model) is None:
        raise StateError("this model has no SSA: there is nothing to take away.")
    if "forward" in classifier.__dict__:
        raise StateError("this model is guided: call unguide(model) first.")
    for hooks in (each for part in classifier.modules() for each in (part._forward_hooks, part._forward_pre_hooks)):
        for key in [key for key, hook in hooks.items() if hook in (see_states, blend_vector)]:
            del hooks[key]
    delattr(classifier, NAME)
    classifier.__class__ = type(classifier).__mro__[1]
    delattr(classifier.config, CONFIG)
    return model


def supervision(model: nn.Module) -> Supervision:
    """The token head of a model with SSA: its options, losses and counts."""
    found = supervision_of(model)
    if found is None:
        raise StateError("this model has no SSA: call self_supervise(model, ...) first.")
    return found


def supervision_of(model: nn.Module) -> Supervision | None:
    """The token head of a model, or None where there is none."""
    try:
        found = getattr(encoder_of(model), NAME, None)
    except UnsupportedModelError:
        return None
    # PEFT may put a wrapper around it, which answers for the copy that learns.
    owner = getattr(getattr(found, "run", None), "__self__", None)
    return owner if isinstance(owner, Supervision) else None


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
        return self.ssa.run(call, inputs, labels=ssa_labels, output_ssa=output_ssa)

    supervised.__signature__ = _with_arguments(plain)  # type: ignore[attr-defined]
    members = {"forward": supervised, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (kind,), members)


def _with_arguments(plain: inspect.Signature) -> inspect.Signature:
    """Trainers read the signature to choose columns."""
    parameters = list(plain.parameters.values())
    more = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in ARGUMENTS]
    last = parameters[-1:] if parameters and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD else []
    return plain.replace(parameters=[*parameters[: len(parameters) - len(last)], *more, *last])


def _places(positions: Any) -> int:
    """How many positions get a decoder of their own."""
    if isinstance(positions, bool) or not isinstance(positions, int) or positions < 1:
        raise InputError(
            f"share_weight: false has a decoder for each position, and max_length is {positions!r}: expected a whole "
            "number of 1 or more."
        )
    return positions


def _final(model: Any) -> nn.Linear:
    """The linear map that makes the logits."""
    head = getattr(model, "classifier", None)
    final = getattr(head, "out_proj", head)
    if not isinstance(final, nn.Linear) or not hasattr(model, "base_model"):
        raise UnsupportedModelError(
            f"{type(model).__name__} has no classifier that ends in a linear map, which SSA needs: load it with "
            "AutoModelForSequenceClassification."
        )
    return final


def _hidden_size(config: Any) -> int:
    return int(getattr(config, "hidden_size", None) or config.dim)


def _dropout(config: Any) -> float:
    """The rate that the classifier of this family has."""
    of_classifier = ("classifier_dropout", "classifier_dropout_prob", "cls_dropout", "seq_classif_dropout")
    names = (*of_classifier, "hidden_dropout_prob", "dropout")
    rates = (getattr(config, name, None) for name in names)
    return float(next((rate for rate in rates if isinstance(rate, int | float)), 0.0))
