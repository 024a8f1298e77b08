"""Analysis: what the heads of a trained model do on a data set, saved for pages and figures.

`analysis_files` reads and writes analyses and does not import torch; `analyze` and `example_views` run models.
"""
