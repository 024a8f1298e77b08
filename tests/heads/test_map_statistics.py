"""Statistics of maps against the same in plain loops, and that batches and padding do not matter."""

import math

import pytest
import torch
from conftest import build_batch, build_model

import headwise as hw
from headwise.errors import InputError, StateError
from headwise.heads.statistics import MapStatistics, Marks

# The warning about models that are watched another way is tested elsewhere.
pytestmark = pytest.mark.filterwarnings("ignore::headwise.errors.HeadwiseWarning")


def marks_of(mask, lazy=None):
    """The first and the last token frame, the rest is two texts; of some tokens a pattern wants something."""
    valid = mask.bool()
    special, texts = torch.zeros_like(valid), torch.full(mask.shape, -1)
    for row in range(len(mask)):
        places = valid[row].nonzero().flatten().tolist()
        special[row, [places[0], places[-1]]] = True
        inner = places[1:-1]
        texts[row, inner] = 0
        texts[row, inner[len(inner) // 2 :]] = 1
    # By the number of the token in its text, so that neither padding nor the others of the batch matter.
    number = valid.cumsum(1) - 1
    wanted = (3 * number.unsqueeze(2) + 5 * number.unsqueeze(1)) % 7 < 2
    wanted[number == 2] = False
    if lazy is not None:
        wanted[lazy] = False
    return Marks(valid, special, texts, wanted)


def collect(model, batches, lazy=None):
    statistics = MapStatistics()
    with torch.inference_mode(), hw.capture(model, what="map", digest=statistics.digest) as record:
        for batch in batches:
            statistics.begin(marks_of(batch["attention_mask"], lazy))
            model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
            statistics.add(record)
    return statistics.result()


def slow(model, batch):
    """name -> (layer, head) -> a value for each example."""
    with torch.inference_mode(), hw.capture(model, what="map") as record:
        model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
    marks, found = marks_of(batch["attention_mask"]), {}
    for example in range(len(batch["input_ids"])):
        tokens = marks.valid[example].nonzero().flatten().tolist()
        received = {}
        for layer, head in record.maps:
            a = record[layer][example, head].tolist()
            rows = [[a[q][k] for k in tokens] for q in tokens]
            count = len(tokens)
            entropy = sum(-sum(x * math.log(x) for x in row if x > 0) for row in rows) / count / math.log(count)
            sink = sum(a[q][k] for q in tokens for k in tokens if marks.special[example, k]) / count
            distance = sum(a[q][k] * abs(q - k) for q in tokens for k in tokens) / count
            text = [q for q in tokens if marks.texts[example, q] >= 0]
            cross = sum(
                a[q][k] for q in text for k in text if marks.texts[example, q] != marks.texts[example, k]
            ) / len(text)
            received[layer, head] = torch.tensor([sum(a[q][k] for q in tokens) for k in tokens])
            cells = [(q, k) for q in tokens for k in tokens if marks.pattern[example, q, k]]
            match = sum(a[q][k] for q, k in cells) / len({q for q, _ in cells})
            found.setdefault("match", {}).setdefault((layer, head), []).append(match)
            for name, value in (("entropy", entropy), ("sink", sink), ("distance", distance), ("cross", cross)):
                found.setdefault(name, {}).setdefault((layer, head), []).append(value)
        for place, mine in received.items():
            others = [
                torch.nn.functional.cosine_similarity(mine, theirs, 0)
                for key, theirs in received.items()
                if key != place
            ]
            found.setdefault("similarity", {}).setdefault(place, []).append(float(sum(others) / len(others)))
    return found


@pytest.mark.parametrize("family", ["bert", "modernbert", "deberta-v2"])
def test_equals_plain_loops(family):
    model = build_model(family).eval()
    batch = build_batch(padding=2)
    expected, found = slow(model, batch), collect(model, [batch])
    assert set(found) == set(expected)
    for name, statistic in found.items():
        assert statistic["examples"] == 3
        for (layer, head), values in expected[name].items():
            values = torch.tensor(values, dtype=torch.float64)
            error = float(values.std() / math.sqrt(3))
            assert statistic["mean"][layer][head] == pytest.approx(float(values.mean()), abs=2e-5), (name, layer, head)
            assert statistic["error"][layer][head] == pytest.approx(error, abs=2e-5), (name, layer, head)


def test_neither_batches_nor_padding_matter():
    model, batch = build_model("bert").eval(), build_batch()
    one_by_one = [{name: tensor[row : row + 1] for name, tensor in build_batch(padding=3).items()} for row in range(3)]
    together, apart = collect(model, [batch]), collect(model, one_by_one)
    for name in together:
        for one, other in zip(together[name]["mean"], apart[name]["mean"], strict=True):
            assert one == pytest.approx(other, abs=1e-5)
    assert set(sum(collect(model, one_by_one[:1])["sink"]["error"], [])) == {None}


def test_an_example_without_a_target_does_not_count():
    model, batch = build_model("bert").eval(), build_batch()
    found = collect(model, [batch], lazy=0)["match"]
    assert found["examples"] == 2
    for (layer, head), values in slow(model, batch)["match"].items():
        assert found["mean"][layer][head] == pytest.approx(sum(values[1:]) / 2, abs=2e-5)


def test_no_batch_and_broken_attention_are_refused():
    with pytest.raises(StateError, match="no batch was added"):
        MapStatistics().result()
    with pytest.raises(StateError, match="call begin"):
        MapStatistics().digest(0, slice(0, 1), torch.ones(1, 1, 2, 2))
    model, batch = build_model("bert").eval(), build_batch()
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight.fill_(math.nan)
    with pytest.raises(InputError, match="not finite"):
        collect(model, [batch])
