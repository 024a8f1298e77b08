"""AG-Pair: pairs of news with the question whether both have the same topic, made from AG News.

Made for the study of Li et al. (2023) on functional specialisation; their generator was not published.
"""

from headwise.tasks.ag_pair.counts import PairCounts, check_pairs, count_pairs
from headwise.tasks.ag_pair.news import News, read_news
from headwise.tasks.ag_pair.pairing import SLOT_ORDERS, Pair, make_pairs
from headwise.tasks.ag_pair.table import pairs_table, write_pairs

__all__ = [
    "SLOT_ORDERS",
    "News",
    "Pair",
    "PairCounts",
    "check_pairs",
    "count_pairs",
    "make_pairs",
    "pairs_table",
    "read_news",
    "write_pairs",
]
