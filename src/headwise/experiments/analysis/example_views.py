"""Single examples with the maps of all heads, and the maps that a pattern expects of them.

For a run that was guided to a pattern the pattern is that one, fixed (first, next, ...) or knowledge (pmi, dependency,
...); for any run it may be one that the user names. Knowledge about words is computed for the analysed examples from
the same sources and the same training texts as in training.

Shapes: B batch, H heads of a layer, K keys, T tokens of an example.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.attention import capture, mask
from headwise.data import Collator, Encoded, Split, encode
from headwise.errors import HeadwiseError, InputError, StateError
from headwise.experiments.analysis.analysis_files import ExampleMaps, ExampleView, Floats, marked_cells, to_bytes
from headwise.experiments.apply import Loaded, Source
from headwise.experiments.gather_knowledge import embeddings_of
from headwise.experiments.head_studies.head_patterns import batch_inputs, check_marks
from headwise.experiments.splits import read_split
from headwise.guides import build
from headwise.guides.match import Match
from headwise.heads.statistics import Marks
from headwise.patterns import Pattern, Tokens, build_pattern, find_marks, mark_ids, refuse_named_code
from headwise.patterns.base import Builder, Knowledge, Resources, Texts, WordMatrix, digest, options_of
from headwise.patterns.parallel import Processes, cores
from headwise.ssa import supervision_of
from headwise.training import Listener, Need, Silence
from headwise.training.predict import evaluating
from headwise.training.word_knowledge import WithKnowledge

# Complete maps of longer texts are kept only for the first few: at 512 tokens and 144 heads one takes 38 MB.
WHOLE_TOKENS = 128
WHOLE_LONG = 2
KEPT = 32
# Knowledge is computed for so many examples at a time, and progress is reported in between.
CHUNK = 100

ExpectedRows = Callable[[int], Floats]
"""The map [T,T] that a pattern expects of an example, by the index of the example."""

# -- examples --------------------------------------------------------------------------------------------------------


def view_examples(
    run: Loaded,
    split: Split,
    titles: Sequence[str],
    indices: Sequence[int | None],
    *,
    whole: Collection[int] = (),
    expected: ExpectedPattern | None = None,
    silenced: Sequence[tuple[int, int]] = (),
) -> list[ExampleView]:
    """Run the model on every example of a split and keep its maps.

    Args:
        run: a finished run.
        split: the examples.
        titles: of each.
        indices: of each in the split that it was taken from, None if it was typed or read from a file.
        whole: indices of examples that keep complete maps however long they are; else the first few long ones do.
        expected: a pattern that the maps are compared with.
        silenced: heads whose outputs are multiplied by 0, as (layer, head).
    """
    encoded = encode(split, run.tokenizer, run.recipe.data.max_length, offsets=True)
    collate = Collator.of(run.tokenizer, run.task.kind, max_length=run.recipe.data.max_length)
    rows = None if expected is None else expected.of(split.texts, encoded)
    views, long = [], 0
    with mask(run.model, silenced) if silenced else nullcontext():
        for number, (title, index) in enumerate(zip(titles, indices, strict=True)):
            view = _view(run, split, encoded, collate, number, title, index)
            if expected is not None and rows is not None:
                view = replace(view, wanted=(expected.name, rows(number)))
            if len(view.tokens) > WHOLE_TOKENS:
                if index not in whole and (whole or long >= WHOLE_LONG):
                    view = replace(view, maps=view.maps.largest(KEPT))
                long += 1
            views.append(view)
    return views


def _view(
    run: Loaded, split: Split, encoded: Encoded, collate: Collator, number: int, title: str, index: int | None
) -> ExampleView:
    """One example with complete maps."""
    model: Any = run.model
    maps, vectors, totals = [], [], []

    def keep(layer: int, rows: slice, attention: Tensor) -> Tensor:
        weights = attention[0].detach().float().cpu()  # [H,T,T]
        maps.append(to_bytes(weights.numpy()))
        received = weights.sum(1)
        vectors.append((received / received.sum(1, keepdim=True).clamp_min(1e-30)).numpy())
        totals.append(weights.double().sum(0))
        return attention.new_zeros(attention.shape[:2])

    inputs, supervision = batch_inputs(model, collate, encoded, [number]), supervision_of(model)
    with evaluating(model), torch.inference_mode(), capture(model, what="map", digest=keep):
        output = model(**inputs, **({} if supervision is None else {"output_ssa": True}))
    if not maps:
        raise InputError("no attention was recorded: the model has no layer that headwise can watch.")
    prediction, probabilities = run.answer(output.logits[0].float().cpu().numpy())
    sources = sources_of(encoded, number).tolist()
    view = ExampleView(
        title=title,
        place=index,
        texts=split.texts[number],
        tokens=tuple(run.tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())),
        sources=tuple(sources),
        gold=gold_of(run, split.labels[number]),
        prediction=prediction,
        probabilities=probabilities,
        maps=ExampleMaps(np.stack(maps)),
        mean_map=(sum(totals[1:], totals[0]) / sum(map(len, maps))).float().numpy(),
        vectors=np.concatenate(vectors),
    )
    if supervision is None:
        return view
    scores = zip(output["ssa_scores"][0].tolist(), sources, strict=True)
    return replace(
        view,
        token_scores=tuple(None if source < 0 else round(score, 4) for score, source in scores),
        pooled=tuple(bool(each) for each in output["ssa_kept"][0].tolist()),
        threshold=supervision.threshold(output["ssa_scores"][0], output["ssa_kept"][0]),
    )


def gold_of(run: Loaded, label: float | int | None) -> str | None:
    """The label in words; None where there is none."""
    if label is None:
        return None
    if run.task.kind == "ranking":
        return "relevant" if label else "not relevant"
    return run.labels[int(label)] if run.labels else f"{float(label):g}"


def check_texts(run: Loaded, texts: Sequence[str]) -> tuple[str, ...]:
    """Texts that a user typed; refuses a wrong number and texts without a token."""
    if len(texts) != run.task.sentences:
        raise InputError(f"got {len(texts)} texts, and {run.task.name} has {run.task.sentences}: give as many.")
    if any(not run.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts):
        raise InputError("a text is empty, or has nothing that the model can read: write at least one word.")
    return tuple(texts)


# -- the pattern that heads are compared with ------------------------------------------------------------------------


@dataclass(frozen=True)
class ExpectedPattern:
    """A pattern, and what is needed to compute its maps."""

    name: str
    """The pattern, and the heads that were guided to it."""
    pattern: Pattern
    known: Mapping[str, tuple[int, ...]]
    """Ids of separators and full stops."""
    resources: Resources = Resources()
    corpus: Sequence[Texts] = ()
    """The training texts, for knowledge that counts words in them."""
    special_rows: bool = True
    """Whether the pattern applies to the rows of special tokens."""
    required: bool = False
    """Whether the user named it: then it is an error if its maps cannot be computed."""

    def identity(self) -> dict[str, Any]:
        """Plain data that is equal for two analyses with the same pattern."""
        about: dict[str, Any] = {"name": self.pattern.name, "options": options_of(self.pattern)}
        if isinstance(self.pattern, Knowledge):
            about["sources"] = digest([self.pattern.fingerprint(self.resources), [list(each) for each in self.corpus]])
        return about

    def of(self, texts: Sequence[Texts], encoded: Encoded, progress: Listener | None = None) -> ExpectedRows | None:
        """The maps for examples that were encoded with offsets; None, with a message, if they cannot be computed.

        A map [T,T] says how the attention of an example should be distributed; rows without a target are zero.
        """
        data: Any = encoded
        if isinstance(self.pattern, Knowledge):
            progress, matrices = progress or Silence(), list[WordMatrix]()
            progress.start(f"knowledge {self.pattern.name}", len(texts))
            try:
                for start in range(0, len(texts), CHUNK):
                    matrices += self._builder(texts[start : start + CHUNK])
                    progress.advance(len(matrices))
            except HeadwiseError as error:
                if self.required:
                    raise
                progress.log(f"what the pattern {self.pattern.name} wants is not shown: {error}")
                return None
            finally:
                progress.end()
            need = Need("analysis", self.pattern, "map")
            data = WithKnowledge(encoded, {self.pattern.key: matrices}, [need])

        def rows(index: int) -> Floats:
            item = data[index]
            ids = torch.as_tensor(item["input_ids"])[None]
            knowledge = {entry: torch.from_numpy(array)[None] for entry, array in item.get("knowledge", {}).items()}
            marks = find_marks(ids, self.known, set(self.pattern.marks))
            target = self.pattern.target(Tokens(torch.ones_like(ids, dtype=torch.bool), marks, knowledge))
            expected = np.array(target.rows[0].float().numpy(), dtype=np.float32)
            if not self.special_rows:
                expected[sources_of(encoded, index) < 0] = 0
            return expected

        return rows

    @cached_property
    def _builder(self) -> Builder:
        """Built once: it may count all training texts, or load a parser."""
        pattern: Any = self.pattern
        return pattern.builder(self.corpus, self.resources, Processes(cores()))  # type: ignore[no-any-return]


def expected_pattern(
    run: Loaded, pattern: Pattern | None = None, source: Source | None = None, progress: Listener | None = None
) -> ExpectedPattern | None:
    """The pattern that the user named, or the first one that the run was guided to; None if there is none.

    If something is missing for a pattern that the user named, that is an error. For one of the run it is reported,
    and the run is analysed without. This searches the whole vocabulary, so call it once.
    """
    source = source or Source()
    if pattern is not None:
        return replace(_prepared(run, pattern, pattern.name, source), required=True)
    for name, options in run.recipe.guides.items():
        guide = build(name, **options)
        if not isinstance(guide, Match):
            continue
        try:
            # What tokens receive in all says less than a map: many maps have the same.
            how = "guided" if guide.on == "map" else "as a map; guided on what tokens receive"
            where = f"{guide.pattern.name} ({how}: layers {guide.layers}, heads {guide.heads})"
            return replace(_prepared(run, guide.pattern, where, source), special_rows=guide.special_tokens)
        except HeadwiseError as error:
            (progress or Silence()).log(f"what guide {name} wanted is not shown: {error}")
    return None


def pattern_of_analysis(run: Loaded, content: Mapping[str, Any], progress: Listener) -> ExpectedPattern | None:
    """The pattern of an analysis, so that further examples are compared with the same one."""
    own = expected_pattern(run, progress=progress)
    if "pattern" not in content:  # an older headwise wrote none
        return own
    about = content["pattern"]
    if about is None:
        return None
    try:
        if own is not None and own.identity() == about:
            return own
        pattern = build_pattern({"name": about["name"], **about["options"]})
        refuse_named_code(pattern, "analysis.json, pattern")
        return _prepared(run, pattern, about["name"], Source())
    except HeadwiseError as error:
        progress.log(f"what the pattern {about['name']} wants is not shown: {error}")
        return None


def _prepared(run: Loaded, pattern: Pattern, name: str, source: Source) -> ExpectedPattern:
    known = mark_ids(run.tokenizer) if pattern.marks else {}
    check_marks(pattern, known)
    if not isinstance(pattern, Knowledge):
        return ExpectedPattern(name, pattern, known)
    # The training texts and the files beside them, wherever the examples come from.
    data = run.data if run.data is not None and run.data.exists() else source.data or run.data
    own = getattr(pattern, "source", None) == "embeddings"
    resources = Resources(data, embeddings_of(run.recipe, network=source.network) if own else None)
    pattern.fingerprint(resources)  # refuses what is missing
    corpus: Sequence[Texts] = ()
    if pattern.from_corpus:
        corpus = read_split(run.recipe, run.task, "train", data, network=source.network).texts
    return ExpectedPattern(name, pattern, known, resources, corpus)


def sources_of(encoded: Encoded, index: int) -> NDArray[Any]:
    """[T] the text of each token of an example, -1 for special tokens."""
    if encoded.sources is None:
        raise StateError("the examples were encoded without offsets: this is a fault of headwise, please report it.")
    part: NDArray[Any] = encoded.sources[encoded.starts[index] : encoded.starts[index + 1]]
    return part


def marks_of(
    encoded: Encoded, indices: Sequence[int], attention_mask: torch.Tensor, expected: ExpectedRows | None = None
) -> Marks:
    """What is known of the tokens of a batch: which are special, their texts, and the targets of a pattern."""
    valid = (attention_mask != 0).cpu()
    texts = torch.full(valid.shape, -1, dtype=torch.long)
    flat = np.concatenate([sources_of(encoded, index) for index in indices])
    texts[valid] = torch.from_numpy(flat.astype(np.int64))  # row by row, as the batch was filled
    cells = None
    if expected is not None:
        cells = torch.zeros(*valid.shape, valid.shape[1], dtype=torch.bool)  # [B,K,K]
        for number, (tokens, index) in enumerate(zip(valid, indices, strict=True)):
            # At its tokens, on whatever side the padding is.
            marked = torch.from_numpy(marked_cells(expected(index)))
            cells[number, tokens.unsqueeze(1) & tokens.unsqueeze(0)] = marked.flatten()
    device = attention_mask.device
    return Marks(
        valid.to(device),
        (valid & (texts < 0)).to(device),
        texts.to(device),
        None if cells is None else cells.to(device),
    )
