"""The example of dapper's manual (`?dapper_sample`) by `augmented` and `abc`, beside its closed form.

    python benchmarks/latent.py

100 records from N(−2, 1) with known scale, their mean with noise N(0, 1/9), and the prior N(0, 4): given the noisy mean
z the posterior is N(zv, w) with v = 4/(4 + 1/100 + 1/9), w = 4(1 − v). dapper prints no table of it; it is what its
users run first.
"""

import math
import warnings

import numpy as np
import pandas as pd

import pgbb
from pgbb.accountant import gdp_epsilon
from pgbb.methods.effective_size import effective_sample_size

N, NOISE, PRIOR, HALF = 100, 1 / 3, 4.0, 20.0
SETTINGS = {"augmented": {"iterations": 20_000}, "abc": {}}


def main(replicates: int = 10) -> None:
    """Prints how far mean and sd of each chain are from the closed form, in Monte Carlo standard errors."""
    delta = 1e-6
    epsilon = gdp_epsilon(2 * HALF / N / NOISE, delta)  # at which the noise of the mean is 1/3
    schema, model = pgbb.Schema(y=pgbb.Range(-2 - HALF, -2 + HALF)), pgbb.Mean("y", scale=1.0)
    print("method     replicate   noisy mean   mean (closed)      sd (closed)     z of mean  z of sd   effective")
    worst = {}
    for method in SETTINGS:
        for seed in range(replicates):
            rng = np.random.default_rng(seed)
            release = pgbb.fit(
                model, pd.DataFrame({"y": rng.normal(-2, 1, N)}), schema=schema, epsilon=epsilon, delta=delta,
                method=method, mean_variance=PRIOR, insecure_seed=seed, **SETTINGS[method],
            )  # fmt: skip
            ((_, sigma),) = release.certificate.parts
            draws = release.payload.tensors["draws"][:, 0].astype(float)
            again = pgbb.fit(  # the same noisy sum, by the same seed
                model, pd.DataFrame({"y": np.random.default_rng(seed).normal(-2, 1, N)}), schema=schema,
                epsilon=epsilon, delta=delta, method="repro", insecure_seed=seed,
            )  # fmt: skip
            total = again.stored_diagnostics["statistic"][0] / N - 2
            share = PRIOR / (PRIOR + 1 / N + sigma**2)
            mean, sd = share * total, math.sqrt(PRIOR * (1 - share))
            if method == "augmented":
                size = float(effective_sample_size(draws[:, None])[0])
            else:  # resampled from weighted parameters
                size = 1 / (1 / release.stored_diagnostics["effective_sample_size"][0][0] + 1 / len(draws))
            off = (draws.mean() - mean) / sd * math.sqrt(size), (draws.std() / sd - 1) * math.sqrt(2 * size)
            worst[method] = max(worst.get(method, 0.0), *map(abs, off))
            print(
                f"{method:<10} {seed:>9} {total:>12.4f}   {draws.mean():.4f} ({mean:.4f}) {draws.std():.4f} ({sd:.4f})"
                f"   {off[0]:8.2f} {off[1]:8.2f} {size:>11.0f}"
            )
    print("; ".join(f"{name}: farthest {value:.1f} standard errors" for name, value in worst.items()))


if __name__ == "__main__":
    warnings.simplefilter("ignore", pgbb.PgbbWarning)
    main()
