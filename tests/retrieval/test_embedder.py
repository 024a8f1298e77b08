"""Embeddings: those of sentence-transformers, whatever the batch; what cannot be computed as it does is refused."""

import json
import pickle
import random
import shutil

import numpy
import pytest
import torch
from retrieval.small_collections import refusal
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from training.tiny_encoder import WORDS, save_encoder

from headwise.retrieval.embedder import MODES, Embedder
from headwise.training.encoders import find_encoder, load_body

LENGTH = 12


@pytest.fixture(scope="module")
def texts():
    chance = random.Random(5)
    return [" ".join(chance.choices(WORDS, k=chance.randint(1, 20))) for _ in range(30)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture
def saved(folder, tmp_path):
    """Saves a model of sentence-transformers with this pooling."""

    def save(pooling="mean", prompts=None, **options):
        body = Transformer(str(folder), max_seq_length=LENGTH)
        modules = [body, Pooling(body.get_embedding_dimension(), pooling, **options), Normalize()]
        model = SentenceTransformer(modules=modules, device="cpu", prompts=prompts)
        model.save_pretrained(str(tmp_path / "saved"))
        return tmp_path / "saved", model

    return save


# -- the same vectors as sentence-transformers -------------------------------------------------------------------------


@pytest.mark.parametrize("pooling", [*MODES, ("cls", "mean")])
def test_vectors_are_those_of_sentence_transformers(saved, texts, pooling):
    path, model = saved(pooling)
    ours = Embedder.load(path, max_length=LENGTH)
    expected = model.encode(texts)
    vectors = ours.embed(texts)
    assert (vectors.dtype, vectors.shape) == (numpy.float32, (len(texts), ours.dimension))
    assert numpy.abs(vectors - expected).max() < 1e-5
    assert numpy.abs(expected - expected[0]).max() > 0.01


def test_queries_and_papers_have_the_prompts_of_the_folder(saved, texts):
    path, model = saved(prompts={"query": "word1 word2 ", "document": "word3 "})
    ours = Embedder.load(path, max_length=LENGTH)
    queries, papers = ours.embed(texts, queries=True), ours.embed(texts)
    assert numpy.abs(queries - model.encode_query(texts)).max() < 1e-5
    assert numpy.abs(papers - model.encode_document(texts)).max() < 1e-5
    assert numpy.abs(queries - papers).max() > 0.01
    assert ours.token_counts(["word5 word6"]) == [6]  # with the prompt and two special tokens


def test_old_folders_name_their_pooling_by_flags(saved, texts):
    path, model = saved("max")
    flags = {"word_embedding_dimension": 8, "pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": False}
    (path / "1_Pooling" / "config.json").write_text(json.dumps(flags))
    assert numpy.abs(Embedder.load(path, max_length=LENGTH).embed(texts) - model.encode(texts)).max() < 1e-5


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "mpnet"])
def test_plain_folders_are_pooled_by_the_mean_of_their_tokens(tmp_path, texts, family):
    path = save_encoder(tmp_path, family)
    encoder = find_encoder(str(path))
    model = load_body(encoder)
    ours = Embedder.load(path, max_length=LENGTH)
    vectors = ours.embed(texts)
    for text, vector in zip(texts, vectors, strict=True):
        inputs = encoder.tokenizer(text, truncation=True, max_length=LENGTH, return_tensors="pt")
        with torch.no_grad():
            mean = model(inputs["input_ids"]).last_hidden_state[0].mean(0)
        assert vector == pytest.approx((mean / mean.norm()).numpy(), abs=1e-5)


def test_linear_layers_are_packed_and_compute_the_same(folder):
    plain, ours = load_body(find_encoder(str(folder))), Embedder.load(folder)
    assert all("forward" in vars(module) for module in ours.model.modules() if isinstance(module, torch.nn.Linear))
    ids = torch.randint(4, 50, (3, 7))
    with torch.inference_mode():
        expected, states = (model(ids).last_hidden_state for model in (plain, ours.model))
    assert torch.allclose(states, expected, atol=1e-5)


# -- batches, precision, keys ------------------------------------------------------------------------------------------


def test_the_batch_does_not_matter_and_bf16_is_near(folder, texts):
    ours, done = Embedder.load(folder, max_length=LENGTH), []
    exact = ours.embed(texts)
    for batch in (1, 7, 64):
        assert numpy.abs(ours.embed(texts, batch=batch, after_batch=done.append) - exact).max() < 1e-5
        assert done[-1] == len(texts)
    threads = torch.get_num_threads()
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            assert numpy.abs(ours.embed(texts, batch=4) - exact).max() < 1e-5
            assert torch.get_num_threads() == count
    finally:
        torch.set_num_threads(threads)
    assert ours.embed([]).shape == (0, ours.dimension)
    near = Embedder.load(folder, max_length=LENGTH, precision="bf16").embed(texts)
    assert 0 < numpy.abs(near - exact).max() < 0.1
    assert (near * exact).sum(1).min() > 0.99


def test_the_key_says_what_decides_the_vectors(folder, tmp_path, texts):
    ours = Embedder.load(folder)
    copy = shutil.copytree(folder, tmp_path / "copy")
    assert Embedder.load(copy).key == ours.key
    again = pickle.loads(pickle.dumps(ours))
    assert (again.key, again.max_length) == (ours.key, ours.max_length)
    assert (again.embed(texts) == ours.embed(texts)).all()
    others = [Embedder.load(folder, max_length=5), Embedder.load(folder, precision="bf16")]
    assert len({ours.key, *(other.key for other in others)}) == 3
    other = save_encoder(tmp_path / "other", intermediate_size=12)
    assert Embedder.load(other).key != ours.key


def test_the_built_in_encoder_reads_192_tokens():
    ours = Embedder.load()
    assert (ours.name, ours.dimension, ours.max_length) == ("builtin:minilm-l6", 384, 192)
    assert ours.token_counts(["sleep " * 300]) == [302]  # its tokenizer cuts at 128 by itself
    near, far = ours.embed(["a nap in the afternoon", "the price of steel"]) @ ours.embed(["sleep"], queries=True)[0]
    assert near > far + 0.2


# -- bad input ---------------------------------------------------------------------------------------------------------


def change(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_parts_that_are_not_computed_here_are_refused(saved):
    path, _ = saved(prompts={"query": "word1 "}, include_prompt=False)
    assert "leaves its prompts out of the pooling" in refusal(Embedder.load, path)
    pooling, modules = path / "1_Pooling" / "config.json", path / "modules.json"
    change(pooling, pooling_mode="middle", include_prompt=True)
    assert "unknown pooling 'middle'" in refusal(Embedder.load, path)
    parts = json.loads(modules.read_text())
    parts[1]["path"] = "../elsewhere"
    modules.write_text(json.dumps(parts))
    assert "which is outside the folder" in refusal(Embedder.load, path)
    parts[2]["type"] = "sentence_transformers.models.Dense"
    modules.write_text(json.dumps(parts))
    assert "has the parts Transformer, Pooling, Dense: headwise computes" in refusal(Embedder.load, path)
    for content, message in {
        "{": "it is not JSON",
        "[1]": "expected parts with type and path",
        "{}": "a JSON list",
    }.items():
        modules.write_text(content)
        assert message in refusal(Embedder.load, path)


def test_settings_without_meaning_and_missing_folders_are_refused(folder, tmp_path):
    assert "there is no such folder" in refusal(Embedder.load, tmp_path / "missing")
    assert "unknown built-in model" in refusal(Embedder.load, "builtin:none")
    assert "max_length 2: " in refusal(Embedder.load, folder, max_length=2)
    assert "max_length 999: " in refusal(Embedder.load, folder, max_length=999)
    assert "unknown precision" in refusal(Embedder.load, folder, precision="fp8")
