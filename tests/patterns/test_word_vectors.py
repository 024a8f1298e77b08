"""Vectors of words: from files as they are found in the wild, and from the real package."""

import gzip
import pickle
import zipfile

import numpy as np
import pytest

from headwise.errors import InputError
from headwise.patterns import vectors as module
from headwise.patterns.vectors import PackagedVectors, VectorFile

LINES = """the 1 0 0
dog 0.5 -0.5 1e-1
Dog 9 9 9
. . . 7 7 7
café 2 2 2
dog 5 5 5
"""
EXPECTED = {"the": [1, 0, 0], "dog": [0.5, -0.5, 0.1], "Dog": [9, 9, 9], ". . .": [7, 7, 7], "café": [2, 2, 2]}


def write(path, text=LINES):
    content = text.encode()
    if path.suffix == ".gz":
        content = gzip.compress(content)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("vectors.txt", content)
    else:
        path.write_bytes(content)
    return VectorFile(path)


def test_words_of_a_file_as_they_are_and_then_in_lower_case(tmp_path):
    for name, text in [("v.txt", LINES.replace("\n", " \r\n")), ("v.txt.gz", "6 3\n" + LINES), ("v.zip", LINES)]:
        vectors, known = write(tmp_path / name, text).look_up([*EXPECTED, "unknown"])
        np.testing.assert_array_equal(vectors, np.array([*EXPECTED.values(), [0, 0, 0]], np.float32))
        assert known.tolist() == [True] * 5 + [False]
        assert vectors.dtype == np.float32
    vectors, known = write(tmp_path / "v.txt").look_up(["Dog", "DOG", "The", "Café"])
    np.testing.assert_array_equal(vectors[:, 0], np.array([9, 0.5, 1, 2], np.float32))
    assert known.all()


def test_a_broken_file_is_refused_by_the_number_of_its_line(tmp_path):
    for number, (text, match) in enumerate(
        [
            ("a 1 2\nb 1\n", r"\d\.txt, line 2: expected a word and 2 numbers; fetch"),
            ("2 2\na 1 2\nc 1 x\n", r"line 3: could not convert string to float: .*x"),
            ("a 1 2\nc 1 nan\n", r"line 2: a number is not finite"),
            ("alone\n", r"line 1: expected a word and 1 numbers"),
            ("2 2\n", r"\d\.txt holds no vectors"),
            ("", r"\d\.txt cannot be read as a file of vectors \(cannot mmap an empty file\)"),
        ]
    ):
        with pytest.raises(InputError, match=match):
            write(tmp_path / f"{number}.txt", text).look_up(["a", "b", "c"])
    with pytest.raises(InputError, match="there is no file of vectors at .*missing.txt: check path"):
        _ = VectorFile(tmp_path / "missing.txt").fingerprint


def test_broken_archives_are_refused(tmp_path):
    for name in ("v.gz", "v.zip"):
        (tmp_path / name).write_bytes(b"neither")
        with pytest.raises(InputError, match=rf"{name} cannot be read as a file of vectors .*fetch it again"):
            VectorFile(tmp_path / name).look_up(["a"])
    whole = gzip.compress(LINES.encode())
    (tmp_path / "v.gz").write_bytes(whole[:-12])
    with pytest.raises(InputError, match="cannot be read"):
        VectorFile(tmp_path / "v.gz").look_up(["a"])
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("50d.txt", LINES)
        archive.writestr("100d.txt", LINES)
    with pytest.raises(InputError, match="two.zip holds 2 files: unpack the one"):
        VectorFile(tmp_path / "two.zip").look_up(["a"])
    with zipfile.ZipFile(tmp_path / "odd.zip", "w") as archive:
        archive.writestr("50d.txt", LINES)
    content = bytearray((tmp_path / "odd.zip").read_bytes())
    content[content.rindex(b"PK\x01\x02") + 10] = 99  # the method of compression
    content[8] = 99
    (tmp_path / "odd.zip").write_bytes(content)
    with pytest.raises(InputError, match="odd.zip cannot be read as a file of vectors .*compression"):
        VectorFile(tmp_path / "odd.zip").look_up(["a"])


def test_a_changed_file_is_read_again(tmp_path):
    path = tmp_path / "v.txt"
    first = write(path)
    before = first.fingerprint
    assert first.look_up(["the"])[0][0, 0] == 1
    second = write(path, LINES.replace("the 1", "the 12"))
    assert second.look_up(["the"])[0][0, 0] == 12
    assert second.fingerprint != before
    assert VectorFile(path).fingerprint == second.fingerprint
    sent = pickle.dumps(second)  # only its path, not what was read
    assert len(sent) < 1000
    assert pickle.loads(sent).look_up(["café"])[1].all()


def test_the_real_package_has_glove(monkeypatch):
    packaged = PackagedVectors.find()
    vectors, known = packaged.look_up(["the", "Patient", ",", "o'clock", "O’CLOCK", "xqzzyq"])
    assert vectors.shape == (6, 50)
    assert known.tolist() == [True] * 5 + [False]
    np.testing.assert_allclose(vectors[0, :4], [0.418, 0.24968, -0.41242, 0.1217], rtol=1e-6)
    np.testing.assert_array_equal(vectors[3], vectors[4])
    assert packaged.fingerprint == PackagedVectors.find().fingerprint
    assert packaged.look_up([])[0].shape == (0, 50)

    # Without the package, the way out is said.
    monkeypatch.setattr(module, "_PACKAGE", "no_such_package")
    with pytest.raises(InputError, match=r"not installed: pip install 'headwise\[vectors\]', or give the path"):
        PackagedVectors.find()
