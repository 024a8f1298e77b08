"""Which guides pull in the same direction, and how hard the token loss of SSA pulls, on MiniLM-L6 as it is shipped.

For a batch of sentence pairs the gradient of each guide on the query and key projections is computed, without dropout.
Prints a Markdown table of the cosines between these gradients, then the gradient norm of SSA's token loss as a multiple
of the task's, with the authors' weight and with ours, for random labels of 12 % ones; and the lengths of the two
vectors that SSA blends.
"""

import argparse
import itertools
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import headwise as hw
from headwise.attention import query_key_projections
from headwise.data import build_task
from headwise.training.encoders import find_encoder, load_classifier

GUIDES = {
    "mdg": hw.MDG(),
    "pdg": hw.PDG(),
    "pdg standardised": hw.PDG(standardise=True),
    "disagreement": hw.guides.Disagreement(),
}
SUBJECTS = ("A man", "A woman", "A small child", "The old dog", "Two players", "A group of people", "The cat", "A girl")
ACTIONS = (
    "is playing a guitar",
    "is riding a horse on the beach",
    "is running through the grass",
    "is cutting an onion",
)
PAIRS = [
    (f"{one} {first}.", f"{other} {second} and nobody is watching.")
    for (one, other), (first, second) in zip(
        itertools.permutations(SUBJECTS, 2), itertools.cycle(itertools.permutations(ACTIONS, 2)), strict=False
    )
]


def load() -> tuple[Any, Any]:
    """MiniLM-L6 with a fresh classifier, and its tokenizer."""
    encoder = find_encoder("builtin:minilm-l6")
    model = load_classifier(encoder, labels=("no", "maybe", "yes"), head="cls", seed=1, kind="classification")
    return model.eval(), encoder.tokenizer


def batch_of(tokenizer: Any, pairs: list[tuple[str, str]]) -> dict[str, Tensor]:
    first, second = zip(*pairs, strict=True)
    batch = dict(tokenizer(list(first), list(second), padding=True, return_tensors="pt"))
    return {**batch, "labels": torch.arange(len(pairs)) % 3}


def pull(model: Any, loss: Tensor) -> Tensor:
    """The gradient of a loss on the query and key projections, as one vector."""
    projections = query_key_projections(model)
    found = torch.autograd.grad(loss, [each.parameter for each in projections], retain_graph=True)
    parts = [each.part(gradient) for each, gradient in zip(projections, found, strict=True)]
    return torch.cat([part.flatten() for part in parts])


def guide_pulls(loaded: tuple[Any, Any], pairs: list[tuple[str, str]]) -> dict[str, tuple[float, Tensor]]:
    """The value of each guide, and its gradient."""
    model, tokenizer = loaded
    batch, pulls = batch_of(tokenizer, pairs), {}
    for name, guide in GUIDES.items():
        with hw.capture(model, what=guide.what) as record:
            model(**batch)
        value = guide(record, None)  # type: ignore[arg-type]
        pulls[name] = float(value.detach()), pull(model, value)
    return pulls


def cosine(one: tuple[float, Tensor], other: tuple[float, Tensor]) -> float:
    """Between two gradients."""
    return float(torch.nn.functional.cosine_similarity(one[1], other[1], 0))


def token_shares(pairs: list[tuple[str, str]]) -> dict[str, float]:
    """The gradient of the weighted token loss as a multiple of the weighted task's, at the start of training."""
    shares = {}
    for name, options in {"authors": hw.SSA.released(), "ours": hw.SSA()}.items():
        model, tokenizer = load()
        torch.manual_seed(1)
        hw.self_supervise(model, options, tokenizer=tokenizer)
        batch = batch_of(tokenizer, pairs)
        labels = (torch.rand(batch["input_ids"].shape) < 0.12).float()  # a base rate as probes give
        for part in model.train().modules():
            if isinstance(part, torch.nn.Dropout):
                part.p = 0.0
        out = model(**batch, ssa_labels=labels)
        task = torch.nn.functional.cross_entropy(out.logits, batch["labels"])
        of_task = pull(model, task) * (1 - (options.aug_loss_weight or 0.0))
        shares[name] = float((pull(model, out.loss) - of_task).norm() / of_task.norm())
    return shares


def blend_lengths(loaded: tuple[Any, Any], pairs: list[tuple[str, str]]) -> tuple[float, float]:
    """Mean lengths of the vectors that the blend of SSA adds: the classifier's own, and the mean of all tokens."""
    model, tokenizer = loaded
    batch = batch_of(tokenizer, pairs)
    del batch["labels"]
    with torch.no_grad():
        out = model.base_model(**batch)
    mask = batch["attention_mask"].unsqueeze(2)
    pooled = (out.last_hidden_state * mask).sum(1) / mask.sum(1)
    return float(out.pooler_output.norm(dim=1).mean()), float(pooled.norm(dim=1).mean())


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--pairs", type=int, default=32, help="sentence pairs in the batch; default 32")
    options.add_argument(
        "--data", type=Path, help="folder of SICK, for its first training pairs; default simple sentences"
    )
    chosen = options.parse_args()
    pairs = PAIRS if chosen.data is None else list(build_task("sick", {}).read("train", chosen.data).texts)
    pairs = pairs[: chosen.pairs]
    pulls, names = guide_pulls(load(), pairs), list(GUIDES)
    print(f"| gradient cosine | {' | '.join(names)} |\n|{'---|' * (len(names) + 1)}")
    for name, one in pulls.items():
        print(f"| {name} | {' | '.join(f'{cosine(one, other):.3f}' for other in pulls.values())} |")
    print("| value | " + " | ".join(f"{value:.2f}" for value, _ in pulls.values()) + " |")
    print("| gradient norm | " + " | ".join(f"{float(gradient.norm()):.2f}" for _, gradient in pulls.values()) + " |")
    shares = token_shares(pairs)
    print(f"\ntoken loss / task, authors' weights: {shares['authors']:.1f}; ours: {shares['ours']:.2f}")
    own, mean = blend_lengths(load(), pairs)
    print(f"lengths of the vectors of the blend: {own:.1f} (pooler) and {mean:.1f} (mean of tokens)")


if __name__ == "__main__":
    main()
