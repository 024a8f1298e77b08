"""Retrieval: collections of papers, the search for candidates, and pairs to train a re-ranker on."""
