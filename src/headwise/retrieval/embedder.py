"""Embeddings of texts: one unit vector for each, by a plain encoder or a folder of sentence-transformers.

Shapes: N texts, B texts of a batch, L tokens, D dimensions of a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headwise.attention.pretrained import check_vocabulary
from headwise.cache import digest, file_digest
from headwise.errors import InputError, StateError, choices
from headwise.limits import parse_json
from headwise.training.encoders import Encoder, find_encoder, load_body
from headwise.training.predict import PRECISIONS, packed_linears, stretches, tokens_at_a_time

BUILTIN = "builtin:minilm-l6"
# Tokens of a text that are read: title and first sentences. Most of an abstract, at less than half the time of 512.
LENGTH = 192
# On a processor, tokens of a batch that is worth its own thread.
FEWEST_TOKENS = 256
# Goes into the key: raise it when the same files and settings come to mean other vectors.
FORMAT = 1
MODES = ("cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
# Parts of a sentence-transformers model that are supported, by the last part of their type.
TRANSFORMER, POOLING, NORMALIZE = "Transformer", "Pooling", "Normalize"
# Names of the prompt for papers, in the order in which sentence-transformers looks for them.
PAPER_PROMPTS = ("document", "passage", "corpus")
# Files beside the weights that decide the vectors.
FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt")

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Settings:
    """How texts become vectors; all of it goes into the key."""

    max_length: int
    pooling: tuple[str, ...] = ("mean",)
    query_prompt: str = ""
    paper_prompt: str = ""
    lower: bool = False
    precision: str = "fp32"


class Embedder:
    """An encoder that gives each text a unit vector; the product of two is their cosine."""

    def __init__(self, encoder: Encoder, settings: Settings) -> None:
        """Load the weights of an encoder that was found."""
        self.name, self.max_length, self.settings = encoder.name, settings.max_length, settings
        self.tokenizer, self.model = encoder.tokenizer, load_body(encoder)
        try:
            check_vocabulary(self.tokenizer, self.model)
        except InputError as error:
            raise InputError(f"model {self.name!r}: {error}") from error
        if settings.precision == "fp32":
            self._packed = ExitStack()  # for as long as this object lives
            self._packed.enter_context(packed_linears(self.model))
        self.dimension = int(encoder.config.hidden_size) * len(settings.pooling)
        folder = Path(encoder.path)
        files = [folder / name for name in FILES if (folder / name).is_file()] + sorted(folder.glob("*.safetensors"))
        self.key = digest(
            {"format": FORMAT, "files": {path.name: file_digest(path) for path in files}, **asdict(settings)}
        )

    @classmethod
    def load(cls, source: str | Path = BUILTIN, *, max_length: int | None = None, precision: str = "fp32") -> Embedder:
        """Load an encoder: built in, a folder of transformers, a run of headwise, or a folder of sentence-transformers.

        Plain folders and runs are pooled by the mean. A folder of sentence-transformers says its own pooling and its
        prompts for queries and documents; vectors are normalised in any case.

        Args:
            source: the name of a built-in encoder, or a folder.
            max_length: tokens of a text that are read, the rest is cut off; None: 192, or fewer if the model says so.
            precision: fp32, or bf16 for matrix products in bfloat16.
        """
        name = str(source)
        if precision not in PRECISIONS:
            raise InputError(f"unknown precision {precision!r}: {choices(precision, PRECISIONS)}.")
        if not name.startswith("builtin:") and not Path(name).expanduser().is_dir():
            raise InputError(f"encoder {name!r}: there is no such folder; name a saved model, or {BUILTIN}.")
        encoder = find_encoder(name)
        pooling: tuple[str, ...] = ("mean",)
        lower, limit, prompts = False, None, ("", "")
        folder = Path(encoder.path)
        if (folder / "modules.json").is_file():
            pooling, lower, limit, prompts = _sentence_transformer(folder)
        limits = [each for each in (encoder.longest, limit) if each]
        if max_length is None:
            max_length = min([LENGTH, *limits])
        most, least = encoder.longest, encoder.tokenizer.num_special_tokens_to_add() + 1
        if max_length < least or (most and max_length > most):
            raise InputError(f"max_length {max_length}: {name} takes {least} to {most or 'any number of'} tokens.")
        return cls(encoder, Settings(max_length, pooling, *prompts, lower, precision))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle where it is, not the weights."""
        source = self.name if self.name.startswith("builtin:") else str(Path(self.name).expanduser().resolve())
        return _reload, (source, self.max_length, self.settings.precision)

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        """The tokens of each text as a query, the special ones counted, before it is cut."""
        ids = self.tokenizer(self._with_prompt(texts, queries=True), verbose=False)["input_ids"] if texts else []
        return [len(each) for each in ids]

    def embed(
        self,
        texts: Sequence[str],
        *,
        queries: bool = False,
        batch: int | None = None,
        after_batch: Callable[[int], None] | None = None,
    ) -> Vectors:
        """[N,D] a unit vector for each text, in their order.

        Args:
            texts: claims, or papers as `Document.whole`.
            queries: whether they are claims, for encoders with different prompts.
            batch: texts at a time; None: as many as suit the device, counted in tokens.
            after_batch: called with the number of texts done so far.
        """
        vectors: Vectors = np.empty((len(texts), self.dimension), np.float32)
        if not texts:
            return vectors
        ids = self._ids(texts, queries=queries)
        # Texts of similar length are computed together, so that little is padding.
        order = sorted(range(len(ids)), key=lambda position: -len(ids[position]))
        lengths = [len(ids[position]) for position in order]
        share = max(FEWEST_TOKENS, -(-sum(lengths) // torch.get_num_threads()))  # so that few texts use all cores, too
        tokens = None if batch else min(tokens_at_a_time(self.model), share)
        parts = [order[start:end] for start, end in stretches(lengths, batch or len(ids), tokens)]
        done = 0
        for part, result in zip(
            parts, self._each([[ids[position] for position in part] for part in parts]), strict=True
        ):
            vectors[part] = result
            done += len(part)
            if after_batch is not None:
                after_batch(done)
        if not np.isfinite(vectors).all():
            raise StateError(f"the vectors of {self.name} are not finite: its weights are damaged, or use fp32.")
        return vectors

    def _with_prompt(self, texts: Iterable[str], *, queries: bool) -> list[str]:
        prompt = self.settings.query_prompt if queries else self.settings.paper_prompt
        whole = [prompt + text.strip() for text in texts]
        return [text.lower() for text in whole] if self.settings.lower else whole

    def _ids(self, texts: Sequence[str], *, queries: bool) -> list[list[int]]:
        tokens: list[list[int]] = self.tokenizer(
            self._with_prompt(texts, queries=queries), truncation=True, max_length=self.max_length, verbose=False
        )["input_ids"]
        return tokens

    def _each(self, batches: Sequence[Sequence[Sequence[int]]]) -> Iterator[Vectors]:
        """The vectors of each batch; on a processor by one thread for each core, since none then waits for another."""
        threads = torch.get_num_threads()
        if threads == 1 or next(self.model.parameters()).device.type != "cpu":
            yield from map(self._vectors, batches)
            return
        pool = ThreadPoolExecutor(min(threads, len(batches)), initializer=torch.set_num_threads, initargs=(1,))
        try:
            yield from pool.map(self._vectors, batches)
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(threads)  # a part of the setting is global

    def _vectors(self, ids: Sequence[Sequence[int]]) -> Vectors:
        """[B,D] of texts of which the first is the longest."""
        device = next(self.model.parameters()).device
        inputs = torch.full((len(ids), len(ids[0])), self.tokenizer.pad_token_id or 0)  # [B,L]
        for row, text in zip(inputs, ids, strict=True):
            row[: len(text)] = torch.tensor(text)
        lengths = torch.tensor([len(text) for text in ids])
        mask = torch.arange(inputs.shape[1]) < lengths[:, None]  # [B,L]
        inputs, mask = inputs.to(device), mask.to(device)
        half = self.settings.precision == "bf16"
        with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16) if half else nullcontext():
            # Without padding there is nothing to mask, and attention is faster.
            given = None if bool(mask.all()) else mask.long()
            states = self.model(input_ids=inputs, attention_mask=given).last_hidden_state.float()  # [B,L,D]
        pooled = torch.cat([pool(states, mask, mode) for mode in self.settings.pooling], dim=1)
        vectors: Vectors = nn.functional.normalize(pooled).cpu().numpy()
        return vectors


def _reload(name: str, max_length: int, precision: str) -> Embedder:
    return Embedder.load(name, max_length=max_length, precision=precision)


def pool(states: Tensor, mask: Tensor, mode: str) -> Tensor:
    """[B,L,D], [B,L] bool, True at tokens, which come before the padding -> [B,D], as sentence-transformers does."""
    match mode:
        case "cls":
            return states[:, 0]
        case "max":
            return states.masked_fill(~mask[:, :, None], -torch.inf).amax(1)
        case "lasttoken":
            return states[torch.arange(len(states)), mask.sum(1) - 1]
    weights = mask.float()
    if mode == "weightedmean":
        weights = weights * torch.arange(1, states.shape[1] + 1, device=states.device)
    total = torch.einsum("bld,bl->bd", states, weights)
    counts = weights.sum(1, keepdim=True)
    return total / (counts.sqrt() if mode == "mean_sqrt_len_tokens" else counts)


# -- folders of sentence-transformers ----------------------------------------------------------------------------------


def _sentence_transformer(folder: Path) -> tuple[tuple[str, ...], bool, int | None, tuple[str, str]]:
    """Pooling, whether texts are put in lower case, the longest text in tokens, and the prompts of queries and papers.

    Only the parts that we compute as sentence-transformers does are taken; no code of the folder is run.
    """
    modules = _json(folder / "modules.json", list)
    try:
        parts = [(str(each["type"]).rpartition(".")[2], str(each["path"])) for each in modules]
    except (TypeError, KeyError):
        raise InputError(f"{folder / 'modules.json'} is damaged: expected parts with type and path.") from None
    kinds = [kind for kind, _ in parts]
    if kinds not in ([TRANSFORMER, POOLING], [TRANSFORMER, POOLING, NORMALIZE]) or parts[0][1] not in ("", "."):
        raise InputError(
            f"{folder} has the parts {', '.join(kinds)}: headwise computes {TRANSFORMER}, {POOLING} and {NORMALIZE}, "
            "with the transformer in the folder itself; use another model."
        )
    place = parts[1][1]
    if Path(place).is_absolute() or ".." in Path(place).parts:
        raise InputError(f"{folder / 'modules.json'} names {place!r}, which is outside the folder: save it again.")
    pooling = _json(folder / place / "config.json", dict)
    modes = _pooling_modes(pooling, folder / place / "config.json")
    transformer = _json(folder / "sentence_bert_config.json", dict, missing=True)
    about = _json(folder / "config_sentence_transformers.json", dict, missing=True)
    prompts = _prompts(about)
    if any(prompts) and not pooling.get("include_prompt", True):
        raise InputError(f"{folder} leaves its prompts out of the pooling, which headwise cannot: use another model.")
    longest = transformer.get("max_seq_length")
    longest = longest if isinstance(longest, int) and longest > 0 else None
    return modes, transformer.get("do_lower_case") is True, longest, prompts


def _pooling_modes(config: Mapping[str, Any], path: Path) -> tuple[str, ...]:
    """The modes of a pooling, whose results stand one after the other; older folders have a flag for each."""
    old = {mode: f"pooling_mode_{mode}{'_token' if mode == 'cls' else ''}" for mode in MODES}
    old |= {mode: f"pooling_mode_{mode}_tokens" for mode in ("max", "mean", "weightedmean")}
    modes = config.get("pooling_mode") or [mode for mode in ("cls", "max", *MODES[1:]) if config.get(old[mode]) is True]
    modes = (modes,) if isinstance(modes, str) else tuple(dict.fromkeys(modes)) or ("mean",)
    if unknown := [mode for mode in modes if mode not in MODES]:
        raise InputError(f"{path}: unknown pooling {unknown[0]!r}: {choices(str(unknown[0]), MODES)}.")
    return modes


def _prompts(about: Mapping[str, Any]) -> tuple[str, str]:
    prompts = about.get("prompts")
    prompts = prompts if isinstance(prompts, dict) else {}
    default = prompts.get(about.get("default_prompt_name"), "")
    query = prompts.get("query", default)
    paper = next((prompts[name] for name in PAPER_PROMPTS if name in prompts), default)
    return str(query or ""), str(paper or "")


def _json(path: Path, kind: type, *, missing: bool = False) -> Any:
    if missing and not path.is_file():
        return kind()
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not JSON"
        raise InputError(f"{path} cannot be read ({reason}): copy the model again.") from None
    if not isinstance(content, kind):
        raise InputError(f"{path} is damaged: expected a JSON {'list' if kind is list else 'object'}.")
    return content
