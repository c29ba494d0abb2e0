"""Time, memory and accuracy of the accountants on the design's table and a natality-size problem.

`make bench` runs it too. Prints one row per problem and accountant: the certified
σ·n_S/C, the time of `noise_scale` and the peak memory of a fresh process, and
for the design's rows the interval of `epsilon_bounds` at the paper's σ.
"""

import json
import resource
import subprocess
import sys
import time

ROWS = {
    "10k, S=20, ε=1": ({"n": 10_000, "blocks": 20, "sampling_rate": 0.1, "steps": 10_000}, 1.0, 1e-4, 5.022, 0.8848),
    "40k, S=5, ε=2": ({"n": 40_000, "blocks": 5, "sampling_rate": 0.1, "steps": 10_000}, 2.0, 2.5e-5, 11.751, 1.8026),
    "5k, S=20, γ=1, ε=4": (
        {"n": 5_000, "blocks": 20, "gamma": 1.0, "sampling_rate": 0.2, "steps": 2_000},
        4.0,
        2e-4,
        1.4886,
        2.8991,
    ),
    "1.94M, S=5, ε=1": (
        {"n": 1_940_000, "blocks": 5, "sampling_rate": 0.01, "steps": 10_000, "draws_per_step": 5},
        1.0,
        1 / 1_940_000,
        None,
        None,
    ),
    "1.94M, S=5, ε=4": (
        {"n": 1_940_000, "blocks": 5, "sampling_rate": 0.01, "steps": 10_000, "draws_per_step": 5},
        4.0,
        1 / 1_940_000,
        None,
        None,
    ),
}


def measure(name: str, accountant: str) -> None:
    from pgbb.accountant import Mechanism, epsilon_bounds, noise_scale

    settings, epsilon, delta, noise, true = ROWS[name]
    mechanism = Mechanism(clip=1.0, **settings)
    begin = time.perf_counter()
    sigma = noise_scale(mechanism, epsilon, delta, accountant)
    seconds = time.perf_counter() - begin
    result = {"noise": sigma * mechanism.block_size, "seconds": seconds}
    if accountant == "exact" and noise is not None:
        result["bounds"] = epsilon_bounds(mechanism, noise / mechanism.block_size, delta)
        result["true"] = true
    result["mebibytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(result))


def main() -> None:
    print(f"{'problem':22}{'accountant':12}{'σ·n_S/C':>10}{'seconds':>9}{'MiB':>6}   ε at the paper's σ (true)")
    for name in ROWS:
        for accountant in ("exact", "paper", "worst-case"):
            command = [sys.executable, __file__, name, accountant]
            r = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            line = f"{name:22}{accountant:12}{r['noise']:10.4f}{r['seconds']:9.2f}{r['mebibytes']:6.0f}"
            if "bounds" in r:
                low, high = r["bounds"]
                line += f"   [{low:.4f}, {high:.4f}] ({r['true']}), gap {(high - low) / high:.2%}"
            print(line, flush=True)


if __name__ == "__main__":
    measure(*sys.argv[1:]) if len(sys.argv) == 3 else main()
