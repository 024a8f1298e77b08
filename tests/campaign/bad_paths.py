"""Inputs that are not there or are something else, and outputs that cannot be written."""

from __future__ import annotations

from pathlib import Path

from campaign.orders import BAD, OPEN, OUTPUTS, Case, Draw


def wrong_input(draw: Draw) -> Case | None:
    """In place of a file or folder that is read: nothing, or something else."""
    places = [n for n in range(len(draw.order.command), len(draw.words)) if _is_input(draw, n)]
    if not places:
        return None
    place = draw.chance.choice(places)
    before = draw.words[place]
    value, what = _wrong(draw, before)
    draw.words[place] = value
    # Of a plan, or of a sweep whose runs are finished, the data are not read.
    data = (draw.order.dry or draw.order.name == "sweep") and not before.endswith(".yaml")
    return draw.case(f"{before} is {what}", OPEN if data else BAD)


def _is_input(draw: Draw, place: int) -> bool:
    word = draw.words[place]
    if word in draw.order.caches:  # any folder will do
        return False
    return (draw.box / word).exists() and draw.words[place - 1] not in OUTPUTS and word not in draw.order.writes


def _wrong(draw: Draw, before: str) -> tuple[str, str]:
    """A wrong path in place of this one, and what it is."""
    box, folder = draw.box, (draw.box / before).is_dir()
    kind = draw.chance.randrange(9)
    if kind == 0:
        return f"{before}-gone", "missing"
    if kind == 1 and folder:
        (box / "nothing").mkdir()
        return "nothing", "an empty folder"
    if kind == 2 and folder:
        (box / "notes").mkdir()
        (box / "notes" / "notes.txt").write_text("nothing of headwise\n", encoding="utf-8")
        return "notes", "a folder of something else"
    if kind == 3:
        (box / "text.txt").write_text("just words\n", encoding="utf-8")
        return ("text.txt", "a text file") if folder else ("text.txt/x", "below a file")
    if kind == 4 and not folder:
        (box / "a-folder").mkdir()
        return "a-folder", "a folder"
    if kind == 5:
        (box / "loop").symlink_to("loop")
        return "loop", "a link to itself"
    if kind == 6:
        (box / "broken").symlink_to("nowhere")
        return "broken", "a broken link"
    if kind == 7:
        return "n" * 300, "a name that is too long"
    return "\udcff\udcfe", "a name that is no text"


def wrong_output(draw: Draw) -> Case | None:
    """An output that is there already, cannot be made, or is not the kind of file that is written."""
    places = [n + 1 for n, word in enumerate(draw.words[:-1]) if word in OUTPUTS]
    if not places:
        return None
    place = draw.chance.choice(places)
    before = draw.words[place]
    value, what, verdict = _unwritable(draw, Path(before))
    draw.words[place] = value
    return draw.case(f"{draw.words[place - 1]} {what}", verdict, without_rights=what == "a folder without rights")


def _unwritable(draw: Draw, before: Path) -> tuple[str, str, str]:
    box, file = draw.box, bool(before.suffix)
    kind = draw.chance.randrange(10)
    if kind == 0:
        if file:
            (box / "taken").mkdir()
            return "taken", "a folder", BAD
        (box / "taken").write_text("mine\n", encoding="utf-8")
        return "taken", "a file", BAD
    if kind == 1:
        (box / "text.txt").write_text("mine\n", encoding="utf-8")
        return f"text.txt/{before}", "below a file", BAD
    if kind == 2 and file:
        return f"no/such/{before}", "in a missing folder", BAD
    if kind == 3:
        name = f"mine{before.suffix}"
        if file:
            (box / name).write_text("mine\n", encoding="utf-8")
            return name, "a file that is there", BAD
        (box / name).mkdir()
        (box / name / "notes.txt").write_text("mine\n", encoding="utf-8")
        return name, "a folder with other files", BAD
    if kind == 4:
        return f"/proc/{before}", "in a folder of the system", BAD
    if kind == 5:
        return "n" * 300 + before.suffix, "a name that is too long", BAD
    if kind == 6:
        (box / f"link{before.suffix}").symlink_to(f"link{before.suffix}")
        return f"link{before.suffix}", "a link to itself", OPEN if file else BAD
    if kind == 7:
        (box / "locked").mkdir(mode=0o555)
        return f"locked/{before.name}", "a folder without rights", BAD
    if kind == 8:
        return f"/dev/null/{before}", "below a device", BAD
    if kind == 9 and file:
        return f"{before.stem}.xyz", "with another ending", OPEN
    return "", "nothing", OPEN
