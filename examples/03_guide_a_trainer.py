"""03: guide a Trainer. Heads learn to look at different tokens while you fine-tune.  New: hw.guide, hw.GuideCallback.

python examples/03_guide_a_trainer.py
"""

import tempfile

from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    PrinterCallback,
    Trainer,
    TrainingArguments,
)

import headwise as hw
from headwise.data import build_task
from headwise.training.encoders import builtin_folder

MODEL = builtin_folder("builtin:minilm-l6")


def main(steps: int = 8) -> list[float]:
    """Train a few steps; print and return the value of the guide, which falls as heads become different."""
    notes = build_task("course", {"sizes": {"train": 64}}).read("train")
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForSequenceClassification.from_pretrained(MODEL, num_labels=2)
    rows = [
        {**tokenizer(text, truncation=True, max_length=48), "labels": label}
        for (text,), label in zip(notes.texts, notes.labels, strict=True)
    ]
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=hw.guide(model, hw.MDG(weight=1.0)),  # the one new line
            args=TrainingArguments(
                output_dir=folder, max_steps=steps, per_device_train_batch_size=8, learning_rate=3e-4,
                logging_steps=2, save_strategy="no", report_to="none", disable_tqdm=True, use_cpu=True,
                dataloader_pin_memory=False,
            ),
            train_dataset=rows,
            data_collator=DataCollatorWithPadding(tokenizer),
            callbacks=[hw.GuideCallback()],  # logs the guide's loss beside the task's
        )  # fmt: skip
        trainer.remove_callback(PrinterCallback)  # we print less
        trainer.train()
    logs = [entry for entry in trainer.state.log_history if "guide/mdg" in entry]
    for entry in logs:
        print(f"step {entry['step']}: task loss {entry['task_loss']:.3f}, similarity of heads {entry['guide/mdg']:.3f}")
    hw.unguide(model)  # an ordinary model again; what you save never depends on headwise
    return [entry["guide/mdg"] for entry in logs]


if __name__ == "__main__":
    main()
