"""Keep the libraries below us from talking over the result."""

from __future__ import annotations

import logging
import os
import warnings


def quiet_libraries() -> None:
    """No progress bars, hints and warnings of other libraries; their errors stay, and so do our own warnings."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    logging.getLogger("accelerate").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"(transformers|accelerate|torch)\b")
    from headwise.training.encoders import hide_loading_bars

    hide_loading_bars()
