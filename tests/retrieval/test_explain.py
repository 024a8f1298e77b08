"""Where a claim's attention goes in a paper, against plain loops over the maps of eager attention."""

import copy
import re

import pytest
import torch
from conftest import build_model
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from headwise.errors import InputError
from headwise.retrieval.explain import explain

PIECES = "vit ##amin d low ##ers the risk of dia ##bet ##es in a trial , . - ( ) 2 type men wo ##men".split()
CLAIM = "Vitamin D lowers diabetes."
TEXT = "Type-2 diabetes: the vitamin trial (women, men). Vitamin D in men."


def build_tokenizer():
    vocabulary = {word: number for number, word in enumerate(["[UNK]", "[PAD]", "[CLS]", "[SEP]", *PIECES])}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep")}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


@pytest.fixture
def reranker():
    """A BERT of three layers and four heads that looks at some tokens far more than at others."""
    model = build_model("bert", num_labels=1).eval()
    with torch.no_grad():
        for layer in model.bert.encoder.layer:
            layer.attention.self.query.weight.mul_(3)
    return model


def reference(model, tokenizer, claim, text, max_length=40, layers=(0, 1, 2)):
    """Shares by (start, end) of every word of ASCII letters and digits, sums by kind of token, and links."""
    found = tokenizer(
        claim,
        text,
        truncation="longest_first",
        max_length=max_length,
        return_offsets_mapping=True,
        return_tensors="pt",
    )
    kinds, places = found.sequence_ids(0), found.pop("offset_mapping")[0].tolist()
    eager = copy.deepcopy(model).eval()
    eager.set_attn_implementation("eager")
    with torch.no_grad():
        maps = eager(**found, output_attentions=True).attentions

    def attention(queries, keys):
        total = 0.0
        for layer in layers:
            for head in range(4):
                for query in queries:
                    for key in keys:
                        total += float(maps[layer][0, head, query, key])
        return total / (len(layers) * 4 * len(queries))

    def tokens(kind, span=(0, 10**6)):
        return [
            place
            for place, (start, end) in enumerate(places)
            if kinds[place] == kind and span[0] <= start < end <= span[1]
        ]

    def spans(of, kind):
        every = [match.span() for match in re.finditer("[A-Za-z0-9]+", of)]
        return [span for span in every if tokens(kind, span)]

    def shares(queries):
        masses = {span: attention(queries, tokens(1, span)) for span in spans(text, 1)}
        return {span: mass / sum(masses.values()) for span, mass in masses.items()}

    links = {}
    for span in spans(claim, 0):
        own = shares(tokens(0, span))
        best = max(own, key=own.get)
        links[span] = (best, own[best])
    special = [place for place, kind in enumerate(kinds) if kind is None]
    kept = [attention(tokens(0), part) for part in (special, tokens(0), tokens(1))]
    return shares(tokens(0)), kept, links


@pytest.mark.parametrize(("layers", "numbers"), [("all", (0, 1, 2)), ("first:2", (0, 1)), (-1, (2,))])
def test_shares_are_what_plain_loops_over_eager_maps_give(reranker, tokenizer, layers, numbers):
    found = explain(reranker, tokenizer, CLAIM, TEXT, max_length=40, layers=layers)
    shares, kept, links = reference(reranker, tokenizer, CLAIM, TEXT, layers=numbers)
    assert {(word.start, word.end): word.share for word in found.words} == pytest.approx(shares, rel=1e-5)
    assert max(shares.values()) > 2 * min(shares.values())
    assert [found.special_share, found.claim_share, found.paper_share] == pytest.approx(kept, rel=1e-5)
    assert found.layers == numbers
    assert (found.truncated, found.read) == (False, len(TEXT))
    assert sum(word.share for word in found.words) == pytest.approx(1)
    strongest = [word.share for word in found.strongest(3)]
    assert strongest == sorted((word.share for word in found.words), reverse=True)[:3]
    assert {(link.start, link.end) for link in found.links} == set(links)
    for link in found.links:
        place, share = links[link.start, link.end]
        assert (link.strongest.start, link.strongest.end) == place
        assert link.strongest.share == pytest.approx(share, rel=1e-5)


def test_with_even_attention_a_word_has_as_much_as_it_has_tokens(reranker, tokenizer):
    with torch.no_grad():
        for layer in reranker.bert.encoder.layer:
            layer.attention.self.query.weight.zero_()
            layer.attention.self.query.bias.zero_()
    found = explain(reranker, tokenizer, "vitamin d.", "women, diabetes - men", max_length=40)
    # [CLS] vit ##amin d . [SEP] wo ##men , dia ##bet ##es - men [SEP]: 15 tokens, of words 2 + 3 + 1.
    assert {word.text: word.share for word in found.words} == pytest.approx(
        {"women": 2 / 6, "diabetes": 3 / 6, "men": 1 / 6}
    )
    assert [found.special_share, found.claim_share, found.paper_share] == pytest.approx([3 / 15, 4 / 15, 8 / 15])
    assert [(link.text, link.strongest.text) for link in found.links] == [("vitamin", "diabetes"), ("d", "diabetes")]
    assert [link.strongest.share for link in found.links] == pytest.approx([1 / 2, 1 / 2])
    equal = explain(reranker, tokenizer, CLAIM, "d men in", max_length=40)
    assert [word.text for word in equal.strongest()] == ["d", "men", "in"]


def test_words_are_stretches_of_letters_and_digits_with_their_accents(reranker, tokenizer):
    text = "IL-6: 3.5 mg of cafe\u0301 (wo\u2011men) ... _ men"
    found = explain(reranker, tokenizer, CLAIM, text, max_length=40)
    assert [word.text for word in found.words] == ["IL", "6", "3.5", "mg", "of", "cafe\u0301", "wo", "men", "men"]
    assert all(text[word.start : word.end] == word.text for word in found.words)
    assert [link.text for link in found.links] == ["Vitamin", "D", "lowers", "diabetes"]


def test_what_the_model_did_not_read_has_no_share(reranker, tokenizer):
    long = "men " + "women " * 30
    found = explain(reranker, tokenizer, CLAIM, long, max_length=21)
    # [CLS], 9 tokens of the claim, [SEP], 9 of the paper, [SEP].
    assert (found.truncated, len(found.words), found.read) == (True, 5, len("men women women women women"))
    shares, _, _ = reference(reranker, tokenizer, CLAIM, long, max_length=21)
    assert {(word.start, word.end): word.share for word in found.words} == pytest.approx(shares, rel=1e-5)
    half = explain(reranker, tokenizer, "vitamin " * 30, "women " * 30, max_length=20)  # cut in the middle of a word
    assert (len(half.words), half.words[-1].text, half.read) == (5, "women", len("women women women women wo"))
    assert [link.start for link in half.links] == [0, 8, 16, 24]


def test_dropout_and_mode_and_the_tokenizers_own_padding_do_not_matter(reranker, tokenizer):
    expected = explain(reranker, tokenizer, CLAIM, TEXT, max_length=40)
    padding, noisy = build_tokenizer(), build_model("bert", num_labels=1, dropout=0.5).train()
    padding.backend_tokenizer.enable_padding(pad_id=1, pad_token="[PAD]", length=40)
    padding.backend_tokenizer.enable_truncation(8)
    noisy.load_state_dict(reranker.state_dict())
    assert explain(noisy, padding, CLAIM, TEXT, max_length=40) == expected
    assert noisy.training


def test_texts_without_words_are_refused(reranker, tokenizer):
    with pytest.raises(InputError, match="4 words of the claim and 0 of"):
        explain(reranker, tokenizer, CLAIM, "(...)", max_length=40)
    with pytest.raises(InputError, match="0 words of the claim and 12 of"):
        explain(reranker, tokenizer, "...", TEXT, max_length=40)
