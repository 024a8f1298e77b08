"""Retrieval: collections of papers, the search for candidates, re-ranking, and the task of finding a claim's paper."""

from headwise.data.catalogue import BUILDERS, RETRIEVAL
from headwise.retrieval.retrieval_task import retrieval_task

BUILDERS[RETRIEVAL] = retrieval_task
