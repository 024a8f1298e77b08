"""01: see attention. Which words does each layer look at? No eager mode, no stored maps of all heads.

python examples/01_see_attention.py
"""

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import headwise as hw
from headwise.training.encoders import builtin_folder

MODEL = builtin_folder("builtin:minilm-l6")  # or the name of any model on the Hub
TEXT = "The patient was seen at home and is much worse since last night."


def main() -> dict[int, list[tuple[str, float]]]:
    """Print and return the words that each layer looks at most."""
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForSequenceClassification.from_pretrained(MODEL, num_labels=2).eval()
    batch = tokenizer(TEXT, return_tensors="pt")
    words = tokenizer.convert_ids_to_tokens(batch["input_ids"][0])

    with torch.no_grad(), hw.capture(model) as record:  # what every token receives, in all layers
        model(**batch)
    strongest = {}
    for layer in range(model.config.num_hidden_layers):
        received = record[layer][0].mean(0)  # [heads, tokens] -> [tokens]
        inner = received[1:-1]  # without [CLS] and [SEP]
        top = (inner / inner.sum()).topk(3)
        strongest[layer] = [(words[1 + at], share.item()) for share, at in zip(top.values, top.indices, strict=True)]
        print(f"layer {layer}:", ", ".join(f"{word} {share:.2f}" for word, share in strongest[layer]))

    with torch.no_grad(), hw.capture(model, layers=[5], heads=[0], what="map") as record:  # one whole map
        model(**batch)
    print("map of head 0 in layer 5:", tuple(record[5].shape))
    return strongest


if __name__ == "__main__":
    main()
