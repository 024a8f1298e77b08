"""02: gate and mask heads. What does a model lose without a head?  New: hw.mask, hw.gate, hw.head_importance.

python examples/02_gate_and_mask.py
"""

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import headwise as hw
from headwise.data import build_task
from headwise.training.encoders import builtin_folder

MODEL = builtin_folder("builtin:minilm-l6")


def main() -> tuple[float, float, torch.Tensor]:
    """Print what masking a layer does to the answers; return the change, that of unmasked heads, and importances."""
    torch.manual_seed(0)
    notes = build_task("course", {"sizes": {"train": 16}}).read("train")  # built-in ward notes
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForSequenceClassification.from_pretrained(MODEL, num_labels=2).eval()
    batch = tokenizer([text for (text,) in notes.texts], padding=True, return_tensors="pt")
    labels = torch.tensor(notes.labels)

    with torch.no_grad():
        before = model(**batch).logits
        with hw.mask(model, {2: [0, 5], 3: range(12)}):  # silent in this block
            masked = model(**batch).logits
        after = model(**batch).logits  # as before
    change, left = (masked - before).abs().max().item(), (after - before).abs().max().item()
    print(f"largest change of a logit: {change:.3f} with masked heads, {left:.3f} after the block")

    gates = torch.ones(6, 12, requires_grad=True)  # [layers, heads]: multiplies the output of each head
    with hw.gate(model, gates):
        model(**batch, labels=labels).loss.backward()
    layer, head = divmod(gates.grad.abs().argmax().item(), 12)
    print(f"the loss depends most on the gate of layer {layer}, head {head}")

    importance = hw.head_importance(model, [dict(batch, labels=labels)])
    print("most important heads (layer, head):", importance.top(0.05))
    return change, left, torch.as_tensor(importance.scores)


if __name__ == "__main__":
    main()
