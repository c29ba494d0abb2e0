"""What a release claims about privacy, and the check that a stranger can run on it.

Arithmetic only: no data, no files, no JAX. The check recomputes ε from the description of the mechanism; that the
described mechanism is the one that ran is the word of whoever signs the release.
"""

import importlib.metadata
import math
import platform
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from typing import Any, Literal, cast

from pgbb import _validate
from pgbb import accountant as accounting
from pgbb.accountant import ACCOUNTANTS, Composition, Mechanism, Own, PosteriorDraws, Resampling, Target, compose
from pgbb.accountant.calibrate import Accountant
from pgbb.errors import InvalidValue, PgbbError, PgbbWarning

Randomness = Literal["operating system", "insecure seed"]
SOURCES: tuple[str, ...] = ("operating system", "insecure seed")
ADJACENCY = "replace one record, n public"
BY_PERSON = "replace all records of one person, n public"
ASSUMES = "The claim assumes an exact sampler"  # how such a note begins
SLACK = 1e-9  # relative rounding allowed between the ε claimed and the ε recomputed


@dataclass(frozen=True)
class CertificateCheck:
    """The outcome of `Certificate.check`.

    Attributes:
      ok: no problem was found.
      problems: what makes the claim false or empty; a sentence each.
      remarks: what a reader should know although the claim stands.
      epsilons: ε by accountant; None where that accountant does not apply.
      accountant: the one that the certificate names.
      claimed: ε of the certificate.
    """

    ok: bool
    problems: tuple[str, ...]
    remarks: tuple[str, ...]
    epsilons: dict[str, float | None]
    accountant: str
    claimed: float


@dataclass(frozen=True, repr=False)
class Certificate:
    """The claim that a mechanism with noise σ is (ε, δ)-differentially private for one replaced record.

    Args:
      epsilon: ε claimed; inf for a run without noise.
      delta: δ claimed.
      sigma: noise scale; 0 for a run without noise. For a `Composition` it multiplies its `scales`.
      mechanism: the description of everything that was asked of the records.
      accountant: which accountant certifies ε.
      randomness: source of batches and noise; "insecure seed" voids the claim.
      non_private: the run had no noise.
      group_size: the most records that one person may have; ε and δ stay those of one record, `group` has the person's.
      adjacency: which data sets are neighbours: those that differ in one record, or in all records of a person, up to
        group_size of them. Then ε and δ are those of the person.
      versions: of pgbb and of what it ran on.
      notes: further public facts, a sentence each.
      members: the claims of custodians of disjoint records whose releases were pooled; `mechanism`, `sigma` and
        `accountant` are then those of the one with the largest ε. See `pool`.

    >>> m = Mechanism(n=1000, blocks=1, sampling_rate=1.0, steps=1, clip=1.0)
    >>> c = Certificate(1.0, 1e-5, .0075, m, "exact", "operating system")
    >>> c.check().ok, Certificate.from_dict(c.to_dict()) == c
    (True, True)
    >>> print(Certificate(0.5, 1e-5, .0075, m, "exact", "operating system").check().problems[0])
    ε = 0.5 is claimed, but accountant 'exact' gives 0.99... at δ = 1e-05: the claim is false.
    """

    epsilon: float
    delta: float
    sigma: float
    mechanism: Target
    accountant: str
    randomness: Randomness
    non_private: bool = False
    group_size: int = 1
    adjacency: str = ADJACENCY
    versions: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    members: tuple["Certificate", ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.non_private, bool):
            raise _validate.fail("non_private", self.non_private, "True or False")
        if not isinstance(self.mechanism, Target):
            raise _validate.fail("mechanism", self.mechanism, "a description of pgbb.accountant, such as a Mechanism")
        if self.non_private:
            if self.epsilon != math.inf or self.sigma != 0:
                raise InvalidValue(
                    f"epsilon = {self.epsilon!r}, sigma = {self.sigma!r} with non_private = True is not allowed: a run "
                    "without noise has sigma = 0.0 and promises nothing. Write epsilon = math.inf, sigma = 0.0."
                )
            epsilon, sigma, delta = math.inf, 0.0, _validate.number("delta", self.delta, low=0, high=1)
        else:
            epsilon, sigma = _validate.epsilon(self.epsilon), _validate.sigma(self.sigma)
            delta = _validate.delta(self.delta)
        _validate.one_of("accountant", self.accountant, ACCOUNTANTS)
        _validate.one_of("randomness", self.randomness, SOURCES)
        _validate.one_of("adjacency", self.adjacency, (ADJACENCY, BY_PERSON))
        if not all(isinstance(m, Certificate) and not m.members for m in self.members):
            raise _validate.fail("members", self.members, "certificates that are not pooled themselves")
        given: Sequence[object] = self.notes
        if isinstance(given, str):
            raise _validate.fail("notes", given, "a sequence of sentences", "Put it in a tuple: (note,).")
        versions = {str(k): str(v) for k, v in dict(self.versions).items()}
        notes = tuple(str(note) for note in given)
        size = _validate.integer("group_size", self.group_size, low=1, high=self.n)
        _validate.store(self, epsilon=epsilon, sigma=sigma, delta=delta, group_size=size)
        _validate.store(self, members=tuple(self.members), versions=versions, notes=notes)
        if not all(_validate.visible(text) and "\n" not in text for text in (*versions, *versions.values(), *notes)):
            raise InvalidValue(
                "a note or version with line breaks or control characters is not allowed: each is a sentence on one "
                "line, so that none can pass for a line of the report."
            )

    @classmethod
    def pool(cls, members: Sequence["Certificate"]) -> "Certificate":
        """The claim of releases about disjoint records that are published together.

        A replaced record changes the release of one custodian and leaves the others as they are, so each record has
        the (ε, δ) of its custodian, and no more than the largest.
        """
        worst = max(members, key=lambda member: member.epsilon)
        return cls(
            epsilon=worst.epsilon,
            delta=max(member.delta for member in members),
            sigma=worst.sigma,
            mechanism=worst.mechanism,
            accountant=worst.accountant,
            randomness=next((m.randomness for m in members if m.randomness == "insecure seed"), "operating system"),
            non_private=worst.non_private,
            group_size=max(member.group_size for member in members),
            adjacency=BY_PERSON if all(m.adjacency == BY_PERSON for m in members) else ADJACENCY,
            versions=versions_here(),
            notes=(
                "Pooled from releases of disjoint records: each record has the ε and δ of its own custodian. A person "
                "with records at several custodians has the sum of theirs.",
            ),
            members=tuple(members),
        )

    @property
    def parts(self) -> Sequence[tuple[Mechanism | Own, float]]:
        """Each mechanism with its own noise scale; of a pooled certificate those of all members."""
        if self.members:
            return [part for member in self.members for part in member.parts]
        return self.mechanism.parts(self.sigma)

    @property
    def n(self) -> int:
        """The number of records, which is public."""
        return sum(member.n for member in self.members) or self.mechanism.parts(self.sigma)[0][0].n

    @property
    def private(self) -> bool:
        """Whether the claim can hold at all: there was noise, and nobody can replay it."""
        return not self.non_private and self.randomness == "operating system"

    @property
    def group(self) -> tuple[float, float]:
        """(gε, δ(e^{gε} − 1)/(e^ε − 1)): the guarantee of a person with g = `group_size` records.

        It is the chain of g replacements of one record each. δ is at most 1.
        """
        if self.non_private or self.group_size == 1 or self.adjacency == BY_PERSON:
            return self.epsilon, self.delta
        total = self.group_size * self.epsilon
        ratio = math.expm1(total) / math.expm1(self.epsilon) if total < 700 else math.inf
        return total, min(1.0, self.delta * ratio)

    def __repr__(self) -> str:
        return f"<Certificate: {self.headline()}>"

    @property
    def assumes(self) -> str | None:
        """The note that says what the claim rests on and nobody has proved, if there is one."""
        return next((note for note in self.notes if note.startswith(ASSUMES)), None)

    def headline(self) -> str:
        """One line: the budget, or why there is none.

        >>> m = Mechanism(n=1000, blocks=1, sampling_rate=1.0, steps=1, clip=1.0)
        >>> Certificate(1.0, 1e-5, .0075, m, "exact", "operating system").headline()
        'ε = 1, δ = 1e-05 (replace one record, n public; n = 1,000)'
        """
        n = f"n = {self.n:,}" + (f" at {len(self.members)} custodians" if self.members else "")
        if self.non_private:
            return f"NOT PRIVATE: run without noise ({n})"
        line = f"ε = {self.epsilon:g}, δ = {self.delta:g} ({self.adjacency}; {n})"
        if self.assumes:
            line += ", IF the sampler is exact: that is assumed, not proved"
        return line if self.private else f"NOT PRIVATE: insecure seed. Nominal {line}"

    def check(self) -> CertificateCheck:
        """Recompute ε with the named accountant, and with the others for comparison."""
        if self.members:
            return self._check_members()
        problems: list[str] = []
        remarks = [self.assumes] if self.assumes else []
        epsilons = {name: self._recompute(name) for name in ACCOUNTANTS}
        if self.non_private:
            problems.append("no privacy: the fit ran without noise (non_private=True). Treat this file as the records.")
        else:
            problems += self._judge(epsilons[self.accountant])
        if self.randomness == "insecure seed":
            problems.append(
                "reproducible, therefore not private: the noise came from an insecure seed, and whoever knows or "
                "guesses it can take the noise away. Fit again without insecure_seed."
            )
        if not self.non_private:
            if self.delta > 1 / self.n:
                remarks.append(f"δ = {self.delta:g} > 1/n = {1 / self.n:g} allows publishing whole records.")
            elif self.delta == 1 / self.n:
                remarks.append("δ = 1/n is weak: an order of magnitude less is customary.")
            if self.group_size > 1:
                total, delta = self.group
                remarks.append(f"a person with {self.group_size} records has ε = {total:g}, δ = {delta:.3g}.")
        return CertificateCheck(not problems, tuple(problems), tuple(remarks), epsilons, self.accountant, self.epsilon)

    def _check_members(self) -> CertificateCheck:
        """Check every custodian's claim, and that the pooled one is no smaller than any of them."""
        checks = [member.check() for member in self.members]
        problems = [f"custodian {i}: {p}" for i, check in enumerate(checks, 1) for p in check.problems]
        remarks = [f"custodian {i}: {r}" for i, check in enumerate(checks, 1) for r in check.remarks]
        for i, member in enumerate(self.members, 1):
            if member.epsilon > self.epsilon or member.delta > self.delta:
                problems.append(
                    f"ε = {self.epsilon:g}, δ = {self.delta:g} is claimed for all records, but custodian {i} claims "
                    f"ε = {member.epsilon:g}, δ = {member.delta:g}."
                )
        epsilons: dict[str, float | None] = {}
        for name in ACCOUNTANTS:
            found = [check.epsilons[name] for check in checks]
            known = [value for value in found if value is not None]
            epsilons[name] = max(known) if len(known) == len(found) else None
        return CertificateCheck(not problems, tuple(problems), tuple(remarks), epsilons, self.accountant, self.epsilon)

    def _recompute(self, accountant: str) -> float | None:
        if self.non_private:
            return math.inf
        sigma = self.sigma
        if self.adjacency == BY_PERSON:  # g records move a sum over all records g times as far as one
            if any(not isinstance(m, Mechanism) or (m.blocks, m.sampling_rate) != (1, 1) for m, _ in self.parts):
                return None
            sigma /= self.group_size
        try:
            return float(accounting.epsilon(self.mechanism, sigma, self.delta, cast(Accountant, accountant)))
        except (PgbbError, ArithmeticError):
            return None  # this accountant does not cover the mechanism

    def _judge(self, value: float | None) -> list[str]:
        if value is None:
            return [f"accountant '{self.accountant}' does not cover this mechanism: ε = {self.epsilon:g} has no proof."]
        if not value <= self.epsilon * (1 + SLACK):
            return [
                f"ε = {self.epsilon:g} is claimed, but accountant '{self.accountant}' gives {value:.6g} "
                f"at δ = {self.delta:g}: the claim is false."
            ]
        return []

    def to_dict(self) -> dict[str, object]:
        """A JSON object; `epsilon` is null for a run without noise, and `members` is there if there are any."""
        plain: dict[str, object] = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "members"}
        if self.members:
            plain["members"] = [member.to_dict() for member in self.members]
        plain["epsilon"] = None if self.non_private else self.epsilon
        plain["mechanism"] = describe(self.mechanism)
        plain["versions"] = dict(self.versions)
        plain["notes"] = list(self.notes)
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "Certificate":
        """The certificate that `to_dict` wrote; every field is validated again."""
        if not isinstance(plain, Mapping):
            raise _validate.fail("certificate", plain, "a JSON object")
        known = {f.name for f in fields(cls)} - {"members"}
        if set(plain) - {"members"} != known:
            raise InvalidValue(
                f"certificate with fields {sorted(plain)} is not allowed: it must have exactly {sorted(known)}."
            )
        values = dict(plain)
        values["mechanism"] = _understand(values["mechanism"])
        if values["epsilon"] is None:
            values["epsilon"] = math.inf
        if not isinstance(values["versions"], Mapping) or not isinstance(values["notes"], list | tuple):
            raise InvalidValue("certificate: versions must be a JSON object and notes a list of sentences.")
        if "members" in values:
            if not isinstance(values["members"], list) or any("members" in m for m in values["members"]):
                raise InvalidValue(
                    "certificate: members must be a list of certificates that are not pooled themselves."
                )
            values["members"] = tuple(cls.from_dict(member) for member in values["members"])
        return cls(**values)


_OPTIONAL = {"nested"}  # fields that are left out where they are None


def describe(mechanism: Target) -> dict[str, object]:
    """A mechanism as a JSON object, as certificates and ledgers hold it."""
    if isinstance(mechanism, Composition):
        return {"mechanisms": [describe(m) for m in mechanism.mechanisms], "scales": list(mechanism.scales)}
    return {name: value for name, value in asdict(mechanism).items() if name not in _OPTIONAL or value is not None}


def _understand(plain: object) -> Target:
    if not isinstance(plain, Mapping):
        raise _validate.fail("mechanism", plain, "a JSON object")
    if "mechanisms" in plain:
        if set(plain) != {"mechanisms", "scales"} or not all(isinstance(plain[k], list | tuple) for k in plain):
            raise InvalidValue("mechanism: a composition must have the lists mechanisms and scales, and nothing else.")
        members = [_understand(m) for m in plain["mechanisms"]]
        return compose(cast(list[Mechanism], members), plain["scales"])
    for kind in (Resampling, PosteriorDraws):
        if set(plain) == {f.name for f in fields(kind)}:
            return kind(**plain)
    known = {f.name for f in fields(Mechanism)} - _OPTIONAL
    if set(plain) - _OPTIONAL != known:
        raise InvalidValue(
            f"mechanism with fields {sorted(plain)} is not allowed: it must have exactly {sorted(known)}."
        )
    with warnings.catch_warnings():  # advice on the choice of γ belongs to the fit
        warnings.simplefilter("ignore", PgbbWarning)
        return Mechanism(**plain)


@cache
def versions_here() -> dict[str, str]:
    """Versions of pgbb and of what it runs on."""
    found = {"python": platform.python_version()}
    for name in ("pgbb", "numpy", "scipy", "jax", "optax"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "unknown"
    return found
