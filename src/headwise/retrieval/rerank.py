"""The second stage of retrieval: candidates in the order of a re-ranker, piece by piece, and what that is worth."""

from __future__ import annotations

import functools
import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.cache import digest, file_digest
from headwise.disk import LOCK, cache_folder, disk_errors, held, user_cache
from headwise.errors import InputError, Stopped
from headwise.limits import parse_json
from headwise.metrics.ranking import RankingScores, score_ranking
from headwise.retrieval.candidates import Candidates
from headwise.retrieval.collections import Run
from headwise.training.callbacks import Listener
from headwise.training.reranking import Reranker

# Scores that are kept as they are worked out, so that a run that is stopped goes on where it was.


MARK = "headwise-rerank"
SUFFIX = ".partial"


class Partial:
    """The pieces that are done. A kill in the middle of writing loses the piece that was being written."""

    def __init__(self, path: Path, of: Mapping[str, Any], sizes: Sequence[int], *, overwrite: bool = False) -> None:
        """Open the file at `path`, or begin it.

        Args:
            path: the file.
            of: plain data that decides the scores; what was kept for other data is refused.
            sizes: how many scores each piece has.
            overwrite: begin again instead of refusing.
        """
        self.path, self._of = path, json.loads(json.dumps(of))
        self.scores: list[list[float]] = []
        with _writing(path):
            lines = path.read_bytes().split(b"\n")[:-1] if path.is_file() else []
            if lines and (differs := _difference(lines[0], self._of)):
                if not overwrite:
                    raise InputError(
                        f"{path} holds scores of something else ({differs}): finish what it was made for, remove it, "
                        "or add --overwrite."
                    )
                lines = []
            self._keep(lines, sizes)

    def add(self, scores: Sequence[float]) -> None:
        """Keep the scores of the next piece; they are on the disk when this returns."""
        values = [float(score) for score in scores]
        with _writing(self.path), self.path.open("ab") as file:
            file.write(json.dumps(values).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.scores.append(values)

    def remove(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)

    def _keep(self, lines: list[bytes], sizes: Sequence[int]) -> None:
        """Take over the pieces that are whole, and cut off what follows them."""
        head = json.dumps({"mark": MARK, "of": self._of}).encode()
        for line, size in zip(lines[1:], sizes, strict=False):
            scores = _piece(line, size)
            if scores is None:
                break
            self.scores.append(scores)
        kept = [head, *lines[1 : 1 + len(self.scores)]]
        if not lines:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_bytes(head + b"\n")
        else:
            os.truncate(self.path, sum(len(line) + 1 for line in kept))


def remove_finished(output: Path) -> None:
    """Remove the scores of a run that was written after them: a kill came before they could go."""
    partial = output.with_name(output.name + SUFFIX)
    with suppress(OSError, ValueError):
        if output.stat().st_mtime_ns >= partial.stat().st_mtime_ns:
            partial.unlink()


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Only one process may work on a partial file; the lock of one that has died is free."""
    with ExitStack() as stack:
        with _writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(held(path.with_name(path.name + LOCK), path))
        yield


def _difference(line: bytes, of: dict[str, Any]) -> str | None:
    """In what the scores of a file are of something else, in a few words."""
    try:
        head = parse_json(line)
        before = head["of"] if head["mark"] == MARK else None
    except (ValueError, KeyError, TypeError, RecursionError):
        before = None
    if not isinstance(before, dict):
        return "it was not written by headwise"
    differing = [name for name in {**of, **before} if of.get(name) != before.get(name)]
    return f"another {' and another '.join(differing)}" if differing else None


def _piece(line: bytes, size: int) -> list[float] | None:
    """The scores of a line, or None if it is not whole."""
    try:
        scores = parse_json(line)
    except ValueError:
        return None
    if not isinstance(scores, list) or len(scores) != size:
        return None
    return scores if all(isinstance(score, float) and math.isfinite(score) for score in scores) else None


def _writing(path: Path) -> AbstractContextManager[None]:
    """Errors of the disk in one sentence."""
    remedy = "make room, or name another place with --output; the same command then goes on."
    return disk_errors(f"the scores so far could not be kept in {path}", remedy)


RERANK_TAG = "headwise-rerank"
# Pairs that are scored, and kept, together: a kill loses at most so many. The same whatever the batch is, since it
# decides which pairs share a batch and so the last bits of their scores.
PIECE = 1024
# The files of a model, beside its weights, that decide its scores.
MODEL = ("config.json", "tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True)
class Scoring:
    """How pairs are scored, and where the scores are kept until all are there."""

    batch: int | None = None
    precision: str = "fp32"
    cache: Path | None = None
    output: Path | None = None
    """The scores are kept beside this file; None: in the cache."""
    overwrite: bool = False


@dataclass(frozen=True)
class Reranked:
    """Candidates in their new order."""

    candidates: Candidates
    run: Run
    scores: RankingScores | None
    resumed: int
    """How many of the pairs an earlier command had scored."""
    seconds: float
    """How long the others took."""
    kept: Path
    """The file with the scores so far."""

    def done(self) -> None:
        """The run is written: the scores so far can go."""
        self.kept.unlink(missing_ok=True)

    @property
    def measures(self) -> dict[str, RankingScores]:
        """Before and after; nothing where no claim is judged, and nothing before where the order meant nothing."""
        both = {"candidates": self.candidates.scores, "reranked": self.scores}
        return {name: scores for name, scores in both.items() if scores is not None}

    def summary(self) -> dict[str, Any]:
        """What happened, ready for JSON."""
        claims, pairs = self.candidates.claims, len(self.candidates.pairs)
        return {
            "split": claims.split,
            "claims": len(claims.texts),
            "pairs": pairs,
            "resumed": self.resumed,
            "seconds": round(self.seconds, 3),
            "pairs_per_second": round((pairs - self.resumed) / self.seconds, 2) if self.seconds else None,
            "measures": {name: scores.summary() for name, scores in self.measures.items()} or None,
            "without_candidates": self.candidates.missing,
        }


def rerank(folder: Path, candidates: Candidates, scoring: Scoring, listener: Listener) -> Reranked:
    """Score all pairs and order the candidates; goes on where an earlier command was stopped."""
    reranker, pairs = Reranker.load(folder), candidates.pairs
    of = _fingerprint(folder, reranker.max_length, candidates, scoring.precision)
    path = _place(scoring, of)
    sizes = [min(PIECE, len(pairs) - start) for start in range(0, len(pairs), PIECE)]
    with alone(path):
        partial = Partial(path, of, sizes, overwrite=scoring.overwrite)
        resumed = sum(sizes[: len(partial.scores)])
        if resumed:
            listener.tell(f"going on from pair {resumed} of {len(pairs)}: the scores before it are in {path}")
        with _stoppable(partial):
            begin = time.perf_counter()
            _score(reranker, candidates, partial, scoring, listener)
            seconds = time.perf_counter() - begin
            run = _ordered(pairs, [score for piece in partial.scores for score in piece])
            qrels = candidates.claims.qrels
            return Reranked(candidates, run, score_ranking(qrels, run) if qrels else None, resumed, seconds, path)


@contextmanager
def _stoppable(partial: Partial) -> Iterator[None]:
    """Whoever stops the work is told whether scores are kept; a file without any is not left behind."""
    try:
        yield
    except KeyboardInterrupt:
        if partial.scores:
            raise Stopped("the scores so far are kept, and the same command goes on from there") from None
        partial.remove()
        raise


def _score(reranker: Reranker, candidates: Candidates, partial: Partial, scoring: Scoring, listener: Listener) -> None:
    """Score the pieces that are not there yet, each by itself, so that it does not matter where one began."""
    pairs, claims = candidates.pairs, candidates.claims.texts
    first = len(partial.scores) * PIECE
    listener.start("rerank", len(pairs), min(first, len(pairs)))
    for start in range(first, len(pairs), PIECE):
        piece = [(claims[claim], candidates.text(claim, document)) for claim, document in pairs[start : start + PIECE]]
        advance = functools.partial(_advance, listener, start)
        scores = reranker.predict(piece, batch=scoring.batch, precision=scoring.precision, after_batch=advance)
        partial.add(scores.tolist())
    listener.end()


def _advance(listener: Listener, before: int, done: int) -> None:
    listener.advance(before + done)


def _ordered(pairs: list[tuple[str, str]], scores: list[float]) -> Run:
    """A run, the best first; candidates with equal scores stay in their order."""
    found: dict[str, dict[str, float]] = {}
    for (claim, document), score in zip(pairs, scores, strict=True):
        found.setdefault(claim, {})[document] = score
    return {claim: dict(sorted(each.items(), key=lambda pair: -pair[1])) for claim, each in found.items()}


def _fingerprint(folder: Path, length: int, candidates: Candidates, precision: str) -> dict[str, Any]:
    """All that decides the scores, by names that a message may use; the batch changes only their last bits."""
    files = sorted([*folder.glob("*.safetensors"), *folder.glob("*.json")])
    # The record and the figures of training are beside the model, not of it.
    model = {path.name: file_digest(path) for path in files if path.suffix == ".safetensors" or path.name in MODEL}
    texts = {claim: candidates.claims.texts[claim] for claim in candidates.run}
    return {
        "model": digest(model),
        "list of candidates": digest([candidates.pairs, texts]),
        "collection of texts": candidates.key,
        "precision": precision,
        "max_length": length,
        "piece": PIECE,
    }


def _place(scoring: Scoring, of: Mapping[str, Any]) -> Path:
    """Where scores are kept: beside the output, or under their hash in the cache."""
    if scoring.output is not None:
        return scoring.output.with_name(scoring.output.name + SUFFIX)
    return (scoring.cache or cache_folder() or user_cache()) / "rerank" / f"{digest(dict(of))[:24]}{SUFFIX}"
