"""Input embeddings as vectors of words: real MiniLM, and tokenizers of other kinds."""

import pickle

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from training.tiny_encoder import save_encoder
from transformers import AutoModel, AutoTokenizer, PreTrainedTokenizerFast

from headwise.errors import InputError
from headwise.patterns.vectors import InputEmbeddings
from headwise.training.encoders import builtin_folder, find_encoder
from headwise.training.word_knowledge import input_embeddings

MINILM = "builtin:minilm-l6"


@pytest.fixture(scope="module")
def minilm():
    return input_embeddings(find_encoder(MINILM))


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(builtin_folder(MINILM))


@pytest.fixture(scope="module")
def weight():
    return AutoModel.from_pretrained(builtin_folder(MINILM)).get_input_embeddings().weight.detach()


def byte_level(unknown=None):
    """Knows `dog` and ` dog` (behind a space) as different tokens, and the single bytes of `dog,`."""
    tokens = ["d", "o", "g", "Ġ", ",", "do", "dog", "Ġdog", "<unk>"]
    merges = [("d", "o"), ("do", "g"), ("Ġ", "dog")]
    backend = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, merges, unk_token=unknown))
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.ByteLevel(add_prefix_space=False)])
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token=unknown)


# The number of each token is its embedding.
NUMBERS = torch.arange(9.0)[:, None]


def test_by_hand_the_mean_of_the_sub_words(minilm, tokenizer, weight):
    assert tokenizer.tokenize("metoprolol") == ["met", "##op", "##rol", "##ol"]
    parts = [
        weight[tokenizer.convert_tokens_to_ids(part)].double().numpy() for part in ("met", "##op", "##rol", "##ol")
    ]
    vectors, known = minilm.look_up(["metoprolol", "Dog", "\U0001f9ff", ""])
    np.testing.assert_allclose(vectors[0], sum(parts) / 4, atol=1e-6)
    np.testing.assert_array_equal(vectors[1], weight[tokenizer.convert_tokens_to_ids("dog")].numpy())
    assert vectors.dtype == np.float32
    assert known.tolist() == [True, True, False, False]
    assert not vectors[2:].any()


def test_a_byte_level_tokenizer_sees_the_word_behind_a_space():
    vectors, known = InputEmbeddings(byte_level(), NUMBERS).look_up(["dog", ",", "do"])
    assert vectors[:, 0].tolist() == [7, 4, (3 + 5) / 2]
    assert known.all()


def test_the_fingerprint_changes_with_the_matrix_and_with_the_tokenizer():
    first = InputEmbeddings(byte_level(), NUMBERS).fingerprint
    assert InputEmbeddings(byte_level(), NUMBERS.double()).fingerprint == first
    assert InputEmbeddings(byte_level(), NUMBERS + 1).fingerprint != first
    assert InputEmbeddings(byte_level("<unk>"), NUMBERS).fingerprint != first
    assert InputEmbeddings(byte_level(), NUMBERS.view(3, 3)).fingerprint != first


def test_it_can_be_sent_elsewhere(minilm):
    again = pickle.loads(pickle.dumps(minilm))
    for one, two in zip(minilm.look_up(["dog", "metoprolol"]), again.look_up(["dog", "metoprolol"]), strict=True):
        np.testing.assert_array_equal(one, two)
    assert again.fingerprint == minilm.fingerprint


def test_loading_leaves_the_random_numbers_alone(tmp_path):
    encoder = find_encoder(str(save_encoder(tmp_path, "roberta")))  # saved without a pooler, which starts at random
    torch.manual_seed(4)
    expected = torch.rand(1)
    torch.manual_seed(4)
    made = input_embeddings(encoder)
    assert torch.rand(1) == expected
    assert made.look_up(["word7", "x"])[1].tolist() == [True, False]


def test_what_is_no_tokenizer_no_matrix_or_no_weights_is_refused(tokenizer, tmp_path):
    for own, matrix, message in [
        (object(), NUMBERS, "needs a fast tokenizer"),
        (tokenizer, NUMBERS[:, 0], r"needs a matrix of floating-point numbers, got torch.float32 of shape \(9,\)"),
        (tokenizer, NUMBERS.long(), "got torch.int64"),
    ]:
        with pytest.raises(InputError, match=message):
            InputEmbeddings(own, matrix)
    save_encoder(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(InputError, match="model .*: its embeddings cannot be loaded"):
        input_embeddings(find_encoder(str(tmp_path)))
