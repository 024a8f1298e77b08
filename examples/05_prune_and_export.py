"""05: prune and export. Remove the heads that matter least, save the model, load it again.  New: hw.prune, hw.load.

python examples/05_prune_and_export.py
"""

import tempfile
from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import headwise as hw
from headwise.data import build_task
from headwise.training.encoders import builtin_folder

MODEL = builtin_folder("builtin:minilm-l6")


def main(folder: Path | None = None) -> tuple[int, int, float]:
    """Print and return the weights before and after, and the largest difference after loading."""
    torch.manual_seed(0)
    notes = build_task("course", {"sizes": {"train": 16}}).read("train")
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForSequenceClassification.from_pretrained(MODEL, num_labels=2).eval()
    batch = tokenizer([text for (text,) in notes.texts], padding=True, return_tensors="pt")
    before = model.num_parameters()

    importance = hw.head_importance(model, [dict(batch, labels=torch.tensor(notes.labels))])
    hw.prune(model, importance.bottom(0.25))  # query, key, value and output become smaller
    after = model.num_parameters()
    print(f"weights: {before:,} before, {after:,} without {72 // 4} of 72 heads")

    with tempfile.TemporaryDirectory() as made:
        target = folder or Path(made)
        model.save_pretrained(target)
        tokenizer.save_pretrained(target)
        loaded = hw.load(target)  # plain transformers cannot load layers of different sizes
        with torch.no_grad():
            difference = (loaded(**batch).logits - model(**batch).logits).abs().max().item()
    print(f"largest difference after loading: {difference:g}")
    # loaded.push_to_hub("USER/NAME") puts it on the Hub, with a model card that says how to load it.
    return before, after, difference


if __name__ == "__main__":
    main()
