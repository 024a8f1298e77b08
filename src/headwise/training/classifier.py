"""The classifier on top of the encoder: what it reads of the last states, and its share of the learning rate.

    cls       the first token's state, through the classifier that transformers has for the family (the default)
    mean      the mean of all tokens, as sentence-transformers takes it
    segments  [u; v; |u-v|; u*v] of the means u and v of the two texts
    relu      ReLU of the first token's state: Eq. 7 of the attention-guiding paper

Plain transformers loads `cls` alone: of the others a saved folder holds the encoder and the head apart, and its config
says under `headwise_head` which head it is.

Shapes: B examples, T tokens, D size of a state, F size of what the classifier reads, C classes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from headwise.errors import InputError, choices
from headwise.training.predict import evaluating, sorted_batches

HEADS = ("cls", "mean", "segments", "relu")
# Names of earlier versions.
OLD_HEADS = {"pooler": "cls"}
# In the config of a model whose head is not `cls`.
CONFIG = "headwise_head"
# Where families have the linear layer that reads the first token's state, if not behind a pooler of the encoder:
# DistilBERT; RoBERTa, ELECTRA, MPNet; ModernBERT; DeBERTa.
FIRST_LINEAR = ("pre_classifier", "classifier.dense", "head.dense", "pooler.dense")


def head_name(name: str) -> str:
    """The present name of a head."""
    return OLD_HEADS.get(name, name)


# -- ReLU --------------------------------------------------------------------------------------------------------------


class ReluPooler(nn.Module):
    """In the place of a pooler: ReLU of the first token's state, h_CLS -> ReLU(h_CLS); without weights."""

    def forward(self, hidden_states: Tensor) -> Tensor:
        """[B,T,D] -> [B,D]."""
        return torch.relu(hidden_states[:, 0])


class ReluHead(nn.Module):
    """In the place of a classification head that sees all tokens: W ReLU(h_CLS) + b."""

    def __init__(self, size: int, labels: int, dropout: float) -> None:
        """Fresh weights."""
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.out_proj = nn.Linear(size, labels)
        nn.init.normal_(self.out_proj.weight, std=0.02)
        nn.init.zeros_(self.out_proj.bias)

    def forward(self, features: Tensor, **_: Any) -> Tensor:
        """[B,T,D] -> [B,C]."""
        logits: Tensor = self.out_proj(self.dropout(torch.relu(features[:, 0])))
        return logits


def _add_relu(model: Any) -> None:
    """The paper prints y = W ReLU(h_CLS); its released code uses the pooler, as sequence classifiers do."""
    base = model.base_model
    pooler, classifier = getattr(base, "pooler", None), getattr(model, "classifier", None)
    # A pooler that is a bare matrix (ALBERT) has its activation outside, where it cannot be replaced.
    if isinstance(pooler, nn.Module) and not isinstance(pooler, nn.Linear) and isinstance(classifier, nn.Linear):
        base.pooler = ReluPooler()
    elif isinstance(getattr(classifier, "out_proj", None), nn.Linear):
        dropout = getattr(model.config, "hidden_dropout_prob", 0.1)
        model.classifier = ReluHead(model.config.hidden_size, model.config.num_labels, dropout)
    else:
        raise InputError(
            f"head 'relu' is not known for {model.config.model_type} models, whose classifier has its activation where "
            "it cannot be replaced: use head: cls."
        )


# -- means of tokens ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TokenMeans:
    """A hook behind the encoder, so that the classifier reads means of tokens where it reads the first token else.

    It knows plain data alone, so that copies of a model have it too.
    """

    kind: str
    """mean or segments."""
    special_ids: tuple[int, ...] = ()
    """Tokens that belong to neither text; for segments."""
    separator_id: int = -1
    """The token behind each text; for segments. Token types are not used, since some families have none."""
    pooled: bool = False
    """Whether the classifier reads what a pooler gives, or else the state at position 0."""

    def __call__(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        """The encoder's output with features in the place of the first token."""
        ids, mask = (
            kwargs.get(name, args[position] if position < len(args) else None)
            for position, name in enumerate(("input_ids", "attention_mask"))
        )
        states = output[0]
        features = self.features(states, ids, mask)
        if isinstance(output, tuple):
            return (states, features, *output[1:]) if self.pooled else (features[:, None], *output[1:])
        changed = {"pooler_output": features} if self.pooled else {"last_hidden_state": features[:, None]}
        return replace(output, **changed)

    def features(self, states: Tensor, ids: Tensor | None, mask: Tensor | None) -> Tensor:
        """[B,T,D], [B,T], [B,T] -> [B,F]; a text without tokens has the mean 0."""
        if mask is not None and mask.dim() != 2:
            raise InputError(
                f"head {self.kind!r} averages over the tokens of the attention_mask, whose shape is "
                f"{list(mask.shape)}: expected [batch, tokens]."
            )
        real = torch.ones(states.shape[:2], dtype=torch.bool, device=states.device) if mask is None else mask != 0
        if self.kind == "mean":
            return mean_of(states, real)
        if ids is None:
            raise InputError("head 'segments' finds the two texts by their separators: pass input_ids.")
        first, second = (mean_of(states, each) for each in two_texts(ids, real, self.separator_id, self.special_ids))
        return torch.cat([first, second, (first - second).abs(), first * second], 1)

    def as_data(self) -> dict[str, Any]:
        """For the model's config."""
        data: dict[str, Any] = {"kind": self.kind}
        if self.kind == "segments":
            data |= {"special_ids": list(self.special_ids), "separator_id": self.separator_id}
        return data


def two_texts(ids: Tensor, real: Tensor, separator: int, special: Collection[int]) -> tuple[Tensor, Tensor]:
    """[B,T] bool each: the tokens of the first and of the second text, without special ones; `real` are not padding."""
    others = torch.tensor(list(special), device=ids.device, dtype=ids.dtype)
    text = real & (ids[:, :, None] != others).all(2)  # torch.isin, in operations that ONNX has
    behind = ((ids == separator) & real).cumsum(1) > 0
    return text & ~behind, text & behind


def mean_of(states: Tensor, chosen: Tensor) -> Tensor:
    """[B,T,D], [B,T] bool -> [B,D] the mean of the chosen states, computed in float32 at least; 0 if there is none."""
    wide = states if states.dtype == torch.float64 else states.float()
    total = (wide * chosen[:, :, None]).sum(1)
    return (total / chosen.sum(1, keepdim=True).clamp(min=1)).to(states.dtype)


def token_means(kind: str, tokenizer: Any) -> TokenMeans:
    """What `mean` or `segments` needs to know of a tokenizer."""
    if kind == "mean":
        return TokenMeans(kind)
    from headwise.ssa.model import SPECIAL

    separator = getattr(tokenizer, "sep_token_id", None)
    if separator is None:
        raise InputError(
            f"head 'segments' finds the two texts by the separator between them, and {type(tokenizer).__name__} has "
            "none: use head: cls or mean, or set tokenizer.sep_token."
        )
    ids = {int(each) for each in (getattr(tokenizer, name, None) for name in SPECIAL) if each is not None}
    return TokenMeans(kind, tuple(sorted(ids)), int(separator))


def _add_means(model: Any, means: TokenMeans) -> None:
    """Let the first linear layer of a classifier read means of tokens; it starts with fresh weights."""
    base, config = model.base_model, model.config
    pooled = isinstance(getattr(base, "pooler", None), nn.Module) and isinstance(
        getattr(model, "classifier", None), nn.Linear
    )
    paths = [path for path in ("classifier",) if pooled] or [
        path for path in FIRST_LINEAR if isinstance(_part(model, path), nn.Linear)
    ]
    refusal = InputError(
        f"head {means.kind!r} is not known for {config.model_type} models, whose classifier is built neither as "
        "BERT's nor as RoBERTa's: use head: cls."
    )
    if len(paths) != 1:
        raise refusal
    owner, _, name = paths[0].rpartition(".")
    before: nn.Linear = model.get_submodule(paths[0])
    width = before.in_features * (4 if means.kind == "segments" else 1)
    linear = nn.Linear(width, before.out_features, bias=before.bias is not None).to(before.weight)
    nn.init.normal_(linear.weight, std=_spread(config))
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    setattr(model.get_submodule(owner), name, linear)
    if pooled:
        base.pooler = None
    if hasattr(config, "classifier_pooling"):  # of ModernBERT: it takes the state at position 0, which has the means
        config.classifier_pooling = "cls"
    base.register_forward_hook(replace(means, pooled=pooled), with_kwargs=True)
    if not _reads_means(model, linear, replace(means, pooled=pooled)):
        raise refusal


def _part(model: nn.Module, path: str) -> nn.Module | None:
    try:
        return model.get_submodule(path)
    except AttributeError:
        return None


def _reads_means(model: Any, linear: nn.Linear, means: TokenMeans) -> bool:
    """Whether a layer gets the features as they are: tried with five tokens, as families may do anything."""
    states: list[Tensor] = []
    inputs: list[Tensor] = []
    first: Any = lambda _, __, output: states.append(output[0])  # noqa: E731
    handles = [
        model.base_model.register_forward_hook(first, prepend=True),
        linear.register_forward_pre_hook(lambda _, given: inputs.append(given[0])),
    ]
    word = next(number for number in itertools.count(2) if number not in means.special_ids)
    ids = torch.tensor([[word, word, max(means.separator_id, 0), word, word]], device=linear.weight.device)
    mask = torch.tensor([[1, 1, 1, 1, 0]], device=ids.device)
    try:
        with evaluating(model), torch.no_grad():
            model(input_ids=ids, attention_mask=mask)
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):  # another architecture
        return False
    finally:
        for handle in handles:
            handle.remove()
    expected = means.features(states[0], ids, mask)
    return len(inputs) == 1 and inputs[0].shape == expected.shape and torch.allclose(inputs[0], expected)


# -- choosing a head ---------------------------------------------------------------------------------------------------


def change_head(model: Any, head: str, *, tokenizer: Any = None) -> nn.Module:
    """Give a sequence classifier the head of this name, in place; what it adds starts with fresh weights.

    Args:
        model: a sequence classifier of transformers with the head of its family.
        head: one of HEADS.
        tokenizer: knows the separator; for segments.
    """
    head = head_name(head)
    if head not in HEADS:
        raise InputError(f"head is {head!r}: {choices(head, HEADS)}.")
    if head == "relu":
        _add_relu(model)
        setattr(model.config, CONFIG, {"kind": head})
    elif head != "cls":
        means = token_means(head, tokenizer)
        _add_means(model, means)
        setattr(model.config, CONFIG, means.as_data())
    return model  # type: ignore[no-any-return]


def settings_in(config: Any) -> dict[str, Any] | None:
    """What the config of a saved model says about its head; None for `cls`, and for folders of earlier versions."""
    settings = getattr(config, CONFIG, None)
    if settings is not None and (not isinstance(settings, dict) or settings.get("kind") not in HEADS):
        raise InputError(f"the model's config has a damaged {CONFIG} ({settings!r:.60}): save the model again.")
    return settings


def restore_head(model: Any, head: str) -> nn.Module:
    """Give a freshly built classifier the head that its config names, or else this one; weights are loaded later."""
    settings = settings_in(model.config) or {"kind": head_name(head)}
    if settings["kind"] != "segments":
        return change_head(model, settings["kind"])
    try:
        ids, separator = tuple(int(each) for each in settings["special_ids"]), int(settings["separator_id"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the model's config has a damaged {CONFIG} ({error}): save the model again.") from error
    _add_means(model, TokenMeans("segments", ids, separator))
    return model  # type: ignore[no-any-return]


def reads_means(model: Any) -> bool:
    """Whether the encoder of a classifier has a hook for its own head, so that no other head can share it."""
    return any(isinstance(hook, TokenMeans) for hook in model.base_model._forward_hooks.values())


# -- fresh poolers, and the learning rate of the head ------------------------------------------------------------------


def renew_pooler(model: Any, missing: Collection[str], seed: int) -> str | None:
    """Give an untrained pooler fresh weights from N(0, initializer_range); the reason if that was needed.

    Sentence encoders such as MiniLM never use their pooler: its file has none, or one with a bias of 0 everywhere and
    weights that are smaller than fresh ones. A pooler whose classifier came along is left as it is.

    Args:
        model: a classifier that was loaded from a checkpoint.
        missing: names of weights that the checkpoint does not have.
        seed: decides the weights, and changes no other random numbers.
    """
    pooler, prefix = getattr(model.base_model, "pooler", None), f"{model.base_model_prefix}."
    dense = pooler if isinstance(pooler, nn.Linear) else getattr(pooler, "dense", None)
    if not isinstance(dense, nn.Linear) or dense.bias is None:
        return None
    if any(name.startswith(f"{prefix}pooler.") for name in missing):
        reason = "the checkpoint has none"
    elif not bool(dense.bias.any()) and any(not name.startswith(prefix) for name in missing):
        reason = "its bias is 0 everywhere"
    else:
        return None
    with torch.no_grad():
        generator = torch.Generator(dense.weight.device).manual_seed(seed)
        dense.weight.normal_(0.0, _spread(model.config), generator=generator)
        dense.bias.zero_()
    return reason


def _spread(config: Any) -> float:
    return float(getattr(config, "initializer_range", None) or 0.02)


def head_parameters(model: Any) -> set[str]:
    """The names of the weights above the encoder: all outside of it, and its pooler.

    Args:
        model: a classifier of transformers, or a `MultiTask`.
    """
    base = getattr(model, "base_model", None)
    base = model.encoder if base is None else base
    below = {id(each) for name, each in base.named_parameters() if not name.startswith("pooler.")}
    return {name for name, each in model.named_parameters() if id(each) not in below}


def scale_head(optimizer: torch.optim.Optimizer, model: nn.Module, multiplier: float) -> None:
    """Split each group of a new optimizer in two, encoder and head, and multiply the learning rate of the head.

    The groups of the encoder come first: the learning rate that a Trainer logs is that of the first group.
    """
    head = {id(model.get_parameter(name)) for name in head_parameters(model)}
    groups = list(optimizer.param_groups)
    optimizer.param_groups.clear()
    for own in (False, True):
        for group in groups:
            chosen = [each for each in group["params"] if (id(each) in head) is own]
            rate = group["lr"] * (multiplier if own else 1.0)
            optimizer.add_param_group({**group, "params": chosen, "lr": rate})


# -- a classifier without training: least squares on the vectors that the encoder gives --------------------------------


def fit_linear(model: Any, data: Any, collate: Callable[[list[Any]], dict[str, Tensor]]) -> None:
    """Set the last linear map of a classifier to the least-squares solution, in place.

    min over W, b of sum_x |W v(x) + b - y(x)|^2, with v(x) the vector that the map reads, in evaluation mode, and y(x)
    the one-hot class or the number; the solution of least norm where there are several. The authors' linear_eval.

    Args:
        model: a classifier whose own part is one linear map, such as BERT's with the head cls, mean or segments.
        data: an `Encoded` data set with labels.
        collate: makes a batch of examples.
    """
    prefix = f"{model.base_model_prefix}."
    own = {name.rpartition(".")[0] for name, _ in model.named_parameters() if not name.startswith(prefix)}
    last = model.get_submodule(next(iter(own))) if len(own) == 1 else None
    if not isinstance(last, nn.Linear) or last.bias is None:
        raise InputError(
            f"linear: the classifier of {model.config.model_type} models is more than one linear map, so it cannot be "
            "fitted without training: use a BERT, or freeze: [encoder] instead."
        )
    vectors: list[Tensor] = []
    handle = last.register_forward_pre_hook(lambda _, inputs: vectors.append(inputs[0].double().cpu()))
    device, numbers = next(model.parameters()).device, []
    try:
        with evaluating(model), torch.inference_mode():
            for batch in sorted_batches(data, collate):
                numbers.append(batch.pop("labels"))
                model(**{name: tensor.to(device) for name, tensor in batch.items()})
    finally:
        handle.remove()
    labels = torch.cat(numbers).double().numpy()  # [X]
    targets = labels[:, None] if last.out_features == 1 else numpy.eye(last.out_features)[labels.astype(int)]  # [X,C]
    inputs = numpy.hstack([torch.cat(vectors).numpy(), numpy.ones((len(labels), 1))])  # [X,D+1]
    # States behind a LayerNorm depend on each other up to the rounding of float32: what is below it is no direction.
    rounding = float(numpy.finfo(numpy.float32).eps) * max(inputs.shape)
    solution = torch.from_numpy(numpy.linalg.lstsq(inputs, targets, rcond=rounding)[0])  # [D+1,C]
    with torch.no_grad():
        last.weight.copy_(solution[:-1].T)
        last.bias.copy_(solution[-1])
