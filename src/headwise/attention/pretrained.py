"""Read models of other people: the only place that calls `from_pretrained` and `from_config` of transformers.

Nothing that a model folder holds is run: no Python files (trust_remote_code=False) and no pickles
(use_safetensors=True). What is wrong with a folder is an InputError that says the file, the problem and the fix; the
caller puts the name of the model before it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import transformers
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel

from headwise.errors import InputError

# The sizes in a config.json, held against the weights beside it.


LAYERS = "num_hidden_layers"
# None of them can be larger than the largest side of a weight.
WIDTHS = ("hidden_size", "num_attention_heads", "intermediate_size", "embedding_size")
MOST_LAYERS = 1000
# Without weights to look at.
WIDEST = 10_000_000
# Image encoders may name a vocabulary that they do not have: only a model with one of these must have its rows.
TOKEN_WEIGHTS = ("word_embeddings", "embed_tokens", "tok_embeddings", "wte")
MOST_TOKENS = 2_000_000
# Positions may be computed, so no weight has to have as many rows.
MOST_POSITIONS = 10_000_000


def check_sizes(config: Any, folder: Path) -> None:
    """Refuse, by a ValueError, sizes that no model with these weights can have, and numbers that are not finite."""
    for name, value in config.to_dict().items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"config.json says {name} {value}, expected a finite number")
    sides = _largest_sides(folder)
    widest = max(sides.values(), default=WIDEST)
    has_tokens = any(part in name for name in sides for part in TOKEN_WEIGHTS)
    limits = {LAYERS: MOST_LAYERS, **dict.fromkeys(WIDTHS, widest)}
    limits |= {"vocab_size": widest if has_tokens else MOST_TOKENS, "max_position_embeddings": MOST_POSITIONS}
    for name, limit in limits.items():
        value = getattr(config, name, None)
        if isinstance(value, int) and not 1 <= value <= limit:
            raise ValueError(f"config.json says {name} {f'{value}':.30}, expected a whole number from 1 to {limit}")


def _largest_sides(folder: Path) -> dict[str, int]:
    """The largest side of every weight; none if they cannot be read, which is reported where they are loaded."""
    sides: dict[str, int] = {}
    for path in folder.glob("*.safetensors"):
        try:
            with safe_open(str(path), framework="pt") as weights:
                sides |= {name: max(weights.get_slice(name).get_shape(), default=1) for name in weights.keys()}
        except (OSError, SafetensorError):
            return {}
    return sides


_CONFIGS = ("config.json", "tokenizer_config.json")
_ADAPTER = "adapter_config.json"
_PICKLES = ("pytorch_model*.bin", "model*.bin", "*.pt", "*.pth", "*.ckpt")
_WEIGHTS = "model*.safetensors"
_FIX = "copy the file again, or save the model again"


def read_config(name: str | Path, *, local_only: bool = True) -> Any:
    """The config of a model by folder or Hub name."""
    _check_folder(Path(name))
    config = AutoConfig.from_pretrained(name, local_files_only=local_only, trust_remote_code=False)
    check_sizes(config, Path(name))
    return config


def read_tokenizer(name: str | Path, *, local_only: bool = True) -> Any:
    """The tokenizer of a model by folder or Hub name."""
    _check_folder(Path(name))
    return AutoTokenizer.from_pretrained(name, local_files_only=local_only, trust_remote_code=False)


def read_model(kind: Any, name: str | Path, *, local_only: bool = True, **options: Any) -> Any:
    """The model of a folder or Hub name with its weights.

    Args:
        kind: a model class of transformers.
        name: folder or Hub name.
        local_only: never use the network.
        options: more for `from_pretrained`.
    """
    _check_folder(Path(name))
    _check_weight_files(Path(name))
    try:
        return kind.from_pretrained(
            name, local_files_only=local_only, trust_remote_code=False, use_safetensors=True, **options
        )
    except Exception:
        check_readable(Path(name))
        raise


def build_model(auto: Any, config: Any) -> Any:
    """A model with random weights, made by an Auto class of transformers."""
    return auto.from_config(config, trust_remote_code=False)


@contextmanager
def open_weights(path: Path, fix: str = _FIX) -> Iterator[Any]:
    """A file of weights, opened; a damaged one is named, with the fix."""
    try:
        with safe_open(str(path), framework="pt") as file:
            yield file
    except (OSError, ValueError, SafetensorError) as error:
        raise InputError(f"{path.name} is damaged ({reason_of(error).rstrip('.')}): {fix}.") from error


def read_tensors(path: Path, prefix: str = "") -> dict[str, Tensor]:
    """The tensors of a file whose names begin so."""
    with open_weights(path) as file:
        return {name: file.get_tensor(name) for name in file.keys() if name.startswith(prefix)}


def check_readable(folder: Path, fix: str = _FIX) -> None:
    """Name the file of weights that cannot be read, if there is one, and the fix."""
    for path in sorted(folder.glob("*.safetensors")) if folder.is_dir() else ():
        with open_weights(path, fix):
            pass


def holds_weights(folder: Path) -> bool:
    """Whether a folder has weights that can be loaded."""
    return any(folder.glob(_WEIGHTS))


def class_named_in(config: PreTrainedConfig) -> type[PreTrainedModel]:
    """The model class of transformers that a config names (architectures), the one that was saved.

    Only a model class that transformers exports, and only one for configs of this type.
    """
    names = config.architectures
    if not isinstance(names, list | tuple) or not names:
        raise InputError("config.json names no model class (architectures): save the model with save_pretrained.")
    kind = getattr(transformers, names[0]) if _is_exported(names[0]) else None
    if not _builds(kind, type(config)):
        raise InputError(
            f"config.json names the model class {names[0]!r:.80}, which transformers {transformers.__version__} does "
            f"not have for {config.model_type} models: correct architectures, or install the version that saved it."
        )
    return kind  # type: ignore[return-value]


def class_in(mapping: Mapping[Any, Any], config: PreTrainedConfig, purpose: str) -> type[PreTrainedModel]:
    """The model class for a config in one of transformers' tables, such as MODEL_MAPPING.

    Args:
        mapping: from config classes to model classes.
        config: of the model.
        purpose: for the message if there is none, such as "text classification".
    """
    try:
        found = mapping[type(config)]
    except KeyError:
        raise InputError(f"transformers has no {config.model_type} model for {purpose}: use another model.") from None
    kinds = found if isinstance(found, tuple) else (found,)
    named = [kind for kind in kinds if kind.__name__ in (config.architectures or ())]
    kind: type[PreTrainedModel] = (named or list(kinds))[0]
    return kind


def reason_of(error: BaseException) -> str:
    """What is wrong, in one line."""
    text = str(error).strip()
    if "trust_remote_code" in text:
        return (
            "it needs Python code from outside transformers (auto_map), which headwise never runs: use a model whose "
            "class transformers has"
        )
    line = text.splitlines()[0] if text else type(error).__name__
    plain = isinstance(error, OSError | ValueError | RuntimeError | SafetensorError)
    return line if plain else f"{type(error).__name__}, {line}"


def _is_exported(name: Any) -> bool:
    return isinstance(name, str) and name.isidentifier() and name in dir(transformers)


def _builds(kind: Any, config: type) -> bool:
    """Whether this is a model class, not an abstract one, for such configs."""
    return (
        isinstance(kind, type)
        and issubclass(kind, PreTrainedModel)
        and kind.__module__.startswith("transformers.models.")
        and kind.config_class is config
        and kind.forward is not nn.Module.forward
    )


def _check_folder(folder: Path) -> None:
    """Refuse a folder that asks for code: Python files, kernels, or an adapter, which may name modules too."""
    if not folder.is_dir():
        return
    for name in _CONFIGS:
        content = _content(folder / name)
        for file in _own_files(content.get("auto_map")):
            if (folder / file).is_file():
                raise InputError(
                    f"{name} names Python code (auto_map: {file}), which headwise never runs: use a model "
                    "whose class transformers has; if it has this one, remove auto_map."
                )
        kernel = content.get("attn_implementation")
        if isinstance(kernel, str) and "/" in kernel:
            raise InputError(
                f"{name} names attention code on the Hub (attn_implementation: {kernel:.80}), which headwise never "
                "runs: remove attn_implementation."
            )
    if (folder / _ADAPTER).is_file():
        raise InputError(
            f"it holds an adapter ({_ADAPTER}): merge it into its model (merge_and_unload), and save that model."
        )


def _own_files(auto_map: Any) -> Iterator[str]:
    """The Python files that an auto_map names; those of other repositories (repo--module.Class) are not here."""
    given = auto_map.values() if isinstance(auto_map, dict) else [auto_map]
    for each in given:
        for reference in each if isinstance(each, list | tuple) else [each]:
            if isinstance(reference, str) and "--" not in reference:
                yield f"{reference.partition('.')[0]}.py"


def _content(path: Path) -> dict[str, Any]:
    """A JSON object; empty if it cannot be read, which transformers reports."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _check_weight_files(folder: Path) -> None:
    """Refuse a folder whose weights are pickles, which can run code when they are loaded."""
    if not folder.is_dir() or holds_weights(folder):
        return
    pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
    if pickles:
        raise InputError(
            f"its weights are a pickle ({pickles[0]}), which headwise never loads: convert them to safetensors, by "
            "loading the model with transformers and calling save_pretrained."
        )
