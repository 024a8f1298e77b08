"""Sections in Python: the names of headwise.__all__."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import Tensor, nn

import headwise as hw
from golden_sections.inputs import build_tokenizer, examples
from golden_sections.lab import Lab, clean, columns, page, section, stats, total
from golden_sections.models import batch, classifier, inputs, logits, take_gradient, train, trainer_of


@section("api.names")
def names(_: Lab) -> Any:
    return {"names": sorted(hw.__all__)}


# -- attention ---------------------------------------------------------------------------------------------------------


@section("api.capture")
def capture(_: Lab) -> Any:
    model, found = classifier(), {}
    for what in ("received", "map", "value", "output"):
        with hw.capture(model, layers="all", heads=[0, 2], what=what) as record:
            model(**batch())
        found[what] = {layer: stats(record[layer]) for layer in record} | {"all": stats(record.stacked())}
    with hw.capture(model, layers="last:1") as record:
        model(**batch())
    record.stacked().pow(2).sum().backward()
    return found | {"last": stats(record[1]), "valid": int(record.valid.sum()), "gradient": take_gradient(model)}


@section("api.gate")
def gate(_: Lab) -> Any:
    model, gates = classifier(), torch.ones(2, 4, requires_grad=True)
    with hw.gate(model, gates):
        model(**batch()).loss.backward()
    with hw.gate(model, {1: torch.tensor([0.0, 0.5, 1.0, 2.0])}):
        gated = logits(model)
    return {"gradient": gates.grad.tolist(), "gated": gated, "plain": logits(model)}


@section("api.prune")
def prune(_: Lab) -> Any:
    """Masked, pruned, saved and loaded: the same logits."""
    model, gone = classifier(), {0: [1, 3], 1: [0, 1, 2, 3]}
    with hw.mask(model, gone):
        masked = logits(model)
    hw.prune(model, gone)
    model.save_pretrained("pruned")
    size = sum(parameter.numel() for parameter in model.parameters())
    return {"masked": masked, "pruned": logits(model), "loaded": logits(hw.load("pruned")), "size": size}


@section("api.importance")
def importance(_: Lab) -> Any:
    model, found = classifier(), {}
    for granularity in ("sample", "token", "batch"):
        each = hw.head_importance(model, [batch(), batch()], granularity=granularity)
        found[granularity] = {"scores": each.scores.tolist(), "top": [list(head) for head in each.top(0.4)]}
    masked = hw.head_importance(model, [batch()], normalise="layer", mask={0: [2]}, max_examples=3)
    return found | {"masked": masked.scores.tolist()}


SIZES = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 40,
    "num_labels": 3,
    "pad_token_id": 1,
}
# Class prefix -> what differs from SIZES: families of the fused route, then of the eager one.
FAMILIES: dict[str, dict[str, Any]] = {
    "Bert": {},
    "Roberta": {},
    "Albert": {"embedding_size": 16},
    "DistilBert": {},
    "Electra": {"embedding_size": 16},
    "MobileBert": {"embedding_size": 16, "intra_bottleneck_size": 32, "true_hidden_size": 32},
    "ModernBert": {"global_attn_every_n_layers": 2, "local_attention": 4}
    | {"cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3},
    "DebertaV2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8},
    "MPNet": {},
}


def family(prefix: str) -> Any:
    """A random classifier; biases are random too."""
    torch.manual_seed(7)
    config = getattr(transformers, f"{prefix}Config")(**{**SIZES, **FAMILIES[prefix]})
    model = getattr(transformers, f"{prefix}ForSequenceClassification")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@section("api.families")
def families(_: Lab) -> Any:
    """Received attention, maps, masks, importance and guides of every kind of encoder."""
    ids = torch.randint(5, 60, (3, 12), generator=torch.Generator().manual_seed(11))
    mask = (torch.arange(12) < torch.tensor([[12], [9], [6]])).long()
    given = {"input_ids": ids.masked_fill(mask == 0, 1), "attention_mask": mask, "labels": torch.arange(3)}
    found = {}
    for prefix in FAMILIES:
        model, each = family(prefix), {}
        for what in ("received", "map"):
            with hw.capture(model, what=what) as record, torch.no_grad():
                each["loss"] = float(model(**given).loss)
            each[what] = stats(record.stacked())
        with hw.mask(model, {0: [1]}), torch.no_grad():
            each["masked"] = float(model(**given).loss)
        each["importance"] = hw.head_importance(model, [given]).scores.tolist()
        torch.manual_seed(1)  # for dropout
        hw.guide(model.train(), hw.MDG(weight=0.1) + hw.PDG(weight=0.1))
        loss = model(**given).loss
        loss.backward()
        found[prefix] = each | {"guided": float(loss), "gradient": take_gradient(model)}
    return found


# -- guides ------------------------------------------------------------------------------------------------------------


@hw.guides.register_guide("golden")
class FirstToken(hw.Guide):
    """A guide of the user: the share of attention that a token receives."""

    position: int = 0

    def __call__(self, maps: Any, inputs: Any) -> Tensor:
        received = maps.stacked()
        share: Tensor = received[..., self.position] / received.sum(-1)
        return share.mean()


@section("api.guide")
def guide(_: Lab) -> Any:
    """Each guide: the parts of the loss, the gradient, and the plain loss afterwards."""
    guides = {
        "mdg": hw.MDG(weight=0.5),
        "mdg by layer": hw.MDG(weight=0.5, contrast="layer", tau=0.5, special_tokens=False),
        "pdg": hw.PDG(weight=0.5, layers=[1], heads=[0, 1]),
        "match kl": hw.Match("next", weight=0.5, distance="kl"),
        "match received": hw.Match("first", weight=0.5, distance="cosine", on="received"),
        "own": FirstToken(weight=0.5),
        "sum": 2 * hw.MDG(weight=0.1) + hw.PDG(weight=0.1),
    }
    guides |= {f"disagree {on}": hw.guides.Disagreement(weight=0.5, on=on) for on in ("subspace", "position", "output")}
    guides |= {f"match {name}": hw.Match(name, weight=0.5) for name in ("first", "next", "prev", "delim", "period")}
    found = {}
    for name, each in guides.items():
        model = hw.guide(classifier().train(), each, tokenizer=build_tokenizer())
        loss = model(**batch()).loss
        loss.backward()
        parts, gradient = hw.guides.last_losses(model), take_gradient(model)
        hw.unguide(model)
        found[name] = {"loss": float(loss), "parts": parts, "gradient": gradient, "after": float(model(**batch()).loss)}
    return found


@section("api.weights")
def guide_weights(_: Lab) -> Any:
    """Schedules and automatic weights, over the steps of a loop."""
    found = {}
    for name, weight in {
        "auto": hw.auto(0.2, every=2, window=2),
        "warm_up": hw.guides.warm_up(0.4, 4),
        "decay": hw.guides.decay(0.4, 3, start=1, to=0.1),
        "piecewise": hw.guides.piecewise((0, 0.0), (2, 0.3), (5, 0.1)),
    }.items():
        model = hw.guide(classifier().train(), hw.PDG(weight=weight) + hw.MDG(weight=0.01))
        optimizer, rows = torch.optim.SGD(model.parameters(), lr=0.05), []
        for _step in range(6):
            model(**batch()).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            rows.append(hw.guides.last_losses(model))
        model(**batch())
        found[name] = {"steps": columns(rows), "share": hw.guides.guidance(model).gradient_share()}
    return found


class OutsideLoss(nn.Module):
    """Cross-entropy outside of the model, which it holds."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, given: dict[str, Tensor], labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.model(**given).logits, labels)


@section("api.trainer")
def trainer(_: Lab) -> Any:
    guides = hw.MDG(weight=hw.auto(0.1, every=3)) + hw.PDG(weight=0.01)
    plain = trainer_of(transformers.Trainer, hw.guide(classifier(), guides), "plain-trainer")
    plain.add_callback(hw.GuideCallback())
    smooth = {"label_smoothing_factor": 0.1, "gradient_accumulation_steps": 2, "max_steps": 5}
    guided = trainer_of(hw.GuidedTrainer, hw.guide(classifier(), guides), "guided-trainer", **smooth)
    outside = hw.guides.GuidedLoss(OutsideLoss(hw.guide(classifier().train(), hw.PDG(weight=0.5))))
    loss = float(outside(inputs(), batch()["labels"]))
    return {"Trainer": train(plain), "GuidedTrainer": train(guided), "GuidedLoss": loss}


@section("api.ssa")
def ssa(_: Lab) -> Any:
    """Labels by SSACallback, then scores of tokens, by the saved and loaded model."""
    found = {}
    for name, options in {
        "hybrid": hw.SSA(model="hybrid", attention_threshold=0.4),
        "soft": hw.SSA(model="cotraining", label_rule="soft", share_weight=False, aug_loss_weight=0.5),
    }.items():
        model = hw.self_supervise(classifier(), options, tokenizer=build_tokenizer(), max_length=32)
        found[name] = train(
            hw.training.relabel(trainer_of(transformers.Trainer, model, name, max_steps=15, learning_rate=3e-3))
        )
        model.eval().save_pretrained(f"ssa-{name}")
        loaded = hw.load(f"ssa-{name}")
        with torch.no_grad():
            output = loaded(**inputs(), output_ssa=True)
        found[name] |= {"logits": output.logits.tolist(), "kept": int(output["ssa_kept"].sum())}
        found[name] |= {"scores": stats(output["ssa_scores"]), "options": repr(hw.ssa.supervision(loaded).options)}
    return found


# -- runs --------------------------------------------------------------------------------------------------------------


@section("api.load")
def load(lab: Lab) -> Any:
    """Runs of every kind, and a model of several tasks that is put together by hand."""
    found = {name: logits(hw.load(lab.run(name))) for name in ("mdg", "options", "ssa-hybrid", "numbers")}
    several = hw.load(lab.run("joint-iat"))
    for task in ("agree", "type", "score"):
        found[f"joint {task}"] = logits(hw.load(lab.run("joint-iat"), task=task))
        found[f"several {task}"] = logits(several, task=task)
    own = hw.training.MultiTask({"one": classifier(3, 5), "two": classifier(2, 6)}).eval()
    hw.prune(own, {0: [0]})
    own.save_pretrained("multitask")
    return found | {"own": logits(own, task="two"), "own loaded": logits(hw.load("multitask"), task="two")}


@section("api.reranker")
def reranker(lab: Lab) -> Any:
    model = hw.Reranker.load(lab.run("list"))
    texts = [row["sentence1"] for row in examples(5, 4)]
    scores = model.predict([("the cat", text) for text in texts], batch=2)
    return {"scores": scores.tolist(), "ranked": [list(each) for each in model.rank("the cat", texts)]}


@section("api.runs")
def runs(lab: Lab) -> Any:
    """hw.analyze, hw.report and hw.compare on folders of runs."""
    plain, mdg = lab.copy("plain"), lab.copy("mdg")
    found: dict[str, Any] = {}
    for run in (plain, mdg):
        each = hw.analyze(run, examples=2, limit=10, importance=6)
        found[run.split("/")[1]] = {"shape": [each.layers, each.heads], **total(each.content["statistics"])}
    found["report"] = page(hw.report(mdg, plain).html())
    return found | {"compare": clean(hw.compare([plain, mdg]).as_data())}
