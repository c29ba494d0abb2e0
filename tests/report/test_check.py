"""The page checks itself: what it finds in a file that holds together, and in one that does not."""

import base64
import json
import re

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pgbb.accountant import Mechanism, epsilon
from pgbb.release.file import Release, load
from pgbb.release.signing import fingerprint
from pgbb.report import page
from tests.release.builders import SCHEMA, certificate, generator_release, hidden, local, members, model, rewrite

FULL = Mechanism(n=2_000, blocks=1, sampling_rate=1.0, steps=3, draws_per_step=1, clip=1.5)
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


def released(tmp_path, key=None, payload=None):
    claim = certificate(mechanism=FULL, sigma=0.02, accountant="exact")
    return Release(model(), SCHEMA, claim, payload or local(), {"method": "calibrated"}).save(tmp_path / "r.pgbb", key)


def found(browser, path, html):
    target = path.with_suffix(".html")
    target.write_text(html, encoding="utf-8")
    browser.open(target)
    for _ in range(200):
        if browser.text("#check-summary") != "Checking …":
            break
    assert browser.errors == []
    return browser.text("#check-list"), browser.text("#check-summary")


def edited(path, html):
    """The page of a good file, with another file in it: what a visitor gets whose copy was changed."""
    inside = base64.b64encode(path.read_bytes()).decode()
    return re.sub(r'(id="file">)[^<]+', lambda m: m[1] + inside, html)


def test_a_page_that_holds_together_says_so_with_the_epsilon_of_the_accountant(browser, tmp_path):
    path = released(tmp_path, KEY)
    lines, summary = found(browser, path, page(load(path), path))
    assert summary == "Nothing contradicts itself." and lines.count("✓") == 4 and "✗" not in lines
    shown = float(re.search(r"ε = ([\d.]+) at δ", lines)[1])
    assert shown == pytest.approx(epsilon(FULL, 0.02, 1e-5), rel=3e-3) and fingerprint(KEY.public_key()) in lines
    assert browser.value("document.querySelectorAll('#release-download').length") == 1


@pytest.mark.parametrize("what", ["byte", "sigma", "signature", "numbers", "epsilon", "torn"])
def test_whatever_was_changed_is_found(what, browser, tmp_path):
    path = released(tmp_path, KEY)
    html, contents = page(load(path), path), members(path)
    if what == "byte":
        tensors = bytearray(contents["payload.safetensors"])
        tensors[-1] ^= 1
        rewrite(path, {**contents, "payload.safetensors": bytes(tensors)})
    elif what in ("sigma", "epsilon"):
        claim = json.loads(contents["certificate.json"])
        claim |= {"sigma": claim["sigma"] * 0.98} if what == "sigma" else {"epsilon": claim["epsilon"] * 0.98}
        rewrite(path, {**contents, "certificate.json": json.dumps(claim).encode()}, rehash=True)
    elif what == "signature":
        signed = json.loads(contents["signature.json"])
        raw = bytearray(base64.b64decode(signed["signature"]))
        raw[5] ^= 1
        signed["signature"] = base64.b64encode(bytes(raw)).decode()
        rewrite(path, {**contents, "signature.json": json.dumps(signed).encode()})
    elif what == "torn":
        path.write_bytes(path.read_bytes()[:-30])
    if what == "numbers":
        data = json.loads(re.search(r'id="release">(.*?)</script>', html, re.S)[1])
        centre = data["payload"]["tensors"]["center"]["data"]
        html = html.replace(centre, base64.b64encode(bytes([1]) + base64.b64decode(centre)[1:]).decode())
    else:
        html = edited(path, html)
    lines, summary = found(browser, path, html)
    words = {"byte": "payload.safetensors", "sigma": "The claim is false", "signature": "does not belong",
             "numbers": "NOT those of the file", "epsilon": "The claim is false", "torn": "unpacked"}  # fmt: skip
    assert "✗" in lines and words[what] in lines and "Do not use it" in summary


def test_another_method_and_no_signature_are_said_and_are_no_fault(browser, tmp_path):
    path = generator_release().save(tmp_path / "r.pgbb")
    lines, summary = found(browser, path, page(load(path), path))
    assert "pgbb verify recomputes it" in lines and "not signed" in lines and summary == "Nothing contradicts itself."


def test_words_of_the_publisher_are_text_and_what_is_not_identified_is_hatched(browser, tmp_path):
    path = released(tmp_path, payload=hidden())
    loud = '<img src=x onerror=alert(1)> & "more"'
    html = page(load(path), path, title=loud, origin=loud, contact=loud)
    found(browser, path, html)
    assert browser.text("h1") == loud and browser.value("document.querySelectorAll('img').length") == 0
    assert browser.value("document.querySelectorAll('path.unknown').length") > 0
    assert "2,000 confidential records" in browser.text("header") and browser.value("document.title") == loud
    assert browser.value("document.querySelectorAll('#asked tbody tr').length") == 1
