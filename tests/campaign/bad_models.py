"""Folders of models with a damaged config, tokenizer or weights."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from campaign.bad_json import mistake
from campaign.orders import BAD, OPEN, Case, Draw


def wrong_model(draw: Draw) -> Case | None:
    """One mistake in a folder of a run or of an encoder."""
    if not draw.order.runs:
        return None
    folder = draw.box / draw.chance.choice(draw.order.runs)
    if draw.order.command[0] in ("figure", "report"):  # these look at the files of an analysis only
        return None
    kind = draw.chance.choice(("config", "tokenizer", "tokenizer_config", "weights", "weights"))
    if kind == "weights":
        what, verdict = wrong_weights(folder, draw.chance)
    else:
        file = folder / f"{kind}.json"
        data = json.loads(file.read_text(encoding="utf-8"))
        what, verdict = (_wrong_config if kind == "config" else _wrong_tokenizer)(data, draw.chance)
        file.write_text(json.dumps(data), encoding="utf-8")
        what = f"{file.name}: {what}"
    # Without weights: a doctor, a check of data, and D-scores of a curve that is there.
    if draw.order.name in ("doctor", "data-check-model", "heads-dissociation"):
        verdict = OPEN
    return draw.case(f"{draw.name(folder)}: {what}", verdict)


CONFIG: tuple[tuple[str, Any, str], ...] = (
    ("model_type", "no-such-model", BAD),
    ("model_type", "gpt2", BAD),
    ("model_type", None, OPEN),
    ("hidden_size", 33, BAD),
    ("hidden_size", 64, BAD),
    ("hidden_size", 0, BAD),
    ("hidden_size", -32, BAD),
    ("hidden_size", "many", BAD),
    ("num_attention_heads", 5, BAD),
    ("num_attention_heads", 0, BAD),
    ("num_hidden_layers", 7, BAD),
    ("num_hidden_layers", -1, BAD),
    ("num_hidden_layers", 1, OPEN),
    ("intermediate_size", 7, BAD),
    ("vocab_size", 5, BAD),
    ("vocab_size", 10**6, BAD),
    ("max_position_embeddings", 4, BAD),
    ("hidden_act", "no-such-act", BAD),
    ("hidden_act", "relu", OPEN),
    ("auto_map", {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}, OPEN),
    ("architectures", ["NoSuchModel"], OPEN),
    ("dtype", "float7", OPEN),
    ("dtype", "float16", OPEN),
    ("id2label", {"0": "a"}, OPEN),
    ("id2label", 3, OPEN),
    ("problem_type", "no_such_problem", OPEN),
    ("hidden_dropout_prob", "nan", OPEN),
    ("hidden_dropout_prob", 7, OPEN),
    ("layer_norm_eps", -1, OPEN),
    ("quantization_config", {"quant_method": "no-such"}, OPEN),
    ("attn_implementation", "no-such", OPEN),
    ("pad_token_id", 10**6, OPEN),
)


def _wrong_config(data: dict[str, Any], chance: random.Random) -> tuple[str, str]:
    if chance.random() < 0.4:
        what, _ = mistake(data, chance)
        return what, OPEN
    key, value, verdict = chance.choice(CONFIG)
    data[key] = value
    return f"{key}: {value!r:.40}", verdict


def _wrong_tokenizer(data: dict[str, Any], chance: random.Random) -> tuple[str, str]:
    vocabulary = data.get("model", {}).get("vocab")
    if vocabulary and chance.random() < 0.3:
        for number in range(200):
            vocabulary[f"word{number}"] = len(vocabulary)
        vocabulary["cat"], vocabulary["word199"] = vocabulary["word199"], vocabulary["cat"]
        return "more words than the model knows", OPEN
    what, _ = mistake(data, chance)
    return what, OPEN


# -- weights -----------------------------------------------------------------------------------------------------------

# What may come of weights that are wrong in each way.
WEIGHTS = {
    "a tensor less": BAD,
    "a tensor more": OPEN,
    "another shape": BAD,
    "whole numbers": OPEN,
    "not a number": OPEN,
    "other names": BAD,
    "no tensors": BAD,
    "cut off": BAD,
    "a huge header": BAD,
    "a wrong header": OPEN,
    "a pickle": BAD,
    "gone": BAD,
    "missing parts": BAD,
}


def wrong_weights(folder: Path, chance: random.Random) -> tuple[str, str]:
    """A file of weights that does not fit, or is none."""
    path, kind = folder / "model.safetensors", chance.choice(sorted(WEIGHTS))
    content = bytearray(path.read_bytes())
    match kind:
        case "cut off":
            path.write_bytes(content[: chance.randrange(len(content))])
        case "a huge header":
            path.write_bytes((2**62).to_bytes(8, "little") + content[8:])
        case "a wrong header":
            content[chance.randrange(8, 200)] ^= 1 << chance.randrange(7)
            path.write_bytes(content)
        case "a pickle":  # the old format, which can run code: it must not even be opened
            path.write_bytes(b"\x80\x04cos\nsystem\n(S'touch pickled'\ntR.")
            if chance.random() < 0.5:
                path.rename(path.with_name("pytorch_model.bin"))
        case "gone":
            path.unlink()
        case "missing parts":
            parts = {"a": "model-00001-of-00002.safetensors", "b": "../../x.safetensors"}
            index = json.dumps({"metadata": {}, "weight_map": parts})
            path.with_name("model.safetensors.index.json").write_text(index, encoding="utf-8")
            path.unlink()
        case _:
            _change_tensors(path, kind, chance)
    return f"model.safetensors: {kind}", WEIGHTS[kind]


def _change_tensors(path: Path, kind: str, chance: random.Random) -> None:
    import numpy
    from safetensors.numpy import load_file, save_file

    tensors = dict(load_file(path))
    name = chance.choice(sorted(name for name in tensors if "encoder" in name))
    match kind:
        case "a tensor less":
            del tensors[name]
        case "a tensor more":
            tensors["no.such.tensor"] = numpy.zeros(3, dtype=numpy.float32)
        case "another shape":
            tensors[name] = numpy.zeros((3, 5), dtype=numpy.float32)
        case "whole numbers":
            tensors[name] = tensors[name].astype("int64")
        case "not a number":
            tensors[name] = tensors[name] * numpy.float32("nan")
        case "other names":
            tensors = {f"other.{each}": value for each, value in tensors.items()}
        case "no tensors":
            tensors = {}
    save_file(tensors, path, metadata={"format": "pt"})
