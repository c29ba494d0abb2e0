"""ABC with the noise as its kernel (Gong 2022) beside a published table of it: a normal mean and variance.

    python benchmarks/rejection.py

The table is the column "DP-Reject-ABC" of location_scale_comparison_table.tex in psanghi04/DP-PF (Chen, Sanghi & Awan
2025, particle filters for privatized data), whose program is Gong's rejection sampler: n records from a normal law,
clamped to [−5, 5] and divided by 5; their sum and their sum of squares, each with Laplace noise of scale 3/ε; the
priors μ ~ N(0, 4²) and σ² ~ IG(1, ½). It prints the mean over 100 runs of the posterior mean from 100 accepted draws,
and its standard deviation over runs: a tenth of that is the standard error of the printed mean. The released statistics
stand in its result files. Here the sampler of `method="abc"` has the same releases, with the kernel of Laplace noise.
"""

import argparse

import numpy as np

from pgbb.methods.abc import Settings, Target, sampled

HALF, SENSITIVITY, RUNS = 5.0, 3.0, 100
PRINTED = {  # (ε, n): released sum, released sum of squares, then mean and standard deviation of E μ, and of E σ²
    (0.1, 100): (3.414012, -16.701419, 0.100, 0.118, 2.120, 3.337),
    (0.1, 200): (52.892589, -14.366241, 0.920, 0.083, 0.987, 0.187),
    (0.1, 300): (91.721532, 82.390790, 1.718, 0.067, 2.274, 0.435),
    (0.1, 500): (104.172341, 55.202857, 1.076, 0.035, 1.040, 0.110),
    (0.1, 1000): (238.502043, 163.595454, 1.270, 0.025, 1.796, 0.112),
    (0.5, 100): (18.425000, 3.150358, 0.794, 0.037, 0.688, 0.067),
    (0.5, 200): (43.715786, 9.486739, 1.025, 0.019, 0.514, 0.046),
    (0.5, 300): (67.956352, 35.619699, 1.172, 0.017, 1.225, 0.062),
    (0.5, 500): (102.645995, 44.124601, 1.043, 0.008, 0.945, 0.041),
    (0.5, 1000): (205.836706, 98.217303, 1.034, 0.006, 1.332, 0.023),
    (1, 100): (20.301374, 5.631830, 0.985, 0.019, 0.579, 0.045),
    (1, 200): (42.568686, 12.468361, 1.058, 0.010, 0.483, 0.030),
    (1, 300): (64.985704, 29.773313, 1.097, 0.009, 1.128, 0.045),
    (1, 500): (102.455202, 42.739819, 1.029, 0.006, 1.007, 0.024),
    (1, 1000): (201.753539, 90.045034, 1.010, 0.004, 1.217, 0.014),
    (2, 100): (21.239561, 6.872567, 1.064, 0.011, 0.569, 0.036),
    (2, 200): (41.995136, 13.959173, 1.056, 0.009, 0.577, 0.021),
    (2, 300): (63.500380, 26.850120, 1.062, 0.008, 1.068, 0.023),
    (2, 500): (102.359805, 42.047428, 1.024, 0.005, 1.039, 0.015),
    (2, 1000): (199.711955, 85.958900, 0.999, 0.004, 1.149, 0.008),
}
KERNELS = {
    "laplace": lambda noise: -np.abs(noise).sum(axis=1),
    "half": lambda noise: -2 * np.abs(noise).sum(axis=1),  # the twin: a kernel half as wide as the noise
}


def target(n: int, epsilon: float, released: tuple[float, float], kernel: str, rng: np.random.Generator) -> Target:
    """The posterior of (μ, log σ²) given the two released sums."""

    def log_prior(theta):
        return -(theta[:, 0] ** 2) / 32 - theta[:, 1] - np.exp(-theta[:, 1]) / 2

    def simulate(theta):
        sums = np.empty((len(theta), 2))
        for part in np.array_split(np.arange(len(theta)), max(1, len(theta) * n // 2**21)):
            spread = np.exp(np.clip(theta[part, 1:] / 2, -50, 50))
            x = np.clip(theta[part, :1] + spread * rng.standard_normal((len(part), n)), -HALF, HALF) / HALF
            sums[part] = np.column_stack([x.sum(axis=1), np.square(x).sum(axis=1)])
        return sums

    start, spread = np.array([HALF * released[0] / n, 0.0]), np.diag([4.0, 4.0])
    return Target(
        np.array(released), SENSITIVITY / epsilon, start, spread, log_prior, simulate, kernel=KERNELS[kernel]
    )  # fmt: skip


def main(proposals: int, kernel: str) -> None:
    """Each printed mean beside ours, and their distance in standard errors of both."""
    print("ε     n     E μ printed    found      z    E σ² printed    found      z   effective")
    far = []
    for (epsilon, n), (one, two, *printed) in PRINTED.items():
        rng = np.random.default_rng(n)
        theta, weights = sampled(
            target(n, epsilon, (one, two), kernel, rng), Settings(proposals=proposals), rng, lambda *_: None
        )
        size = 1 / np.square(weights).sum()
        line = f"{epsilon:<4} {n:>5}"
        for values, mean, deviation in ((theta[:, 0], *printed[:2]), (np.exp(theta[:, 1]), *printed[2:])):
            found = weights @ values
            error = np.hypot(deviation / np.sqrt(RUNS), np.sqrt(weights @ np.square(values - found) / size))
            far.append((found - mean) / np.hypot(error, 0.0003))  # printed to three digits
            line += f"{mean:>13.3f} {found:>10.3f} {far[-1]:>+6.1f}"
        print(f"{line} {size:>10.0f}", flush=True)
    z = np.abs(far)
    print(f"{len(z)} means: {(z < 2).sum()} within two standard errors, root mean square {np.sqrt(np.mean(z**2)):.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--proposals", type=int, default=20_000)
    parser.add_argument("--kernel", choices=tuple(KERNELS), default="laplace")
    given = parser.parse_args()
    main(given.proposals, given.kernel)
