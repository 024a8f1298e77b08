"""A search as a transformer of PyTerrier: topics with qid and query in, ranked papers with docno, score and rank out.

    import pyterrier as pt

    pt.Experiment([searcher.as_pyterrier()], topics, qrels, ["recip_rank", "ndcg_cut_10"])

PyTerrier itself needs Java only where Terrier is used, which is not the case here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from headwise.errors import InputError

if TYPE_CHECKING:
    from headwise.retrieval.search import Searcher


def transformer(searcher: Searcher, top: int = 100) -> Any:
    """A `pyterrier.Transformer` that finds papers for topics.

    Args:
        searcher: what is searched, and how.
        top: papers for each topic.
    """
    if not 1 <= top <= searcher.depth:
        raise InputError(f"top {top}: expected 1 to {searcher.depth}, which each stage finds (depth).")
    try:
        base: Any = import_module("pyterrier").Transformer
        pandas: Any = import_module("pandas")
    except ImportError:
        raise InputError(
            "a transformer of PyTerrier needs pyterrier: install it by pip install 'headwise[pyterrier]'."
        ) from None

    class HeadwiseRetriever(base):  # type: ignore[misc]
        """Ranks papers by all stages of a `Searcher`."""

        def transform(self, topics: Any) -> Any:
            """Columns of the topics, and docno, score and rank from 0; topics that find nothing have no row."""
            missing = [name for name in ("qid", "query") if name not in topics.columns]
            if missing or "docno" in topics.columns:
                raise InputError(
                    f"topics have the columns {', '.join(topics.columns)}: expected qid and query, and no docno, since "
                    "this transformer finds papers and does not order given ones."
                )
            claims = {str(qid): str(query) for qid, query in zip(topics["qid"], topics["query"], strict=True)}
            rows = []
            for qid, scores in searcher.scores(claims).items():
                finals = searcher.score.scores(scores)
                for rank, position in enumerate(np.argsort(-finals, kind="stable")[:top].tolist()):
                    rows.append((qid, scores.documents[position], float(finals[position]), rank))
            found = pandas.DataFrame(rows, columns=["qid", "docno", "score", "rank"])
            return topics.astype({"qid": str}).merge(found, on="qid")

        def __repr__(self) -> str:
            """As tables of `pt.Experiment` name it."""
            return f"Headwise({searcher.score})"

    return HeadwiseRetriever()
