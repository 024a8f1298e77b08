"""Payloads of the report page, made up with random numbers of fixed seeds, so that values can be checked."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

Arrays = dict[str, bytes]

HOSTILE = '</script><img src=x onerror="window.owned=1">\'&\u202eevil\u202c'
STATISTICS = ("entropy", "sink", "distance", "cross", "similarity", "importance")


def soft(values: np.ndarray) -> np.ndarray:
    powers = np.exp(values - values.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def root(values: np.ndarray) -> np.ndarray:
    """As the page stores attention: 255 times its root."""
    return np.rint(255 * np.sqrt(values)).astype(np.uint8)


def exact(maps: np.ndarray) -> tuple[dict[str, Any], bytes]:
    return {"form": "exact"}, root(maps).tobytes()


def top(maps: np.ndarray, kept: int) -> tuple[dict[str, Any], bytes]:
    wide = maps.shape[-1] > 256
    order = np.argsort(-maps, axis=-1, kind="stable")[..., :kept]
    values = root(np.take_along_axis(maps, order, -1))
    places = np.where(values > 0, order, 0).astype("<u2" if wide else np.uint8)
    return {"form": "top", "kept": kept, "wide": wide}, places.tobytes() + values.tobytes()


def table(title: str, columns: list[str], rows: list[list[str]], note: str) -> dict[str, Any]:
    return {"title": title, "columns": columns, "rows": rows, "notes": [note]}


def matrix(title: str, rows: list[str], columns: list[str], values: list[Any], note: str) -> dict[str, Any]:
    return {"title": title, "rows": rows, "columns": columns, "values": values, "notes": [note]}


class Maker:
    """Builds a payload piece by piece; `maps` keeps the true attention by (model, example)."""

    def __init__(self, layers: int, heads: int, names: tuple[str, ...] = ("plain", "guided"), seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.layers, self.heads = layers, heads
        roles = ["run"] if len(names) == 1 else ["baseline", "run", *["also"] * (len(names) - 2)]
        self.models = [
            {"id": f"m{place}", "name": name, "role": role, "layers": layers, "heads": heads}
            for place, (name, role) in enumerate(zip(names, roles, strict=True))
        ]
        self.ids = [f"m{place}" for place in range(len(names))]
        self.pair = len(names) > 1
        self.arrays: Arrays = {}
        self.maps: dict[tuple[str, str], np.ndarray] = {}
        self.examples: list[dict[str, Any]] = []
        self.views: dict[str, Any] = {}

    def add_example(self, tokens: list[str], segments: list[int], kept: int | None = None, **more: Any) -> None:
        place, size, count = len(self.examples), len(tokens), self.layers * self.heads
        name, parts = f"e{place}", sorted({*segments} - {-1})
        texts = [" ".join(t for t, s in zip(tokens, segments, strict=True) if s == part) for part in parts]
        example: dict[str, Any] = {"id": name, "title": f"test {place + 10}", "tokens": tokens, "segments": segments}
        example |= {"texts": texts, "gold": "yes", "explained": [0.5, 0.2]}
        example |= {part: {} for part in ("answers", "maps", "means", "points")}
        for number, model in enumerate(self.ids):
            maps = self.maps[model, name] = soft(3 * self.random.normal(size=(count, size, size)))
            entry, content = exact(maps) if kept is None else top(maps, kept)
            self.arrays |= {f"{model}{name}": content, f"{model}{name}mean": root(maps.mean(0)).tobytes()}
            example["maps"][model] = {"array": f"{model}{name}", **entry}
            example["means"][model] = f"{model}{name}mean"
            example["points"][model] = self.random.normal(size=(count, 2)).round(4).tolist()
            answer = {"prediction": ("no", "yes")[number % 2], "probabilities": {"no": 0.6, "yes": 0.4}}
            example["answers"][model] = answer
        self.examples.append(example | more)

    def add_target(self, place: int) -> None:
        example = self.examples[place]
        size = len(example["tokens"])
        wanted = np.zeros((size, size))
        wanted[1, 2] = wanted[2, 1] = 1.0
        self.arrays[f"t{place}"] = root(wanted).tobytes()
        example["target"] = {"name": "pmi", "array": f"t{place}"}

    def add_ssa(self, place: int) -> None:
        example = self.examples[place]
        scores = [None if part < 0 else round(float(self.random.random()), 3) for part in example["segments"]]
        kept = [score is not None and score >= 0.3 for score in scores]
        example["ssa"] = {self.ids[-1]: {"scores": scores, "kept": kept, "threshold": 0.3}}

    def add_heads(self, statistics: tuple[str, ...] = STATISTICS) -> None:
        shape = (self.layers, self.heads)
        values: dict[str, Any] = {model: {} for model in self.ids}
        for model in self.ids:
            for name in statistics:
                mean = self.random.random(shape).round(4).tolist()
                error = None if name == "importance" else (0.05 * self.random.random(shape)).round(4).tolist()
                values[model][name] = {"mean": mean, "error": error}
        order = list(np.ndindex(shape))
        changes = sorted(self.random.random(len(order)).round(3).tolist(), reverse=True)
        shuffled = [order[place] for place in self.random.permutation(len(order))]
        ends = {"low": 0.0, "high": 1.0}
        self.views["heads"] = {
            "statistics": [
                {"id": name, "name": name.title(), "unit": "nats" if name == "entropy" else "", **ends}
                | {"help": f"What {name} means."}
                for name in statistics
            ],
            "values": values,
            "examples": 1000,
            "split": "test",
            "changes": [
                {"layer": layer, "head": head, "change": change, "error": 0.01}
                for (layer, head), change in zip(shuffled, changes, strict=True)
            ]
            if self.pair
            else None,
        }

    def add_rest(self) -> None:
        """All views that need no array."""
        tasks, heads = ["nli", "topic"], ["heads of nli", "heads of topic"]
        scores = [["plain", "0.812", "[0.801, 0.823]", ""], ["guided", "0.834", "[0.822, 0.846]", "0.003"]]
        seconds = [["plain", "0.21"], ["guided", "0.22"]]
        self.views |= {
            "summary": {
                "facts": [["Task", "clinic, 3 labels"], ["Seeds", "5"], ["Guides", "MDG 0.1, PDG 0.01"]],
                "tables": [table("Result", ["Model", "Accuracy", "95% interval", "p"], scores, "Permutation test.")],
                "changed": ["Accuracy rose by 0.022.", "Heads became less alike."],
            },
            "caveats": {
                "caveat": "Attention is not explanation.",
                "items": [["Seeds", "5 seeds; spread 0.011"], ["Tests", "one, two-sided"]],
                "negative": ["PDG alone did not help."],
            },
            "retrieval": {"claims": [{"id": "3", "text": "Vitamin D prevents colds.", "papers": self._papers()}]},
            "curves": {"series": self._curves()},
            "diversity": self._diversity(),
            "layers": [self._plot("Accuracy by guided layers", ["0-1", "0-3", "0-5"])],
            "sizes": [self._plot("Accuracy by size of training set", None)],
            "weights": [self._plot("Accuracy by weight", None)],
            "pruning": [self._silenced(self._plot("Accuracy by heads kept", None))],
            "dissociation": [matrix("Loss by pruning", tasks, heads, [[-0.31, -0.02], [-0.04, None]], "Rows: tasks.")],
            "overlap": [matrix("overlap of heads", tasks, tasks, [[1.0, 0.25], [0.25, 1.0]], "Chance gives 0.2.")],
            "results": [table("Over seeds", ["System", "Mean"], [["plain", "71.0"], ["guided", "72.2"]], "3 seeds.")],
            "times": [table("Seconds per step", ["Model", "Seconds"], seconds, "One core.")],
        }
        if self.pair:
            # Position in the split, text, gold, kind, example of the page, heads.
            flips = [
                (10, "One.", "yes", "gained", "e0", [[1, 1, 0.4], [0, 0, 0.2]]),
                (11, "Two.", "yes", "gained", "e1", None),
                (90, "Three.", "no", "lost", None, None),
                (91, "Four.", "maybe", "other", None, None),
            ]
            listed = [
                {"example": number, "title": f"test {number}", "texts": [text], "gold": gold, "before": "no"}
                | {"after": "yes", "kind": kind, "page_example": example, "heads": heads}
                for number, text, gold, kind, example, heads in flips
            ]
            self.views["flips"] = {"gained": 2, "other": 1, "lost": 1, "split": "test", "list": listed}

    def _papers(self) -> list[dict[str, Any]]:
        ids = self.ids[:2]
        papers = [("p1", "A trial of vitamin D.", True, (4, 1), 0.5), ("p2", "On colds.", False, (1, 2), -0.25)]
        return [
            {"id": name, "text": text, "relevant": relevant, "ranks": dict(zip(ids, ranks, strict=False))}
            | {"scores": dict.fromkeys(ids, score)}
            for name, text, relevant, ranks, score in papers
        ]

    def _curves(self) -> list[dict[str, Any]]:
        steps = list(range(0, 200, 10))
        falling = [round(0.5 - step / 1000, 4) for step in steps]
        logged = [
            (model, group, name, "raw", [round(1 / (1 + step / 50) + 0.05 * number, 4) for step in steps])
            for number, model in enumerate(self.ids)
            for group, name in (("loss", "task loss"), ("loss", "whole loss"), ("validation", "accuracy"))
        ]
        logged += [(self.ids[-1], "guide:mdg", "mdg", kind, falling) for kind in ("raw", "weighted", "share")]
        return [
            {"model": model, "group": group, "name": name, "kind": kind, "x": steps, "y": y}
            for model, group, name, kind, y in logged
        ]

    def _diversity(self) -> dict[str, Any]:
        steps, count = [0, 50, 100, 150, 200], self.layers * self.heads
        views = {}
        for model in self.ids:
            similarity, entropy = self.random.random((2, len(steps), count)).round(3).tolist()
            moves = 0.2 * self.random.normal(size=(len(steps), count, 2)).cumsum(0)
            points = (self.random.normal(size=(1, count, 2)) + moves).round(3).tolist()
            views[model] = {"steps": steps, "similarity": similarity, "entropy": entropy, "points": points}
        return views

    def _plot(self, title: str, categories: list[str] | None) -> dict[str, Any]:
        x = [0, 1, 2] if categories else [10, 100, 1000]
        series = []
        for number, model in enumerate(self.models):
            mean = [round(0.7 + 0.04 * place + 0.02 * number, 3) for place in range(3)]
            ends = {"low": [value - 0.02 for value in mean], "high": [value + 0.02 for value in mean]}
            series.append({"name": model["name"], "x": x, "mean": mean, **ends})
        about = {"title": title, "x": "what is varied", "y": "accuracy", "categories": categories}
        return {**about, "series": series, "notes": ["Bands are 95% intervals."]}

    def _silenced(self, plot: dict[str, Any]) -> dict[str, Any]:
        """At every point one head more is silent, from the last backwards; the last series does not say which."""
        series, count = plot["series"], self.layers * self.heads
        for each in series[: max(1, len(series) - 1)]:
            each["off"] = [[count - 1 - number for number in range(place)] for place in range(len(each["x"]))]
        return plot | {"shape": [self.layers, self.heads]}

    def payload(self) -> dict[str, Any]:
        views = dict(self.views)
        if self.examples:
            views["examples"] = {"note": "Maps keep the 8 largest values of a row.", "list": self.examples}
        return {"format": 1, "title": "A report", "version": "0.1.0", "models": self.models, "views": views}


WORDS = (
    "a patient was given two doses of the drug because her fever had not gone down after three days in hospital".split()
)


def sentence(length: int) -> tuple[list[str], list[int]]:
    """Tokens and segments of a pair: [CLS] first [SEP] second [SEP]."""
    first = (length - 3) // 2
    second = length - 3 - first
    words = [WORDS[place % len(WORDS)] for place in range(first + second)]
    tokens = ["[CLS]", *words[:first], "[SEP]", *words[first:], "[SEP]"]
    return tokens, [-1, *[0] * first, -1, *[1] * second, -1]


def tiny(names: tuple[str, ...] = ("plain", "guided")) -> Maker:
    """2 layers x 2 heads, 3 examples (exact, exact, top 3), every view; a value of the first model is missing."""
    maker = Maker(2, 2, names)
    for length, kept in ((7, None), (9, None), (8, 3)):
        maker.add_example(*sentence(length), kept)
    maker.add_target(0)
    maker.add_ssa(0)
    maker.add_heads(("entropy", "sink"))
    if maker.pair:
        for statistic in maker.views["heads"]["values"]["m0"].values():
            statistic["mean"][1][0] = None
    maker.add_rest()
    return maker


@cache  # two seconds of random numbers; nobody changes it
def big() -> Maker:
    """As large as a page of BERT-base gets: 12 x 12, 20 examples of 64 tokens, 2 of them exact."""
    maker = Maker(12, 12, seed=1)
    for place in range(20):
        maker.add_example(*sentence(64), None if place < 2 else 8)
    maker.add_target(0)
    maker.add_ssa(0)
    maker.add_heads()
    maker.add_rest()
    return maker


def long() -> Maker:
    """One example of 512 tokens, one model exact and one with the 8 largest (indices of two bytes)."""
    maker = Maker(2, 2, seed=2)
    tokens, segments = sentence(512)
    maker.add_example(tokens, segments, 8)
    maps = maker.maps["m0", "e0"]
    entry, content = exact(maps)
    maker.arrays["m0e0"] = content
    maker.examples[0]["maps"]["m0"] = {"array": "m0e0", **entry}
    maker.add_heads(("entropy",))
    return maker


def hostile() -> Maker:
    """Every string of a user tries to become markup."""
    maker = Maker(2, 2, (HOSTILE, "b" + HOSTILE))
    tokens, segments = sentence(7)
    tokens[1] = HOSTILE
    maker.add_example(tokens, segments, title=HOSTILE, gold=HOSTILE, texts=[HOSTILE, "=1+1"])
    maker.examples[0]["answers"]["m0"] = {"prediction": HOSTILE, "probabilities": {HOSTILE: 1.0}}
    maker.add_target(0)
    maker.examples[0]["target"]["name"] = HOSTILE
    maker.add_ssa(0)
    maker.add_heads(("entropy",))
    maker.add_rest()
    maker.views = spoil(maker.views)
    return maker


KEEP = {"id", "model", "kind", "group", "page_example", "array", "form"}


def spoil(value: Any, key: str = "") -> Any:
    """The same structure with every free text replaced."""
    if isinstance(value, dict):
        return {name: spoil(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [spoil(each, key) for each in value]
    return HOSTILE if isinstance(value, str) and key not in KEEP else value
