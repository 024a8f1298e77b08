"""A trained model on disk: an ordinary folder of transformers, and what plain transformers has no place for."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any

from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import MODEL_MAPPING, AutoConfig, AutoModelForSequenceClassification

from headwise.attention.pretrained import (
    build_model,
    class_in,
    class_named_in,
    read_config,
    read_model,
    read_tensors,
    read_tokenizer,
    reason_of,
)
from headwise.attention.surgery import prune_structure, pruned_class, pruned_in
from headwise.disk import save_content
from headwise.errors import DiskError, HeadwiseError, InputError, choices, is_panic
from headwise.limits import parse_json
from headwise.ssa import TOKEN_HEAD, supervision_of
from headwise.training.classifier import head_name, restore_head, settings_in
from headwise.training.encoders import TASKS_KEY

if TYPE_CHECKING:
    from headwise.training.multitask import MultiTask

RECORD = "headwise.json"
# The head of a classifier, or the token head of SSA.
HEAD_FILE = "headwise_head.safetensors"
# The heads of several tasks.
HEADS_FILE = "headwise_heads.safetensors"
# Of sentence-transformers: what its CrossEncoder does with the one logit of a re-ranker. Raw logits order candidates
# without the ties that a sigmoid rounded to 1 would make.
CROSS_ENCODER = {"activation_fn": "torch.nn.modules.linear.Identity"}
# At the end of the model card of a model that transformers cannot load as it is.
LOADING_NOTE = """

## How to load it

A part of this model has no class in transformers (pruned heads, another classifier or a token head). Load it with
headwise:

```python
import headwise
from huggingface_hub import snapshot_download

model = headwise.load(snapshot_download("{repo}"))
```
"""
# Where torch's own allocator puts tensors, in bytes.
ALIGNED = 64


# -- saving ------------------------------------------------------------------------------------------------------------


def prepare_reranker(model: Any, tokenizer: Any, max_length: int) -> None:
    """Let the CrossEncoder of sentence-transformers cut texts as we do, and give the scores that we give."""
    model.config.sentence_transformers = dict(CROSS_ENCODER)
    tokenizer.model_max_length = max_length


def save_classifier(model: Any, tokenizer: Any, folder: Path, head: str) -> None:
    """Write model and tokenizer so that plain transformers loads them.

    What plain transformers has no place for lies in a file beside the model, where `load_classifier_folder` finds it.
    With SSA as co-training that is the token head alone. No BERT of transformers reads means of tokens, has the ReLU
    head (Eq. 7) or pools as the hybrid model of SSA does: then it is the whole head, so that plain transformers loads
    the encoder, and nobody takes the rest for a classifier that works.
    """
    plain = head_name(head) == "cls"
    supervision = supervision_of(model)
    if plain and supervision is None:
        model.save_pretrained(folder)
    else:
        weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
        if plain and supervision is not None and not supervision.pools:
            rest = {name: tensor for name, tensor in weights.items() if name.startswith(f"{TOKEN_HEAD}.")}
            model.save_pretrained(folder, state_dict={name: weights[name] for name in weights if name not in rest})
        else:
            base, config = model.base_model, model.config.to_dict()
            base.save_pretrained(folder)
            AutoConfig.for_model(**(config | {"architectures": [type(base).__name__]})).save_pretrained(folder)
            prefix = f"{model.base_model_prefix}."
            rest = {name: tensor for name, tensor in weights.items() if not name.startswith(prefix)}
        save_file(rest, str(folder / HEAD_FILE))
    save_tokenizer(tokenizer, folder)


def save_multitask(model: MultiTask, tokenizer: Any | None, folder: Path) -> None:
    """Write encoder, heads and tokenizer.

    Plain transformers loads the encoder (AutoModel); `load_task` puts a task's head on it.
    """
    encoder, config = model.encoder, copy.deepcopy(model.encoder.config)
    encoder.save_pretrained(folder)
    for name in ("id2label", "label2id", "problem_type"):  # of a task
        config.__dict__.pop(name, None)
    config.architectures = [type(encoder).__name__]
    entries: list[dict[str, Any]] = []
    heads: dict[str, Tensor] = {}
    for task, head in zip(model.tasks, model.heads, strict=True):
        about = model.classifier(task).config
        labels = [about.id2label[number] for number in range(about.num_labels)]
        entries.append({"name": task, "labels": labels, "problem": about.problem_type})
        heads |= {f"{task}/{name}": tensor.contiguous() for name, tensor in head.state_dict().items()}
    setattr(config, TASKS_KEY, entries)
    config.save_pretrained(folder)
    save_file(heads, str(folder / HEADS_FILE))
    if tokenizer is not None:
        save_tokenizer(tokenizer, folder)


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Write a tokenizer as it was loaded."""
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()  # left behind by the last call, and nothing that the next user asked for
    backend.no_padding()
    tokenizer.save_pretrained(folder)


# -- loading -----------------------------------------------------------------------------------------------------------


def load(folder: Path | str, task: str | None = None) -> nn.Module:
    """The model of a run, or of any folder that `save_pretrained` made, with all that headwise added to it.

        model = hw.load("runs/rte-seed1")
        model = hw.load("runs/joint-seed1", task="rte")
        model = hw.load("smaller")              # what hw.prune left, of the class that was saved

    An ordinary model of transformers in evaluation mode, of the class that its config.json names: a classifier, a
    masked language model, a bare encoder. Of a run on several tasks, one task's classifier; without `task` all of them,
    as one `MultiTask`. `push_to_hub` is that of transformers; where only headwise can load the model, the model card
    says so.
    """
    folder = Path(folder).expanduser()
    if not (folder / "config.json").is_file():
        raise InputError(f"{folder} holds no model: expected a folder with a config.json; name a finished run.")
    if tasks_in(folder):
        return load_multitask(folder) if task is None else load_task(folder, task)
    if task is not None:
        raise InputError(f"{folder} holds one classifier, not several tasks: leave task={task!r} out.")
    head = run_settings(folder)[0]
    model = _load_model(folder, head)
    if head == "cls" and (folder / HEAD_FILE).is_file():  # its classifier is there, and nothing says of which kind
        check_classifier(folder, model)
    _note_how_to_load(model)
    return model


def load_trained(folder: Path | str) -> nn.Module:
    """Like `load`, for those who need a trained classifier: a model without one is refused."""
    model, folder = load(folder), Path(folder).expanduser()
    if not tasks_in(folder) and run_settings(folder)[0] == "cls":
        check_classifier(folder, model)
    return model


def load_classifier_folder(folder: Path, head: str) -> tuple[nn.Module, Any]:
    """The classifier of a run, ready to predict, and its tokenizer."""
    tokenizer = load_tokenizer(folder)
    return _load_model(folder, head), tokenizer


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a run."""
    with in_one_sentence(folder):
        return read_tokenizer(folder)


def check_classifier(folder: Path, model: nn.Module) -> None:
    """Refuse a model without a trained classifier."""
    config: Any = model.config
    if supervision_of(model) is None and not holds_classifier(config):
        names = ", ".join(architectures_in(config)) or "model"
        raise InputError(f"{folder} holds a {names} without a trained classifier: name a finished run.")


def holds_classifier(config: Any) -> bool:
    """Whether plain transformers finds a trained classifier beside this config."""
    classifiers = ("ForSequenceClassification", "ForTokenClassification")
    return any(name.endswith(classifiers) for name in architectures_in(config))


def architectures_in(config: Any) -> list[str]:
    """The classes of transformers that a config names."""
    return [str(name) for name in config.architectures] if isinstance(config.architectures, list) else []


def run_settings(folder: Path) -> tuple[str, int | None]:
    """The head and the longest input of a run of headwise; for other folders the head of the config, and None."""
    path = folder / RECORD
    if not path.is_file():
        with in_one_sentence(folder):
            return (settings_in(read_config(folder)) or {"kind": "cls"})["kind"], None
    try:
        recipe = parse_json(path.read_text(encoding="utf-8"))["recipe"]
        several = ", ".join(recipe.get("tasks", ()))
        settings = "" if several else head_name(str(recipe["head"])), int(recipe["data"]["max_length"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise InputError(f"{path} is damaged ({type(error).__name__}): train again.") from error
    if several:
        raise InputError(f"{folder} has several tasks ({several}): expected a run on one.")
    return settings


@contextmanager
def in_one_sentence(folder: Path) -> Iterator[None]:
    """What is wrong with the files of a model, by its folder.

    Libraries raise all kinds of errors for damaged files, tokenizers a bare Exception.
    """
    try:
        yield
    except (InputError, DiskError) as error:
        raise InputError(f"the model in {folder} cannot be loaded: {error}") from error
    except (HeadwiseError, MemoryError):
        raise
    except BaseException as error:  # other people's files, in which anything may be wrong
        if not (isinstance(error, Exception) or is_panic(error)):
            raise
        raise InputError(
            f"the model in {folder} cannot be loaded: {reason_of(error).rstrip('.')}; restore its files, or save the "
            "model again."
        ) from error


# -- one classifier, or any other model --------------------------------------------------------------------------------


def _load_model(folder: Path, head: str) -> nn.Module:
    """The model of a run or of any folder, of the class that its config names, ready to predict."""
    from headwise.ssa.supervise import reattach
    from headwise.ssa.supervise import settings_in as token_head_in

    with in_one_sentence(folder):
        config = read_config(folder)
        token_head, pruned = token_head_in(config), pruned_in(config)
        model: Any
        plain = settings_in(config) is None and head_name(head) == "cls"
        if plain and (token_head is None or holds_classifier(config)):
            model = _read(class_named_in(config), pruned, folder)
            if token_head is not None:
                reattach(model, token_head)
                name = f"{TOKEN_HEAD}."
                weights = _tensors(folder, name)  # where `model.save_pretrained` puts them, or from the file beside
                if not weights and (folder / HEAD_FILE).is_file():
                    weights = read_tensors(folder / HEAD_FILE, name)
                _fill(model, weights, lambda each: each.startswith(name))
        else:
            model = prune_structure(build_model(AutoModelForSequenceClassification, config), pruned)
            restore_head(model, head)
            if token_head is not None:
                reattach(model, token_head)
            needed = {*model.base_model.state_dict()}
            encoder: Any = _read(class_in(MODEL_MAPPING, config, "text"), pruned, folder, needed)
            model.to(encoder.dtype)
            weights = {name: tensor for name, tensor in encoder.state_dict().items() if name in needed}
            model.base_model.load_state_dict(weights)
            prefix = f"{model.base_model_prefix}."
            # `model.save_pretrained` puts the head where the encoder is.
            head_weights = _tensors(folder) if holds_classifier(config) else read_tensors(folder / HEAD_FILE)
            _fill(model, head_weights, lambda each: not each.startswith(prefix))
        # Loading maps the file into memory, where a tensor may begin anywhere. On some processors a product of a matrix
        # and a vector, such as a classifier of one output, has other last bits there, so that a saved model would not
        # answer to the last digit as it did when it was trained.
        for parameter in model.parameters():
            if parameter.data_ptr() % ALIGNED:
                parameter.data = parameter.data.clone()
        return model.eval()  # type: ignore[no-any-return]


def _note_how_to_load(model: Any) -> None:
    """Let the card that `push_to_hub` writes say how to load a model that transformers cannot."""
    if pruned_in(model.config) or settings_in(model.config) or supervision_of(model) is not None:
        model._upload_modified_files = MethodType(_upload_with_loading_note, model)


def _upload_with_loading_note(model: Any, working_dir: str, repo_id: str, *args: Any, **options: Any) -> Any:
    """What transformers does at the end of `push_to_hub`, with a note in the card."""
    card = Path(working_dir) / "README.md"
    text = card.read_text(encoding="utf-8")
    if "headwise.load" not in text:
        save_content(card, text.rstrip() + LOADING_NOTE.format(repo=repo_id))
    return type(model)._upload_modified_files(model, working_dir, repo_id, *args, **options)


def _read(kind: Any, pruned: Mapping[str, Any], folder: Path, needed: set[str] | None = None) -> nn.Module:
    """Loaded by transformers into a model that loses its heads as soon as it is built.

    Of a token head, for which it has no place, transformers says nothing. No weight that is needed may be missing.
    """
    source = pruned_class(kind, pruned, rf"^{TOKEN_HEAD}\.")
    more: dict[str, Any] = {}
    while True:
        model, found = read_model(source, folder, ignore_mismatched_sizes=True, output_loading_info=True, **more)
        missing = {*found["missing_keys"], *(key[0] for key in found["mismatched_keys"])}
        missing &= missing if needed is None else needed
        pools = "add_pooling_layer" in inspect.signature(kind.__init__).parameters
        if more or not missing or not pools or not all(name.startswith("pooler.") for name in missing):
            break
        more = {"add_pooling_layer": False}  # as it was built before it was saved
    model.__class__ = kind
    _refuse(sorted(missing))
    return model  # type: ignore[no-any-return]


def _fill(model: nn.Module, weights: dict[str, Tensor], needed: Callable[[str], bool]) -> None:
    """Load weights of which none that is needed may be missing."""
    shapes = {name: tensor.shape for name, tensor in weights.items()}
    _refuse([name for name, own in model.state_dict().items() if needed(name) and shapes.get(name) != own.shape])
    model.load_state_dict(weights, strict=False)


def _refuse(odd: list[str]) -> None:
    """No weight may be missing: it would stay random."""
    if odd:
        raise InputError(f"{len(odd)} of its weights are missing or of another size, {odd[0]} first; save it again.")


def _tensors(folder: Path, prefix: str = "") -> dict[str, Tensor]:
    """From the model's own files."""
    tensors: dict[str, Tensor] = {}
    for file in sorted(folder.glob("model*.safetensors")):
        tensors |= read_tensors(file, prefix)
    return tensors


# -- several tasks -----------------------------------------------------------------------------------------------------


def tasks_in(folder: Path) -> dict[str, Any]:
    """What the config of a folder says about its tasks, by name; empty if it holds one classifier or none."""
    with in_one_sentence(folder):
        config = read_config(folder)
    alone = (folder / HEAD_FILE).is_file() and not (folder / HEADS_FILE).is_file()
    if alone or holds_classifier(config):  # one that began as such a folder, and may have its config still
        return {}
    entries = getattr(config, TASKS_KEY, None) or []
    whole = isinstance(entries, list) and all(
        isinstance(about, dict)
        and isinstance(about.get("name"), str)
        and isinstance(about.get("labels"), list)
        and all(isinstance(label, str) for label in about["labels"])
        and isinstance(about.get("problem", 0), str | None)
        for about in entries
    )
    if not whole:
        raise InputError(
            f"the config in {folder} has a damaged {TASKS_KEY} ({f'{entries!r}':.60}): save the model again."
        )
    return {about["name"]: about for about in entries}


def load_task(folder: Path, task: str) -> Any:
    """The classifier of one task, as plain transformers has it, in evaluation mode."""
    tasks = tasks_in(folder)
    if task not in tasks:
        raise InputError(f"{folder} has no task {task!r}: {choices(str(task), tasks)}.")
    with in_one_sentence(folder):
        return _task_classifier(folder, tasks[task], _tensors(folder))


def load_multitask(folder: Path) -> MultiTask:
    """All tasks on one encoder, in evaluation mode."""
    from headwise.training.multitask import MultiTask

    tasks = tasks_in(folder)
    with in_one_sentence(folder):
        weights = _tensors(folder)
        parts: dict[str, Any] = {}
        for task, about in tasks.items():  # of their encoders only the first stays
            parts[task] = _task_classifier(folder, about, None if parts else weights)
        model = MultiTask(parts)
    model.eval()
    return model


def _task_classifier(folder: Path, about: dict[str, Any], encoder: dict[str, Tensor] | None) -> Any:
    """A task's classifier; without weights for its encoder, that stays random."""
    config = read_config(folder)
    delattr(config, TASKS_KEY)
    config.id2label = dict(enumerate(about["labels"]))
    config.label2id = {label: number for number, label in enumerate(about["labels"])}
    config.problem_type = about["problem"]
    model: Any = build_model(AutoModelForSequenceClassification, config)
    prune_structure(model, pruned_in(config))
    model.accepts_loss_kwargs = False
    own, prefix = f"{about['name']}/", f"{model.base_model_prefix}."
    heads = read_tensors(folder / HEADS_FILE)
    if encoder is not None:
        _fill(model.base_model, encoder, lambda name: True)
    weights = {name.removeprefix(own): tensor for name, tensor in heads.items() if name.startswith(own)}
    _fill(model, weights, lambda name: not name.startswith(prefix))
    return model.eval()
