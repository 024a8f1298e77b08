"""Patterns: what an attention map could look like. A new one is one file and one line in `base`."""

from typing import TYPE_CHECKING

from headwise.patterns.base import (
    PATTERNS,
    Pattern,
    ReceivedTarget,
    Target,
    Tokens,
    build_pattern,
    refuse_named_code,
    register_pattern,
)
from headwise.registry import lazy_names

if TYPE_CHECKING:
    from headwise.patterns.align import token_matrix, token_vector, words_of_tokens
    from headwise.patterns.dependency import Dependency
    from headwise.patterns.fixed import Delim, First, Next, Period, Prev, find_marks, mark_ids, special_ids
    from headwise.patterns.pmi import PMI
    from headwise.patterns.relations import TermRelations
    from headwise.patterns.store import Stored, default_cache, gather, store_key
    from headwise.patterns.wordsim import WordSimilarity

__all__ = [
    "PATTERNS",
    "PMI",
    "Delim",
    "Dependency",
    "First",
    "Next",
    "Pattern",
    "Period",
    "Prev",
    "ReceivedTarget",
    "Stored",
    "Target",
    "TermRelations",
    "Tokens",
    "WordSimilarity",
    "build_pattern",
    "default_cache",
    "find_marks",
    "gather",
    "mark_ids",
    "refuse_named_code",
    "register_pattern",
    "special_ids",
    "store_key",
    "token_matrix",
    "token_vector",
    "words_of_tokens",
]

__getattr__ = lazy_names(
    __name__,
    {
        "align": ("token_matrix", "token_vector", "words_of_tokens"),
        "dependency": ("Dependency",),
        "fixed": ("Delim", "First", "Next", "Period", "Prev", "find_marks", "mark_ids", "special_ids"),
        "pmi": ("PMI",),
        "relations": ("TermRelations",),
        "store": ("Stored", "default_cache", "gather", "store_key"),
        "wordsim": ("WordSimilarity",),
    },
)
