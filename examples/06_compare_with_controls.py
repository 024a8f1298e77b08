"""06: compare with controls. Does the guide help, or would any guide?  New: recipes, hw.compare.

python examples/06_compare_with_controls.py
"""

import tempfile
from pathlib import Path

import headwise as hw
from headwise.experiments.prepare import RunPaths
from headwise.experiments.recipe_files import read_recipe
from headwise.experiments.run import train

# Tiny, so that it takes seconds; nothing can be learned from so few examples.
SMALL = [
    "task.sizes={train: 32, validation: 16, test: 32}",
    "data={max_length: 48}",
    "training={max_steps: 4, num_train_epochs: null, per_device_train_batch_size: 8}",
    "baseline=false",
]
ARMS = {
    "plain": "guides={}",
    "guided": "guides={rationale: {weight: 0.05}}",
    "shuffled": "guides={rationale: {weight: 0.05, shuffle: true}}",  # the control: as many random words
}


def main(folder: Path | None = None, seeds: tuple[int, ...] = (1, 2)) -> object:
    """Train three arms with two seeds each; print and return how they compare."""
    with tempfile.TemporaryDirectory() as made:
        root, runs = folder or Path(made), []
        for arm, guides in ARMS.items():
            for seed in seeds:
                recipe = read_recipe("demo", [*SMALL, guides, f"name={arm}", f"seed={seed}"])
                runs.append(root / f"{arm}-{seed}")
                train(recipe, RunPaths(runs[-1]))
        result = hw.compare(runs)
    print(result.frame()[["system", "seeds", "mean", "difference"]].to_string(index=False))
    for verdict in result.verdicts:
        print(f"{verdict.system}: {verdict.verdict}")
    # The same with more seeds, on all cores, resumable: headwise sweep RECIPE --controls; headwise compare FOLDER
    return result


if __name__ == "__main__":
    main()
