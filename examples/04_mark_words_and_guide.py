"""04: mark words and guide. Say which words decide, and heads learn to look there.  New: marks, hw.Rationale.

python examples/04_mark_words_and_guide.py
"""

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding

import headwise as hw
from headwise.data import build_task
from headwise.training.encoders import builtin_folder

MODEL = builtin_folder("builtin:minilm-l6")


def share_on_marks(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> float:
    """How much of the attention of the guided layers the marked words receive."""
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad(), hw.capture(model, layers="last:3") as record:
        model.eval()(**inputs)
    received = record.stacked()  # [batch, heads, tokens]
    marked = (received * batch["rationale_mask"][:, None]).sum(-1) / received.sum(-1)
    return marked.mean().item()


def main(steps: int = 8) -> tuple[float, float]:
    """Train on a few marked notes; print and return how much attention marked words receive, before and after."""
    torch.manual_seed(0)
    notes = build_task("course", {"sizes": {"train": 16}}).read("train")
    text, ((_, start, end),) = notes.texts[0][0], notes.spans[0]
    print(f"marked: {text[:start]}[{text[start:end]}]{text[end:]}")
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForSequenceClassification.from_pretrained(MODEL, num_labels=2)
    tokens = tokenizer([text for (text,) in notes.texts], truncation=True, max_length=96)
    tokens["rationale_mask"] = hw.data.rationale_mask(tokens, notes.spans)
    tokens["labels"] = notes.labels
    rows = [{name: tokens[name][number] for name in tokens} for number in range(len(notes))]
    batch = dict(hw.data.RationaleCollator(DataCollatorWithPadding(tokenizer))(rows))

    before = share_on_marks(model, batch)
    hw.guide(model, hw.Rationale(weight=0.5), tokenizer=tokenizer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(steps):
        model.train()(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    after = share_on_marks(hw.unguide(model), batch)
    print(f"attention that marked words receive: {before:.3f} before, {after:.3f} after {steps} steps")
    return before, after


if __name__ == "__main__":
    main()
