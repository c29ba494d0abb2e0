import json
import subprocess
import sys

import pytest

from pgbb.accountant import Mechanism, epsilon
from pgbb.planning import plan

PLAN = ["--n", "10000", "--epsilon", "1", "--delta", "1e-4", "--steps", "500"]


def run(*arguments):
    return subprocess.run([sys.executable, "-m", "pgbb", "plan", *arguments], capture_output=True, text=True)


def test_plan_prints_every_part_and_opens_no_data():
    done = run(*PLAN, "--dim", "4", "--clip", "2.386")
    assert done.returncode == 0, done.stderr
    for part in (
        "noise σ",
        "γ*",
        "exact",
        "paper",
        "worst-case",
        "thm:asymp-dp",
        "√κ",
        "thm:conv-gbb",
        "δ⋆",
        "adjacency",
    ):
        assert part in done.stdout
    assert "Traceback" not in done.stderr


def test_plan_json_holds_the_numbers_that_the_library_gives():
    done = run(*PLAN, "--json")
    data = json.loads(done.stdout)
    m = Mechanism(n=10_000, blocks=20, sampling_rate=0.1, steps=500, clip=1.0)
    assert data["epsilon_by_accountant"]["exact"] == pytest.approx(epsilon(m, data["sigma"], 1e-4), rel=1e-9)
    assert data["epsilon_by_accountant"]["exact"] <= 1.0
    assert data["sigma"] < data["sigma_by_accountant"]["paper"] < data["sigma_by_accountant"]["worst-case"]
    assert data["ratio_to_worst_case"] == pytest.approx(data["sigma"] / data["sigma_by_accountant"]["worst-case"])
    at_goal = next(row for row in data["curve"] if row["epsilon"] == 1.0)
    assert at_goal["delta_exact"] == pytest.approx(1e-4, rel=0.02)
    assert at_goal["delta_exact"] < at_goal["delta_paper"]
    assert len(data["leading_order"]["conditions"]) == 4


def test_plan_draws_the_four_panels(tmp_path):
    target = tmp_path / "budget.png"
    done = run(*PLAN, "--plot", str(target))
    assert done.returncode == 0, done.stderr
    assert target.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and target.stat().st_size > 20_000


def test_plan_at_full_batches_leaves_out_what_the_paper_does_not_cover():
    result = plan(Mechanism(n=1000, blocks=1, sampling_rate=1.0, steps=10, clip=1.0), 1.0, 1e-5).to_dict()
    assert result["epsilon_by_accountant"]["paper"] is None
    assert result["epsilon_by_accountant"]["exact"] <= 1.0


@pytest.mark.parametrize(
    "arguments, field",
    [
        (["--n", "10", "--epsilon", "1", "--delta", "1e-4", "--blocks", "11"], "blocks"),
        (["--n", "10000", "--epsilon", "0", "--delta", "1e-4"], "epsilon"),
        (["--n", "10000", "--epsilon", "nan", "--delta", "1e-4"], "epsilon"),
        (["--n", "10000", "--epsilon", "1", "--delta", "1"], "delta"),
        ([*PLAN, "--gamma", "-1"], "gamma"),
        ([*PLAN, "--accountant", "best"], "accountant"),
        ([*PLAN, "--plot", "budget.xyz"], "figure"),
    ],
)
def test_a_mistake_gets_one_paragraph_and_exit_code_two(arguments, field, tmp_path):
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and field in done.stderr
    assert "Traceback" not in done.stderr
