"""Classes of transformers that lose heads as soon as they are built, for loading weights of pruned models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwise.attention.surgery import prune_structure


def pruned_class(kind: Any, pruned: Mapping[str, Any], ignored: str | None = None) -> Any:
    """A class like `kind`, of the same name, whose models are built without some heads.

    Give the loaded model its own class back (`model.__class__ = kind`).

    Args:
        kind: a class of transformers.
        pruned: the heads that are gone, by layer; none for `kind` as it is.
        ignored: a pattern of weights for which transformers has no place, and of which it shall say nothing.
    """

    def build(self: Any, *args: Any, **options: Any) -> None:
        kind.__init__(self, *args, **options)
        prune_structure(self, pruned)

    known = [*(kind._keys_to_ignore_on_load_unexpected or ()), *([] if ignored is None else [ignored])]
    # By name and module transformers knows which weights have other names on disk (those of ViT have).
    own = {"__init__": build, "__module__": kind.__module__, "_keys_to_ignore_on_load_unexpected": known}
    return type(kind.__name__, (kind,), own)
