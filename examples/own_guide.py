"""A guide of your own in ten lines, on a tiny random model: python examples/own_guide.py."""

import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

import headwise as hw


@hw.guides.register_guide("no-sink")
class NoSink(hw.Guide):
    """Mean share of attention that goes to the first token, where heads park what they do not need."""

    position: int = 0

    def __call__(self, maps: hw.attention.AttentionRecord, inputs: object) -> Tensor:
        received = maps.stacked()  # [B,M,K], zero at padding
        share = received[..., self.position] / received.sum(-1)  # [B,M]
        return share.mean()


def main() -> list[float]:
    """Train a few steps on one batch; return the guide's value at each."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
    )
    model = hw.guide(BertForSequenceClassification(config), NoSink(weight=10.0) + hw.MDG(weight=1e-3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids = torch.randint(5, 100, (8, 12))
    values = []
    for _ in range(20):
        model(input_ids=ids, labels=torch.arange(8) % 2).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        values.append(hw.guides.last_losses(model)["no-sink"])
    return values


if __name__ == "__main__":
    values = main()
    print(f"share of attention on the first token: {values[0]:.3f} -> {values[-1]:.3f}")
