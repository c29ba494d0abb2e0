"""Small releases for tests, part by part: model, payload of each kind, certificate; and files as an attacker edits."""

import hashlib
import json
import math
import zipfile

import numpy as np

from pgbb.accountant import Mechanism, epsilon
from pgbb.release.certificate import Certificate
from pgbb.release.file import Release
from pgbb.release.payloads import ModelSummary, Payload

NAMES = ("Intercept", "educ", "black")
TAUS = [0.1, 0.5, 0.9]
SCHEMA = {"columns": {"educ": {"range": [5, 20]}, "black": "flag", "logwk": {"range": [0, 12]}}}
MECHANISM = Mechanism(n=2_000, blocks=6, gamma=0.9, sampling_rate=0.2, steps=50, clip=1.5)
SIGMA = 0.02
D = 3
K = D * (D + 1) // 2


def model(index="levels", kind="quantile", names=NAMES, formula="logwk ~ educ + black"):
    kinds = {
        "levels": {"kind": "levels", "values": TAUS},
        "interval": {"kind": "interval", "low": 0.1, "high": 0.9},
        None: None,
    }
    transform = np.eye(len(names)) * 2.0
    transform[0, 1:] = -0.5
    offset = np.linspace(1.0, 2.0, len(names))
    return ModelSummary(kind, formula, names, "tau" if index else None, kinds[index], transform, offset, {}, "logwk")


def generator(index=True, blocks=6, pseudo=0, d=3, widths=(8, 8), seed=1, **settings):
    rng = np.random.default_rng(seed)
    inputs = blocks + pseudo + index
    tensors = {
        "input_shift": np.full(inputs, 0.1, np.float32),
        "input_scale": np.full(inputs, 0.5, np.float32),
        "center": np.linspace(-1, 1, d).astype(np.float32),
        "radius": np.linspace(1, 2, d).astype(np.float32),
    }
    for iterate in ("average", "last"):
        rows = inputs
        for i, width in enumerate((*widths, d)):
            tensors[f"{iterate}/kernel{i}"] = rng.normal(0, 0.3, (rows, width)).astype(np.float32)
            tensors[f"{iterate}/bias{i}"] = rng.normal(0, 0.3, width).astype(np.float32)
            rows = width + inputs
    plain = {
        "blocks": blocks,
        "pseudo_blocks": pseudo,
        "concentration": 0.9 if blocks > 1 else None,
        "alpha": 2.0 if pseudo else 0.0,
        "index": index,
        "default_iterate": "average",
    }
    return Payload("generator", {**plain, **settings}, tensors)


def stored_draws(levels=(0.9, 0.1, 0.5), m=50, d=3):
    draws = np.random.default_rng(3).normal(size=(len(levels), m, d)) if levels else np.ones((m, d)).cumsum(0)
    return Payload("draws", {"index_values": list(levels) if levels else None}, {"draws": draws})


def transcript(rows=4):
    names = ("u", "query", "index", "answer")
    return {f"transcript/{n}": np.ones((rows,) if n == "index" else (rows, 3)) for n in names}


def certificate(**changes):
    known = {"sigma": SIGMA, "mechanism": MECHANISM, "accountant": "paper", "randomness": "operating system"}
    values = {"delta": 1e-5, **known, **changes}
    if "epsilon" not in values:
        values["epsilon"] = epsilon(values["mechanism"], values["sigma"], values["delta"], values["accountant"])
    return Certificate(**values)


def non_private(**changes):
    return certificate(epsilon=math.inf, sigma=0.0, non_private=True, **changes)


def covariance(seed, size=1.0):
    a = np.random.default_rng(seed).normal(size=(D, 2 * D))
    return size * a @ a.T / (2 * D)


def local(index="levels", knots=None, **changes):
    """A payload whose parts all differ over knots and coordinates; nothing is clipped."""
    if knots is None:
        knots = {"levels": TAUS, "interval": [0.1, 0.3, 0.6, 0.9], None: [0.5]}[index]
    m = len(knots)
    rng = np.random.default_rng(m)
    tensors = {
        "center": rng.normal(0, 0.1, (m, D)) + np.outer(knots, [2.0, 0.0, 0.0]),
        "gradient": rng.normal(0, 0.05, (m, D)),
        "frame": np.diag([1.0, 0.5, 2.0]),
        "curvature": np.stack([np.eye(D) + covariance(j, 0.3) for j in range(m)]),
        "curvature_sd": np.zeros((m, K)),
        "privacy": rng.normal(0, 0.03, (m, 2)),
        "sampling": covariance(9, 0.01),
        "sampling_sd": np.zeros(K),
        "free": np.zeros((m, D, D)),
        "low": np.full(D, -5.0),
        "high": np.full(D, 5.0),
    }
    if index is not None:
        tensors["knots"] = np.array(knots)
    given = {k: np.asarray(v, dtype=float) for k, v in changes.items() if k != "settings"}
    if "curvature_sd" in given and given["curvature_sd"].ndim == 1:  # the same for every coordinate of a knot
        given["curvature_sd"] = np.repeat(given["curvature_sd"][:, None], K, axis=1)
    if given.get("sampling_sd", np.zeros(K)).shape == (1,):
        given["sampling_sd"] = np.repeat(given["sampling_sd"], K)
    settings = {"index": index is not None, "bridge": index is not None, "floor": 0.25, **changes.get("settings", {})}
    return Payload("local", settings, {**tensors, **given})


def hidden(index="levels", at=1, **changes):
    """A payload in which internal coefficient `at` is not identified, at the first knot only."""
    payload = local(index, **changes)
    payload.tensors["free"][0, at, at] = 1.0
    return payload


def local_release(index="levels", payload=None, claim=None):
    return Release(model(index), SCHEMA, claim or certificate(), payload or local(index))


def generator_release(index="levels", claim=None, payload=None, **diagnostics):
    payload = payload or generator(index is not None)
    return Release(model(index), SCHEMA, claim or certificate(versions={"pgbb": "0.1.0"}), payload, diagnostics)


def members(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewrite(path, contents, rehash=False):
    """Write the members back as an attacker would; with `rehash`, the manifest agrees with them."""
    if rehash:
        manifest = json.loads(contents["manifest.json"])
        manifest["sha256"] = {k: hashlib.sha256(contents[k]).hexdigest() for k in contents if k in manifest["sha256"]}
        contents = {**contents, "manifest.json": json.dumps(manifest).encode()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    return path


def edited(path, member, change, rehash=True):
    contents = members(path)
    plain = json.loads(contents[member])
    change(plain)
    return rewrite(path, {**contents, member: json.dumps(plain).encode()}, rehash)
