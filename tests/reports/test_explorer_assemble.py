"""The page as text, without a browser."""

import base64
import json
import re
import zlib
from importlib.resources import files

import pytest
from explorer_payloads import HOSTILE, big, tiny

from headwise.reports.report_page import asset, page

ASSETS = files("headwise.reports") / "assets"
PAYLOAD = re.compile(r'<script type="application/json" id="payload">(.*?)</script>', re.DOTALL)


def test_the_payload_comes_back_whatever_it_says_and_the_title_is_text():
    payload = {"title": HOSTILE, "text": "a\u2028b\u2029<!-- <script>"}
    text = page(payload, {})
    (written,) = PAYLOAD.findall(text)
    assert json.loads(written) == payload
    assert not set("<\u2028\u2029") & set(written)
    (title,) = re.findall("<title>(.*?)</title>", text)
    assert "<" not in title
    assert "&lt;/script&gt;&lt;img" in title


def test_arrays_are_deflated_without_a_frame():
    content = bytes(range(256)) * 40
    ((name, packed),) = re.findall(
        r'class="array" id="array-(.*?)" data-bytes="10240">(.*?)</script>', page({}, {"m0e0": content})
    )
    assert name == "m0e0"
    assert zlib.decompress(base64.b64decode(packed), -zlib.MAX_WBITS) == content
    assert len(packed) < 1000


def test_numbers_that_json_does_not_know_are_refused():
    with pytest.raises(ValueError, match="JSON"):
        page({"title": "x", "views": {"layers": [float("nan")]}}, {})


@pytest.mark.parametrize("live", [False, True])
def test_only_a_live_page_may_send_requests_and_only_to_its_server(live):
    (policy,) = re.findall('Content-Security-Policy" content="(.*?)">', page({}, {}, live=live))
    assert policy.startswith("default-src 'none'; ")
    assert ("connect-src 'self'" in policy) == live
    assert "http" not in policy


def test_every_script_beside_the_page_is_in_it():
    scripts = {each.name for each in ASSETS.iterdir() if each.name.endswith(".js")}
    assert scripts == {"mark.js", *asset("scripts.txt").split()}  # that is the page of `headwise mark`


def test_scripts_and_styles_speak_of_no_address_outside_and_cannot_end_their_element():
    for each in ASSETS.iterdir():
        text = each.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//[a-z]+\.[a-z]", text), each.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", text), each.name
        if each.name.endswith(".js"):
            assert not re.search("</script|<!--", text), each.name


def test_a_page_as_large_as_they_get_stays_below_ten_megabytes_and_a_page_is_the_same_each_time():
    assert len(page(big().payload(), big().arrays).encode()) < 10e6
    first, second = (page(maker.payload(), maker.arrays) for maker in (tiny(), tiny()))
    assert first == second
