"""A trained classifier on disk: an ordinary folder of transformers."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
from headwise.errors import DiskError, HeadwiseError, InputError, choices, is_panic
from headwise.limits import parse_json
from headwise.ssa import TOKEN_HEAD, supervision_of
from headwise.training.classifier import MultiTask, change_head

# Weights where training would have put them in memory.


# What torch's own allocator gives, in bytes.
ALIGNED = 64


def align(model: nn.Module) -> nn.Module:
    """Move weights that a file left at an odd address; returns the model.

    Loading maps the file into memory, where a tensor may begin anywhere. On some processors a product of a matrix and
    a vector, such as a classifier of one output, has other last bits there, so that a saved model would not answer to
    the last digit as it did when it was trained.
    """
    for parameter in model.parameters():
        if parameter.data_ptr() % ALIGNED:
            parameter.data = parameter.data.clone()
    return model


HEAD_FILE = "headwise_head.safetensors"
# What encoders call their option for a pooler.
_POOLS = "add_pooling_layer"


# Of sentence-transformers: what its CrossEncoder does with the one logit of a re-ranker. Raw logits order candidates
# without the ties that a sigmoid rounded to 1 would make.
CROSS_ENCODER = {"activation_fn": "torch.nn.modules.linear.Identity"}


def prepare_reranker(model: Any, tokenizer: Any, max_length: int) -> None:
    """Let the CrossEncoder of sentence-transformers cut texts as we do, and give the scores that we give."""
    model.config.sentence_transformers = dict(CROSS_ENCODER)
    tokenizer.model_max_length = max_length


def save_classifier(model: Any, tokenizer: Any, folder: Path, head: str) -> None:
    """Write model and tokenizer so that plain transformers loads them.

    What plain transformers has no place for lies in a file beside the model, where `load_classifier_folder` finds it.
    With SSA as co-training that is the token head alone. No BERT of transformers has the ReLU head (Eq. 7) or pools as
    the hybrid model of SSA does: then it is the whole head, so that plain transformers loads the encoder, and nobody
    takes the rest for a classifier that works.
    """
    supervision = supervision_of(model)
    if head == "pooler" and supervision is None:
        model.save_pretrained(folder)
    elif head == "pooler" and supervision is not None and not supervision.pools:
        own, rest = _parted(model, lambda name: name.startswith(f"{TOKEN_HEAD}."))
        model.save_pretrained(folder, state_dict=own)
        save_file(rest, str(folder / HEAD_FILE))
    else:
        base = model.base_model
        config = model.config.to_dict()
        base.save_pretrained(folder)
        AutoConfig.for_model(**(config | {"architectures": [type(base).__name__]})).save_pretrained(folder)
        _, rest = _parted(model, lambda name: not name.startswith(f"{model.base_model_prefix}."))
        save_file(rest, str(folder / HEAD_FILE))
    save_tokenizer(tokenizer, folder)


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Write the tokenizer as it came."""
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()  # left behind by the last call, and nothing that the next user asked for
    backend.no_padding()
    tokenizer.save_pretrained(folder)


def _parted(model: nn.Module, apart: Callable[[str], bool]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The weights of a model in two parts, by name."""
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    rest = {name: tensor for name, tensor in weights.items() if apart(name)}
    return {name: tensor for name, tensor in weights.items() if name not in rest}, rest


def load_classifier_folder(folder: Path, head: str) -> tuple[nn.Module, Any]:
    """The classifier of a run, ready to predict, and its tokenizer."""
    tokenizer = load_tokenizer(folder)
    return load_model_folder(folder, head), tokenizer


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a run."""
    with in_one_sentence(folder):
        return read_tokenizer(folder)


def load_model_folder(folder: Path, head: str) -> nn.Module:
    """The model of a run or of any folder, of the class that its config names, ready to predict."""
    with in_one_sentence(folder):
        return align(_load(folder, head)).eval()


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


def _load(folder: Path, head: str) -> nn.Module:
    from headwise.ssa.supervise import reattach, settings_in

    config = read_config(folder)
    token_head, pruned = settings_in(config), pruned_in(config)
    if head == "pooler" and token_head is None:
        return _loaded(class_named_in(config), pruned, folder)
    if head == "pooler" and token_head is not None and holds_classifier(config):
        model: Any = _loaded(class_named_in(config), pruned, folder)
        reattach(model, token_head)
        fill(model, _token_head_weights(folder), lambda name: name.startswith(f"{TOKEN_HEAD}."))
        return model  # type: ignore[no-any-return]
    model = prune_structure(build_model(AutoModelForSequenceClassification, config), pruned)
    change_head(model, head)
    if token_head is not None:
        reattach(model, token_head)
    kind = class_in(MODEL_MAPPING, config, "text")
    encoder: Any = _loaded(kind, pruned, folder, {*model.base_model.state_dict()})
    model.to(encoder.dtype)
    wanted = set(model.base_model.state_dict())
    model.base_model.load_state_dict({name: value for name, value in encoder.state_dict().items() if name in wanted})
    fill(model, read_tensors(folder / HEAD_FILE), lambda name: not name.startswith(f"{model.base_model_prefix}."))
    return model  # type: ignore[no-any-return]


def _loaded(kind: Any, pruned: Mapping[str, Any], folder: Path, wanted: set[str] | None = None) -> nn.Module:
    """Loaded by transformers into a model that loses its heads as soon as it is built.

    Of a token head, for which it has no place, transformers says nothing. No weight that is wanted may be missing.
    """
    options: dict[str, Any] = {"ignore_mismatched_sizes": True, "output_loading_info": True}
    source = pruned_class(kind, pruned, rf"^{TOKEN_HEAD}\.")
    model, found = read_model(source, folder, **options)
    missing = _missing(found, wanted)
    if missing and all(name.startswith("pooler.") for name in missing) and _POOLS in _parameters(kind):
        model, found = read_model(source, folder, **options, **{_POOLS: False})  # as it was built before it was saved
        missing = _missing(found, wanted)
    model.__class__ = kind
    _refuse(missing)
    return model  # type: ignore[no-any-return]


def _missing(found: Mapping[str, Any], wanted: set[str] | None) -> list[str]:
    """The weights, of those that are wanted, that the file has not or has in another size."""
    odd = {*found["missing_keys"], *(key[0] for key in found["mismatched_keys"])}
    return sorted(odd if wanted is None else odd & wanted)


def _parameters(kind: Any) -> Mapping[str, Any]:
    return inspect.signature(kind.__init__).parameters


def _refuse(odd: list[str]) -> None:
    """No weight may be missing: it would stay a matter of chance."""
    if odd:
        raise InputError(f"{len(odd)} of its weights are missing or of another size, {odd[0]} first; save it again.")


def fill(model: nn.Module, weights: dict[str, Tensor], wanted: Callable[[str], bool]) -> None:
    """Load weights of which none that is wanted may be missing: it would stay a matter of chance."""
    shapes = {name: tensor.shape for name, tensor in weights.items()}
    odd = [name for name, own in model.state_dict().items() if wanted(name) and shapes.get(name) != own.shape]
    _refuse(odd)
    model.load_state_dict(weights, strict=False)


def holds_classifier(config: Any) -> bool:
    """Whether plain transformers finds a trained classifier beside this config."""
    return any(name.endswith("ForSequenceClassification") for name in architectures_in(config))


def architectures_in(config: Any) -> list[str]:
    """The classes of transformers that a config names."""
    return [str(name) for name in config.architectures] if isinstance(config.architectures, list) else []


def _token_head_weights(folder: Path) -> dict[str, Tensor]:
    """From the model's own files, where `model.save_pretrained` puts them, or from the one beside them."""
    found: dict[str, Tensor] = {}
    for file in sorted(folder.glob("model*.safetensors")):
        found |= read_tensors(file, f"{TOKEN_HEAD}.")
    beside = folder / HEAD_FILE
    return found or (read_tensors(beside, f"{TOKEN_HEAD}.") if beside.is_file() else {})


# Several tasks on disk: the shared encoder as an ordinary folder of transformers, and the tasks' heads in one file.


HEADS_FILE = "headwise_heads.safetensors"
# In the config: the tasks in their order (transformers sorts keys), with what a config of transformers says about one.
TASKS_KEY = "headwise_tasks"
_OF_A_TASK = ("id2label", "label2id", "problem_type")


def save_multitask(model: MultiTask, tokenizer: Any, folder: Path) -> None:
    """Write encoder, heads and tokenizer."""
    save_model(model, folder)
    save_tokenizer(tokenizer, folder)


def save_model(model: MultiTask, folder: Path) -> None:
    """Write encoder and heads.

    Plain transformers loads the encoder (AutoModel); `load_task` puts a task's head on it.
    """
    encoder = model.encoder
    encoder.save_pretrained(folder)
    config = copy.deepcopy(encoder.config)
    for name in _OF_A_TASK:
        config.__dict__.pop(name, None)
    config.architectures = [type(encoder).__name__]
    setattr(config, TASKS_KEY, [_about(task, model.classifier(task).config) for task in model.tasks])
    config.save_pretrained(folder)
    heads = {
        f"{task}/{name}": tensor.contiguous()
        for task, head in zip(model.tasks, model.heads, strict=True)
        for name, tensor in head.state_dict().items()
    }
    save_file(heads, str(folder / HEADS_FILE))


def _about(task: str, config: Any) -> dict[str, Any]:
    labels = [config.id2label[number] for number in range(config.num_labels)]
    return {"name": task, "labels": labels, "problem": config.problem_type}


def tasks_in(folder: Path) -> dict[str, Any]:
    """What the config of a folder says about its tasks, by name; empty if it holds one classifier or none."""
    with in_one_sentence(folder):
        config = read_config(folder)
    alone = (folder / HEAD_FILE).is_file() and not (folder / HEADS_FILE).is_file()
    if alone or holds_classifier(config):  # one that began as such a folder, and may have its config still
        return {}
    found = getattr(config, TASKS_KEY, None) or []
    if not isinstance(found, list) or not all(_is_task_entry(about) for about in found):
        raise InputError(
            f"the config in {folder} has a damaged {TASKS_KEY} ({f'{found!r}':.60}): save the model again."
        )
    return {about["name"]: about for about in found}


def _is_task_entry(about: Any) -> bool:
    """Whether this is what `_about` wrote."""
    return (
        isinstance(about, dict)
        and isinstance(about.get("name"), str)
        and isinstance(about.get("labels"), list)
        and all(isinstance(label, str) for label in about["labels"])
        and isinstance(about.get("problem", 0), str | None)
    )


def load_task(folder: Path, task: str) -> Any:
    """The classifier of one task, as plain transformers has it, in evaluation mode."""
    tasks = tasks_in(folder)
    if task not in tasks:
        raise InputError(f"{folder} has no task {task!r}: {choices(str(task), tasks)}.")
    with in_one_sentence(folder):
        return _task_classifier(folder, task, tasks[task], _encoder_weights(folder))


def load_multitask(folder: Path) -> MultiTask:
    """All tasks on one encoder, in evaluation mode."""
    tasks = tasks_in(folder)
    with in_one_sentence(folder):
        weights = _encoder_weights(folder)
        parts: dict[str, Any] = {}
        for task, about in tasks.items():  # of their encoders only the first stays
            parts[task] = _task_classifier(folder, task, about, None if parts else weights)
        model = MultiTask(parts)
    model.eval()
    return model


def _task_classifier(folder: Path, task: str, about: dict[str, Any], encoder: dict[str, Tensor] | None) -> Any:
    """A task's classifier; without weights for its encoder, that is left to chance."""
    config = read_config(folder)
    delattr(config, TASKS_KEY)
    config.id2label = dict(enumerate(about["labels"]))
    config.label2id = {label: number for number, label in enumerate(about["labels"])}
    config.problem_type = about["problem"]
    model: Any = build_model(AutoModelForSequenceClassification, config)
    prune_structure(model, pruned_in(config))
    model.accepts_loss_kwargs = False
    heads = read_tensors(folder / HEADS_FILE)
    own = {name.removeprefix(f"{task}/"): tensor for name, tensor in heads.items() if name.startswith(f"{task}/")}
    prefix = model.base_model_prefix
    if encoder is not None:
        fill(model.base_model, encoder, lambda name: True)
    fill(model, own, lambda name: not name.startswith(f"{prefix}."))
    return model.eval()


def _encoder_weights(folder: Path) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = {}
    for file in sorted(folder.glob("model*.safetensors")):
        weights |= read_tensors(file)
    return weights


# Load what headwise saved, whatever it has beyond plain transformers.


RECORD = "headwise.json"


def load(folder: Path | str, task: str | None = None) -> nn.Module:
    """The model of a run, or of any folder that `save_pretrained` made, with all that headwise added to it.

        model = hw.load("runs/rte-seed1")
        model = hw.load("runs/joint-seed1", task="rte")
        model = hw.load("smaller")              # what hw.prune left, of the class that was saved

    An ordinary model of transformers in evaluation mode, of the class that its config.json names: a classifier, a
    masked language model, a bare encoder. Of a run on several tasks, one task's classifier; without `task` all of them,
    as one `MultiTask`.
    """
    folder = Path(folder).expanduser()
    if not (folder / "config.json").is_file():
        raise InputError(f"{folder} holds no model: expected a folder with a config.json; name a finished run.")
    tasks = tasks_in(folder)
    if tasks:
        return load_multitask(folder) if task is None else load_task(folder, task)
    if task is not None:
        raise InputError(f"{folder} holds one classifier, not several tasks: leave task={task!r} out.")
    head = run_settings(folder)[0]
    model = load_model_folder(folder, head)
    if head == "pooler" and (folder / HEAD_FILE).is_file():  # its classifier is there, and nothing says of which kind
        check_classifier(folder, model)
    return model


def load_trained(folder: Path | str) -> nn.Module:
    """Like `load`, for those who need a trained classifier: a model without one is refused."""
    model = load(folder)
    if not isinstance(model, MultiTask) and run_settings(Path(folder).expanduser())[0] == "pooler":
        check_classifier(Path(folder), model)
    return model


def check_classifier(folder: Path, model: nn.Module) -> None:
    """Refuse a model without a trained classifier."""
    config: Any = model.config
    if supervision_of(model) is None and not holds_classifier(config):
        names = ", ".join(architectures_in(config)) or "model"
        raise InputError(f"{folder} holds a {names} without a trained classifier: name a finished run.")


def run_settings(folder: Path) -> tuple[str, int | None]:
    """The head and the longest input of a run of headwise; the usual head and None for other folders."""
    path = folder / RECORD
    if not path.is_file():
        return "pooler", None
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
        recipe = content["recipe"] if "asked" in content else content["recipe"]  # the former by headwise 0.1
        several = ", ".join(recipe.get("tasks", ()))
        settings = "" if several else str(recipe["head"]), int(recipe["data"]["max_length"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise InputError(f"{path} is damaged ({type(error).__name__}): train again.") from error
    if several:
        raise InputError(f"{folder} has several tasks ({several}): expected a run on one.")
    return settings
