"""Files that unpack to far more than they are, and lines without an end: one sentence, in little memory."""

import gzip
import random
import struct
import subprocess
import sys
import zipfile

import pytest
from data.files import table, write

from headwise.data import build_task
from headwise.data.text_files import MAX_DOCUMENT, MAX_LINE, lines
from headwise.errors import InputError
from headwise.limits import FREE_BYTES, MAX_BYTES, MAX_RATIO, unpacked_limit
from headwise.patterns.vectors import VectorFile
from headwise.retrieval.cross_genre import read_answers
from headwise.retrieval.trec import read_qrels, read_run

HEADER = ("sentence1", "sentence2", "label")
BIG = 4 * FREE_BYTES


def packed(path, content, repeats=1, name="own.tsv"):
    """A zip or gzip file of some bytes many times."""
    if path.suffix == ".gz":
        with gzip.open(path, "wb", compresslevel=9) as file:
            for _ in range(repeats):
                file.write(content)
        return path
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(name, "w") as file:
        for _ in range(repeats):
            file.write(content)
    return path / name


def read(path):
    return build_task("pairs", {"files": {"train": str(path)}}).read("train", None)


def refusal(call, path):
    with pytest.raises(InputError) as caught:
        call()
    text = str(caught.value)
    assert str(path) in text
    assert "\n" not in text
    assert text.endswith(".")
    return text


def test_a_packed_file_that_grows_a_thousandfold_is_refused_by_every_reader(tmp_path):
    path = packed(tmp_path / "bomb.zip", b"\0" * 2**20, BIG // 2**20)
    message = refusal(lambda: list(lines(path, "utf-8")), path)
    for part in ("unpacks to more than 16 MB", f"{MAX_RATIO} times", "16 GB", "unpack it yourself", "split it"):
        assert part in message
    bomb = b"a b 1 1 1 a\n" * 2**16
    for name, reader in (("x.gz", read_run), ("y.gz", read_qrels)):
        path = packed(tmp_path / name, bomb, BIG // len(bomb))
        with pytest.raises(InputError):
            reader(path)
    numbers = b"word 1 2 3\n" * 2**16
    for name in ("v.txt.gz", "v.zip"):
        path = packed(tmp_path / name, numbers, BIG // len(numbers), "v.txt")
        path = path if path.suffix == ".gz" else path.parent
        assert "unpacks to more than 16 MB" in refusal(lambda path=path: VectorFile(path).look_up(["word"]), path)


def test_a_gzip_file_inside_a_zip(tmp_path):
    inner = packed(tmp_path / "own.tsv.gz", b"a\tb\tx\n" * 2**17, BIG // (6 * 2**17))
    with zipfile.ZipFile(tmp_path / "both.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(inner, "own.tsv.gz")
    path = tmp_path / "both.zip" / "own.tsv.gz"
    assert "unpacks to more than 16 MB" in refusal(lambda: list(lines(path, "utf-8")), path)


def test_a_zip_that_lies_about_the_size_of_its_file(tmp_path):
    path = packed(tmp_path / "lie.zip", b"a\tb\tx\n" * 2**17, BIG // (6 * 2**17))
    archive = path.parent
    data = bytearray(archive.read_bytes())
    directory = data.rindex(b"PK\x01\x02")
    struct.pack_into("<L", data, directory + 24, 1000)  # the unpacked size
    archive.write_bytes(data)
    found = []
    with pytest.raises(InputError, match="zip"):
        found.extend(lines(path, "utf-8"))
    assert len("".join(found)) <= 1000


def test_text_that_shrinks_as_text_does_is_read(tmp_path):
    words = random.Random(1).choices([f"word{number}" for number in range(5000)], k=60_000)
    rows = [(" ".join(words[start : start + 20]), "b", "xy"[start % 2]) for start in range(0, 60_000, 3)]
    path = packed(tmp_path / "own.zip", table(HEADER, *rows).encode())
    assert len(build_task("pairs", {}).read_file(path, labelled=False)) == len(rows)
    megabyte = 2**20
    assert unpacked_limit(0) == unpacked_limit(100_000) == FREE_BYTES
    assert unpacked_limit(megabyte) == 100 * megabyte
    assert unpacked_limit(95 * megabyte) > 500 * megabyte  # SNLI 1.0
    assert unpacked_limit(2**40) == MAX_BYTES


def test_a_line_or_a_row_without_an_end(tmp_path):
    path = tmp_path / "own.csv"
    with path.open("wb") as file:
        file.write(b"first\n")
        for _ in range(MAX_LINE // 2**20 + 2):
            file.write(b"a" * 2**20)
    message = refusal(lambda: list(lines(path, "utf-8")), path)
    assert f"line 2 has more than {MAX_LINE:,} characters" in message
    with pytest.raises(InputError):
        read(path)
    with path.open("w") as file:
        file.write("sentence1,sentence2,label\n")
        for _ in range(MAX_LINE // 100_000 + 2):
            file.write('"' + "a" * 99_990 + '\n",')
    assert "a row of more than" in refusal(lambda: read(path), path)


def test_long_lines_are_still_lines(tmp_path):
    rows = [("a" * 1_000_000, "b", "x"), ("c" * 5_000_000, "d", "y")]
    split = read(write(tmp_path / "own.tsv", table(HEADER, *rows)))
    assert [len(first) for first, _ in split.texts] == [1_000_000, 5_000_000]
    exact = write(tmp_path / "exact.tsv", "a" * MAX_LINE + "\nb")
    assert [len(line) for line in lines(exact, "utf-8")] == [MAX_LINE + 1, 1]


def test_a_json_document_without_an_end(tmp_path):
    path = tmp_path / "train.json"
    with path.open("wb") as file:
        for _ in range(MAX_DOCUMENT // 2**20 + 2):
            file.write(b" " * (2**20 - 1) + b"\n")
    assert f"more than {MAX_DOCUMENT:,} characters" in refusal(lambda: read_answers(path), path)


MEASURE = """
import resource, sys
from pathlib import Path
from headwise.errors import InputError
from headwise.data.text_files import lines
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for name in sys.argv[1:]:
    try:
        for line in lines(Path(name), "utf-8"):
            pass
    except InputError as error:
        print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_little_memory_is_used_to_refuse(tmp_path):
    zeros = b"\0" * 2**20
    long = tmp_path / "long.tsv"
    with long.open("wb") as file:
        for _ in range(150):
            file.write(b"a" * 2**20)
    bad = tmp_path / "bad.tsv"  # bad bytes are looked for in pieces
    with bad.open("wb") as file:
        for _ in range(150):
            file.write((b"a" * 1023 + b"\n") * 1024)
        file.write(b"\xff\n")
    files = [packed(tmp_path / "a.zip", zeros, 300), packed(tmp_path / "b.tsv.gz", zeros, 300), long, bad]
    words = [sys.executable, "-c", MEASURE, *map(str, files)]
    *said, megabytes = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(said) == 4
    assert f"line {150 * 1024 + 1}, byte {150 * 2**20}:" in said[3]
    assert int(megabytes) < 120


def test_bad_bytes_on_the_border_of_two_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr("headwise.data.text_files.CHUNK", 7)
    for encoding, bad in {"utf-8": b"\xe8\xaa", "utf-16": b"\x00\xdcx\x00", "gbk": b"\xff\xff"}.items():
        content = "é\nab語\n".encode(encoding, "ignore") * 5 + bad
        with pytest.raises(UnicodeDecodeError) as caught:
            content.decode(encoding)
        path = tmp_path / "own.tsv"
        path.write_bytes(content)
        with pytest.raises(InputError) as refused:
            list(lines(path, encoding))
        line = content.count(b"\n", 0, caught.value.start) + 1
        assert f"line {line}, byte {caught.value.start}:" in str(refused.value)
