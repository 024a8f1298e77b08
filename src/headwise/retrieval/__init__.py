"""Retrieval: collections of papers, the search for candidates, re-ranking, and the task of finding a claim's paper."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headwise.data.catalogue import BUILDERS, RETRIEVAL

if TYPE_CHECKING:
    from headwise.retrieval.retrieval_task import RetrievalTask


def _build(options: Mapping[str, Any]) -> "RetrievalTask":
    from headwise.retrieval.retrieval_task import retrieval_task

    return retrieval_task(options)


BUILDERS[RETRIEVAL] = _build
