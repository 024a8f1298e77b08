"""Match: plain loops over examples, maps and rows; cases worked by hand; what it costs and what it refuses."""

import copy
import math
import pickle

import pytest
import torch
from conftest import EAGER, build_batch, build_model
from guides.reference import assert_same_gradients, gradients, record_of, slow_maps
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

import headwise as hw
from headwise.attention import Inputs, backend, select
from headwise.errors import InputError
from headwise.guides import GUIDES, build
from headwise.guides.match import NAMED
from headwise.patterns import PATTERNS, Next, Pattern, build_pattern, register_pattern
from headwise.patterns.base import Knowledge
from headwise.training.encoders import builtin_folder

pytestmark = pytest.mark.filterwarnings("ignore:.* does not call custom attention:headwise.errors.HeadwiseWarning")

PAD, CLS, SEP, STOP = 1, 2, 3, 4
FIXED = ("first", "next", "prev", "delim", "period")
FORMS = ("map", "received")
DISTANCES = ("mse", "kl", "cosine")


class Own(Knowledge):
    """Knowledge that a test makes up."""

    name = "own"


def tokenizer(**names):
    """Sixty words, [CLS] and "." among them, and [SEP] unless told otherwise."""
    words = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", ".", *(f"word{number}" for number in range(55))]
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, "[UNK]")),
        **{"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", **names},
    )


def sentences(*, left=False):
    """Pairs of 10 and 7 tokens with one and two full stops, and a single text of 4 without; padding."""
    batch = build_batch(length=10)
    ids = batch["input_ids"]
    ids[:, 0] = CLS
    ids[0, [4, 9]] = SEP
    ids[1, [3, 6]] = SEP
    ids[2, 3] = SEP
    ids[0, 8] = STOP
    ids[1, [2, 5]] = STOP
    if left:
        batch["input_ids"], batch["attention_mask"] = ids.flip(1), batch["attention_mask"].flip(1)
    return batch


def known(batch):
    """[B,K,K] of which every other row and column is empty, and those of the third example all are."""
    size, length = batch["input_ids"].shape
    weights = torch.rand(size, length, length, generator=torch.Generator().manual_seed(2))
    weights[:, ::2] = 0
    weights[:, :, 1] = 0
    weights[2] = 0
    return weights


def with_knowledge(batch):
    return {**batch, "knowledge": {Own().entry("map"): known(batch), Own().entry("received"): known(batch).mean(1)}}


def guided(model, guide, batch):
    """(the raw value, what it adds to the loss) of one training pass."""
    values, added = all_guided(model, [guide], batch)
    return *values.values(), added


def all_guided(model, guides, batch):
    """(the raw values by name, what they add to a loss that is nothing)."""
    hw.guide(model.train(), guides, tokenizer=tokenizer())
    model(**{name: each for name, each in batch.items() if name != "labels"})
    guidance = hw.guides.guidance(model)
    added = guidance.total(torch.zeros((), dtype=model.dtype))
    hw.unguide(model)
    return {name: part.raw for name, part in guidance.losses.guides.items()}, added


# -- the slow reference ------------------------------------------------------------------------------------------------


def slow_row(pattern, query, tokens, ids, knowledge):
    """Weights over the keys that one query should look at, by key; empty if there is no target."""
    turn = tokens.index(query)
    if pattern == "first":
        return {tokens[0]: 1.0}
    if pattern == "next":
        return {tokens[turn + 1]: 1.0} if turn + 1 < len(tokens) else {}
    if pattern == "prev":
        return {tokens[turn - 1]: 1.0} if turn > 0 else {}
    if pattern == "own":
        return {key: float(knowledge[query, key]) for key in tokens if knowledge[query, key] > 0}
    return {key: 1.0 for key in tokens if ids[key] == {"delim": SEP, "period": STOP}[pattern]}


def slow_shares(pattern, tokens, ids, knowledge):
    """Weights over the keys, whoever looks at them."""
    if pattern == "own":
        means = knowledge.mean(0)
        return {key: float(means[key]) for key in tokens if means[key] > 0}
    shares = {}
    for query in tokens:
        row = slow_row(pattern, query, tokens, ids, knowledge)
        for key, weight in row.items():
            shares[key] = shares.get(key, 0.0) + weight / sum(row.values())
    return shares


def slow_distance(distance, attention, target, keys):
    """Of one row of attention [K], over some keys; None if there is no target."""
    wanted = torch.tensor([target.get(key, 0.0) for key in keys], dtype=attention.dtype)
    if wanted.sum() == 0:
        return None
    wanted, seen = wanted / wanted.sum(), attention[keys]
    if distance == "mse":
        return (seen - wanted).square().sum() / len(keys)
    if distance == "kl":
        asked = wanted > 0
        seen = seen[asked].clamp_min(torch.finfo(seen.dtype).tiny)  # outside of a window attention is 0
        return (wanted[asked] * (wanted[asked].log() - seen.log())).sum()
    lengths = seen.square().sum() * wanted.square().sum()
    return 1 - seen @ wanted / lengths.clamp_min(torch.finfo(seen.dtype).tiny).sqrt()


def slow_one(one, pattern, on, distance, tokens, counted, ids, knowledge):
    """Of one map [Q,K] of one example; None if it has no target."""
    if on == "received":
        received = sum(one[query] for query in tokens)
        shares = received / received[counted].sum()
        return slow_distance(distance, shares, slow_shares(pattern, tokens, ids, knowledge), counted)
    rows = [
        slow_distance(distance, one[query], slow_row(pattern, query, tokens, ids, knowledge), tokens)
        for query in counted
    ]
    rows = [row for row in rows if row is not None]
    return sum(rows) / len(rows) if rows else None


def slow_match(maps, batch, pattern, on, distance, *, layers=3, reduction="mean", special_tokens=True):
    """[B,M,Q,K] -> a number; the same number of maps in every layer."""
    examples = []
    for example, ids, mask, knowledge in zip(
        maps, batch["input_ids"].tolist(), batch["attention_mask"].tolist(), known(batch), strict=True
    ):
        tokens = [index for index, valid in enumerate(mask) if valid]
        counted = [index for index in tokens if special_tokens or ids[index] not in (CLS, SEP)]
        each = [slow_one(one, pattern, on, distance, tokens, counted, ids, knowledge) for one in example]
        if each[0] is not None:
            examples.append(torch.stack(each).mean() * (layers if reduction == "sum" else 1))
    return sum(examples) / len(examples)


def first_half(maps):
    """The first two of four heads of each of three layers."""
    return maps[:, [0, 1, 4, 5, 8, 9]]


def same(actual, expected):
    """Targets are float32: 1/3 has seven places."""
    torch.testing.assert_close(actual, expected.detach(), rtol=2e-7, atol=0)


def exact(family="bert"):
    return build_model(family, dtype=torch.float64)


# Every pattern on one family, and one family for each other way to maps; then the options.
CASES = [("bert", pattern, {}) for pattern in (*FIXED, "own")]
CASES += [("roberta", "own", {}), ("modernbert", "period", {}), ("deberta-v2", "own", {}), ("mpnet", "next", {})]
CASES += [
    ("bert", pattern, options)
    for pattern in ("period", "own")
    for options in ({"special_tokens": False}, {"reduction": "sum"})
]


@pytest.mark.parametrize(("family", "pattern", "options"), CASES)
def test_equals_the_slow_reference_in_value_and_gradient(family, pattern, options):
    model, twin, batch = exact(family), exact(family), sentences()
    maps = first_half(slow_maps(twin.eval(), batch, eager=family in EAGER))
    chosen = Own() if pattern == "own" else pattern
    for on in FORMS:
        for distance in DISTANCES:
            guide = hw.Match(chosen, on=on, distance=distance, weight=1.0, **options)
            value, added = guided(model, guide, with_knowledge(batch))
            expected = slow_match(maps, batch, pattern, on, distance, **options)
            same(value, expected)
            assert_same_gradients(gradients(model, added), gradients(twin, expected), 1e-6)


def test_the_sum_over_layers_is_that_of_their_means_over_heads():
    """Layers with one and three guided heads."""
    twin, batch = exact(), sentences()
    maps = slow_maps(twin.eval(), batch, eager=False)
    heads = {0: [2], 2: [0, 1, 3]}
    parts = [slow_match(maps[:, chosen], batch, "next", "map", "mse") for chosen in ([2], [8, 9, 11])]
    value, _ = guided(exact(), hw.Match("next", heads=heads, reduction="sum"), batch)
    same(value, parts[0] + parts[1])
    value, _ = guided(exact(), hw.Match("next", heads=heads), batch)
    same(value, (parts[0] + 3 * parts[1]) / 4)


def test_after_dropout_is_what_dropout_left():
    model, batch = build_model("bert", dropout=0.5).train(), sentences()
    torch.manual_seed(4)
    with hw.capture(model, what="map", heads="first:half", after_dropout=True) as record:
        model(**batch)
    torch.manual_seed(4)
    value, _ = guided(model, hw.Match("next", dropout="after"), batch)
    assert (record.stacked()[0].sum(-1) - 1).abs().max() > 0.1
    torch.testing.assert_close(value, slow_match(record.stacked(), batch, "next", "map", "mse").detach())


# -- worked by hand ----------------------------------------------------------------------------------------------------

THREE = torch.ones(1, 3, dtype=torch.bool)
# Three tokens; row 0 looks ahead by half, row 1 looks ahead, row 2 (which has no next) looks back.
BY_HAND = torch.tensor([[[[0.25, 0.5, 0.25], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]]], dtype=torch.float64)
MARKS = Inputs(None, None, None, marks={"separator": torch.tensor([[False, False, True]])})


def match(maps, pattern, valid=THREE, *, special=None, **options):
    guide = hw.Match(pattern, **options)
    return guide(record_of(maps, valid, what=guide.what, special=special), MARKS).item()


@pytest.mark.parametrize(
    ("pattern", "options", "expected"),
    [
        # rows 0 and 1 count; row 1 is as wanted; row 0 is off by (1/4, -1/2, 1/4): 6/16 over 3 keys
        ("next", {}, 6 / 16 / 3 / 2),
        # the cosine of row 0 is (1/2) / sqrt(6/16)
        ("next", {"distance": "cosine"}, (1 - 0.5 / math.sqrt(6 / 16)) / 2),
        # the separator is key 2: row 0 off by (1/4, 1/2, -3/4), row 1 not, row 2 by (0, 1, -1)
        ("delim", {}, (14 / 16 + 0 + 2) / 3 / 3),
        # received (1/4, 3/2, 5/4) of 3: shares (1/12, 1/2, 5/12); wanted by next (0, 1/2, 1/2)
        ("next", {"on": "received", "distance": "kl"}, 0.5 * math.log(6 / 5)),
        ("delim", {"on": "received"}, (1 / 144 + 36 / 144 + 49 / 144) / 3),
    ],
    ids=str,
)
def test_by_hand(pattern, options, expected):
    assert match(BY_HAND, pattern, **options) == pytest.approx(expected, rel=1e-7)


# -- nothing to match --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on", "distance", "weight"),
    [("map", "kl", hw.auto(0.5)), ("received", "cosine", 1.0)],
)
def test_a_batch_without_any_full_stop_gives_zero_and_trains_on(on, distance, weight):
    plain, model = exact().train(), exact().train()
    batch = sentences()
    batch["input_ids"][batch["input_ids"] == STOP] = 7
    hw.guide(model, hw.Match("period", on=on, distance=distance, weight=weight), tokenizer=tokenizer())
    for _ in range(2):
        for each in (plain, model):
            each(**batch).loss.backward()
            torch.optim.SGD(each.parameters(), 0.1).step()
        assert hw.guides.last_losses(model)["match"] == 0.0
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    # and the next batch with full stops is guided
    assert model(**sentences()).loss > hw.guides.guidance(model).losses.task


@pytest.mark.parametrize(
    "options",
    [{"on": "map", "distance": "cosine"}, {"on": "received", "distance": "kl", "special_tokens": False}],
    ids=str,
)
def test_what_dropout_leaves_nothing_of_does_no_harm(options):
    """Of short sentences a high rate often takes whole rows, or all that an example's content received."""
    model = build_model("bert", dropout=0.9).train()
    batch = {name: each[2:].repeat(8, *[1] * (each.dim() - 1)) for name, each in sentences().items()}
    value, added = guided(model, hw.Match("prev", dropout="after", weight=1.0, **options), batch)
    assert value.isfinite()
    for name, gradient in gradients(model, added).items():
        assert gradient.isfinite().all(), name


# -- what it costs -----------------------------------------------------------------------------------------------------


class Spy:
    """Notes what goes by, in the place of a function."""

    def __init__(self, monkeypatch, module, name):
        self.function, self.calls = getattr(module, name), []
        monkeypatch.setattr(module, name, self)

    def __call__(self, *args, **kwargs):
        self.calls.append(args)
        return self.function(*args, **kwargs)


def test_guided_heads_are_the_first_half_of_every_layer_by_default():
    guide = hw.Match("next")
    assert select(guide.layers, guide.heads, (3, 4)) == {0: (0, 1), 1: (0, 1), 2: (0, 1)}
    assert select(guide.layers, guide.heads, (2, 5)) == {0: (0, 1), 1: (0, 1)}
    assert select(guide.layers, guide.heads, (1, 1)) == {0: (0,)}


def test_only_guided_heads_leave_sdpa_and_received_attention_needs_no_maps(monkeypatch):
    sdpa = Spy(monkeypatch, backend.torch.nn.functional, "scaled_dot_product_attention")
    plain = Spy(monkeypatch, backend, "sdpa_attention_forward")
    explicit = Spy(monkeypatch, backend, "attention_with_maps")
    counting = Spy(monkeypatch, backend, "attention_with_received")
    guided(build_model("bert"), hw.Match("next", layers=[0, 2], heads=[1]), sentences())
    assert [call[0].layer_idx for call in plain.calls] == [1]
    watched = [query for query, *_ in sdpa.calls if query.shape[1] < 4]
    assert [query.shape[1] for query in watched] == [3, 3]
    assert [list(call[3]) for call in explicit.calls] == [[1]] * 2
    assert not counting.calls
    explicit.calls.clear()
    guided(build_model("bert"), hw.Match("next", on="received"), sentences())
    assert not explicit.calls
    assert len(counting.calls) == 3


def test_two_guides_on_one_pattern_make_its_target_once(monkeypatch):
    made, target = [], Next.target
    monkeypatch.setattr(Next, "target", lambda self, tokens: made.append(tokens) or target(self, tokens))
    hw.guide(build_model("bert").train(), hw.Match("next") + hw.Match("next", distance="kl"))(**sentences())
    assert len(made) == 1


# -- with others -------------------------------------------------------------------------------------------------------

TOGETHER = {
    "mdg": hw.MDG(weight=1.0),
    "match": hw.Match("next", weight=1.0, heads=[1, 2]),
    "prev": build("prev", weight=1.0, heads=[1, 2]),
    "delim": build("delim", weight=1.0, layers=[1], heads=[0, 1], distance="kl"),
    "period": build("period", weight=1.0, on="received", heads="last:1"),
    "disagreement": hw.guides.Disagreement(weight=1.0),
}


@pytest.mark.parametrize("family", ["bert", "deberta-v2"])
def test_together_they_are_the_sum_of_each_alone(family):
    batch, names = sentences(), list(TOGETHER)
    expected, sums = {}, {}
    for name in names:
        model = exact(family)
        expected[name], added = guided(model, TOGETHER[name], batch)
        for parameter, gradient in gradients(model, added).items():
            sums[parameter] = sums.get(parameter, 0) + gradient
    model = exact(family)
    values, added = all_guided(model, [TOGETHER[name] for name in names], batch)
    assert list(values) == names
    for name in names:
        torch.testing.assert_close(values[name], expected[name], rtol=1e-10, atol=0)
    assert_same_gradients(gradients(model, added), sums, 1e-10)


# -- learning ----------------------------------------------------------------------------------------------------------


TEXTS = [("The heart is enlarged.", "No acute distress."), ("He was given 3.5 mg.", "The pain went away. He left.")]


def test_guided_heads_learn_to_look_at_separators():
    tokenizer = AutoTokenizer.from_pretrained(builtin_folder("builtin:minilm-l6"))
    model = build_model("bert", vocab_size=len(tokenizer), pad_token_id=0)
    batch = dict(tokenizer(*map(list, zip(*TEXTS, strict=True)), padding=True, return_tensors="pt"))
    separators, valid = batch["input_ids"] == tokenizer.sep_token_id, batch["attention_mask"].bool()
    assert separators.sum(1).tolist() == [2, 2]
    hw.guide(model, hw.Match("delim", weight=30.0), tokenizer=tokenizer)
    optimiser = torch.optim.Adam(model.bert.encoder.parameters(), 3e-2)  # not the thirty thousand embeddings

    def shares():
        """Of the attention of guided heads, and of the others, that is on separators."""
        with hw.capture(model.eval(), what="map") as record, torch.no_grad():
            model(**batch)
        on_them = (record.stacked() * separators[:, None, None]).sum(-1)  # [B,M,Q]
        parts = ([0, 1, 4, 5, 8, 9], [2, 3, 6, 7, 10, 11])
        return [on_them[:, heads].masked_select(valid[:, None]).mean().item() for heads in parts]

    assert shares()[0] < 0.4
    for _ in range(20):
        optimiser.zero_grad()
        model.train()(**batch, labels=torch.tensor([0, 1])).loss.backward()
        optimiser.step()
    guided_heads, others = shares()
    assert guided_heads > 0.9
    assert others < 0.7


# -- making one --------------------------------------------------------------------------------------------------------


def test_a_pattern_can_be_given_in_several_ways():
    expected = hw.Match("next")
    assert expected.pattern == Next()
    for one in (hw.Match(Next()), hw.Match(pattern="next"), hw.Match({"name": "next"})):
        assert one == expected
    assert build("match", pattern={"name": "next"}) == expected
    # What is compared follows the pattern unless said.
    assert [hw.Match(pattern).on for pattern in FIXED] == ["map"] * 5
    assert hw.Match(Own()).on == "received"
    assert hw.Match(Own(), on="map").on == "map"
    assert [hw.Match("next", on=on).what for on in FORMS] == ["map", "received"]
    hw.Match("delim", on="map", special_tokens=False)  # the rows of special tokens are left out, not their columns


def test_a_guide_for_every_pattern():
    assert set(NAMED) == set(PATTERNS) <= set(GUIDES)
    for name in PATTERNS:
        guide = build(name)
        assert (guide.name, guide.pattern, guide.marks) == (name, build_pattern(name), build_pattern(name).marks)
        assert type(guide).__doc__.startswith(PATTERNS[name].__doc__.strip().splitlines()[0])
        assert copy.deepcopy(guide) == pickle.loads(pickle.dumps(guide)) == guide
    assert isinstance(build("next"), hw.Match)
    assert build("next") != hw.Match("next")  # another name in the log


def test_a_pattern_may_have_lists_among_its_options(batch):
    @register_pattern("lists")
    class Lists(Pattern):
        ids: list[int]

        def target(self, tokens):
            return PATTERNS["first"]().target(tokens)

    try:
        model = hw.guide(build_model("bert").train(), hw.Match({"name": "lists", "ids": [1, 2]}, weight=1.0))
        model(**batch)
        assert hw.guides.last_losses(model)["match"] > 0
    finally:
        PATTERNS.remove("lists")


def test_a_batch_without_the_knowledge_is_refused():
    model = hw.guide(build_model("bert").train(), hw.Match(Own(), on="map"))
    with pytest.raises(InputError, match="the batch carries no own knowledge .*:map.*add_knowledge"):
        model(**sentences())
