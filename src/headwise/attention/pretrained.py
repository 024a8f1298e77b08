"""Read saved models: the only module that calls `from_pretrained` and `from_config` of transformers.

Nothing in a model folder is run: no Python files (trust_remote_code=False) and no pickles (use_safetensors=True). What
is wrong with a folder is an InputError that says the file, the problem and the fix; the caller puts the name of the
model before it.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy
import transformers
from numpy.typing import ArrayLike
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel

from headwise.errors import InputError

# None of them can be larger than the largest side of a weight.
WIDTHS = ("hidden_size", "num_attention_heads", "intermediate_size", "embedding_size")
MOST_LAYERS = 1000
# Without weights to compare with.
WIDEST = 10_000_000
# Image encoders may name a vocabulary that they do not have: only a model with one of these must have its rows.
TOKEN_WEIGHTS = ("word_embeddings", "embed_tokens", "tok_embeddings", "wte")
MOST_TOKENS = 2_000_000
# Positions may be computed, so no weight has to have as many rows.
MOST_POSITIONS = 10_000_000
_CONFIGS = ("config.json", "tokenizer_config.json")
_ADAPTER = "adapter_config.json"
_PICKLES = ("pytorch_model*.bin", "model*.bin", "*.pt", "*.pth", "*.ckpt")
_WEIGHTS = "model*.safetensors"
_FIX = "copy the file again, or save the model again"
_LOG = logging.getLogger(__name__)


def check_sizes(config: Any, folder: Path) -> None:
    """Refuse, by a ValueError, sizes that no model with these weights can have, and numbers that are not finite."""
    for name, value in config.to_dict().items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"config.json says {name} {value}, expected a finite number")
    sides: dict[str, int] = {}  # the largest side of every weight
    try:
        for path in folder.glob("*.safetensors"):
            with safe_open(str(path), framework="pt") as weights:
                sides |= {name: max(weights.get_slice(name).get_shape(), default=1) for name in weights.keys()}
    except (OSError, SafetensorError):  # which is reported where they are loaded
        sides = {}
    widest = max(sides.values(), default=WIDEST)
    has_tokens = any(part in name for name in sides for part in TOKEN_WEIGHTS)
    limits = {"num_hidden_layers": MOST_LAYERS, **dict.fromkeys(WIDTHS, widest)}
    limits |= {"vocab_size": widest if has_tokens else MOST_TOKENS, "max_position_embeddings": MOST_POSITIONS}
    for name, limit in limits.items():
        value = getattr(config, name, None)
        if isinstance(value, int) and not 1 <= value <= limit:
            raise ValueError(f"config.json says {name} {f'{value}':.30}, expected a whole number from 1 to {limit}")


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


def read_model(
    kind: Any, name: str | Path, *, local_only: bool = True, called: str | None = None, **options: Any
) -> Any:
    """The model of a folder or Hub name with its weights.

    Args:
        kind: a model class of transformers.
        name: folder or Hub name.
        local_only: never use the network.
        called: how its user calls it, for the log.
        options: more for `from_pretrained`.
    """
    folder = Path(name)
    _LOG.info("loading %s", called or name)
    _check_folder(folder)
    if folder.is_dir() and not holds_weights(folder):
        pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
        if pickles:  # which can run code when they are loaded
            raise InputError(
                f"its weights are a pickle ({pickles[0]}), which headwise never loads: convert them to safetensors, by "
                "loading the model with transformers and calling save_pretrained."
            )
    try:
        return kind.from_pretrained(
            name, local_files_only=local_only, trust_remote_code=False, use_safetensors=True, **options
        )
    except Exception:
        check_readable(folder)
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
    name, kind = names[0], None
    if isinstance(name, str) and name.isidentifier() and name in dir(transformers):
        kind = getattr(transformers, name)
    if (
        not isinstance(kind, type)
        or not issubclass(kind, PreTrainedModel)
        or not kind.__module__.startswith("transformers.models.")
        or kind.config_class is not type(config)
        or kind.forward is nn.Module.forward  # an abstract class
    ):
        raise InputError(
            f"config.json names the model class {name!r:.80}, which transformers {transformers.__version__} does "
            f"not have for {config.model_type} models: correct architectures, or install the version that saved it."
        )
    return kind


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


def check_vocabulary(tokenizer: Any, model: Any) -> None:
    """Refuse a tokenizer with a token for which the model has no embedding, also one that it adds around texts."""
    around: list[int] = tokenizer("a", "a")["input_ids"]
    check_tokens([*tokenizer.get_vocab().values(), *around], tokenizer, model)


def check_tokens(ids: ArrayLike, tokenizer: Any, model: Any) -> None:
    """Refuse ids of tokens for which the model has no embedding: it would fail in the middle of a batch."""
    rows = model.get_input_embeddings().num_embeddings
    last = max(int(numpy.max(ids, initial=0)), tokenizer.pad_token_id or 0)
    if last >= rows:
        raise InputError(
            f"the tokenizer of {tokenizer.name_or_path} gives tokens up to number {last}, and the model has embeddings "
            f"for {rows}: one of its files was changed; restore it, or save the model again."
        )


def _check_folder(folder: Path) -> None:
    """Refuse a folder that asks for code: Python files, kernels, or an adapter, which may name modules too."""
    if not folder.is_dir():
        return
    for name in _CONFIGS:
        try:
            content = json.loads((folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):  # which transformers reports
            continue
        if not isinstance(content, dict):
            continue
        auto_map = content.get("auto_map")
        for each in auto_map.values() if isinstance(auto_map, dict) else [auto_map]:
            for reference in each if isinstance(each, list | tuple) else [each]:
                # Those of other repositories (repo--module.Class) are not here.
                file = f"{reference.partition('.')[0]}.py" if isinstance(reference, str) else ""
                if "--" in file or not (folder / file).is_file():
                    continue
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
