"""Real tokenizers of every kind, small ones but for MiniLM's."""

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from headwise.training.encoders import builtin_folder

TEXTS = [
    "The patient slept . He was well. Dr. Who gave 3.5 mg, he said... (twice.)",
    "A man walks. A dog runs. The end .",
    "彼は寝た。犬は走る。終わり．はい｡",
] * 4


def wordpiece(**changes):
    """BERT's kind: [CLS] A [SEP] B [SEP]."""
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    backend.train_from_iterator(
        TEXTS, trainers.WordPieceTrainer(special_tokens=special, vocab_size=200, show_progress=False)
    )
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", **changes}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


def byte_level(trim_offsets=True):
    """RoBERTa's kind: <s> A </s></s> B </s>, without token types."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        special_tokens=special, vocab_size=360, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(TEXTS, trainer)
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=trim_offsets)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        **{"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>"},
        **{"pad_token": "<pad>", "unk_token": "<unk>"},
        model_input_names=["input_ids", "attention_mask"],
    )


def unigram(pair="<s> $A </s> </s> $B </s>", **names):
    """SentencePiece: XLM-R by default."""
    pieces = ["▁", ".", "▁.", "。", "▁。", "...", "▁...", *"abcdefghijklmnopqrstuvwxyz,0123456789"]
    special = ["<s>", "<pad>", "</s>", "<unk>", "[CLS]", "[SEP]"]
    entries = [(piece, 0.0) for piece in special] + [(piece, -2.0 - 0.01 * n) for n, piece in enumerate(pieces)]
    backend = Tokenizer(models.Unigram(entries, unk_id=3))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    special_tokens = [(piece, number) for number, piece in enumerate(special)]
    backend.post_processor = processors.TemplateProcessing(
        single=pair.split("$A")[0] + "$A " + pair.split()[-1], pair=pair, special_tokens=special_tokens
    )
    names = names or {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", unk_token="<unk>", **names)


def eos_only():
    """T5's kind knows no separator, only an end."""
    return unigram("$A </s> $B </s>", eos_token="</s>")


KINDS = {
    "wordpiece": wordpiece,
    "byte-level": byte_level,
    "xlm-r": unigram,
    "eos only": eos_only,
    "minilm": lambda: AutoTokenizer.from_pretrained(builtin_folder("builtin:minilm-l6")),
}
