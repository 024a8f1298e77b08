"""Studies of heads: which heads a task needs, what pruning costs, and how alike tasks are."""
