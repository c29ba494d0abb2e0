"""Speed of training: Algorithm 1 against a plain PyTorch loop, a large step against `numpy.take`, memory, draws.

    pip install -e '.[bench]' && python benchmarks/training.py [loop|step|memory|draws]

Ratios are of two things measured in one run on the same machine. Compilation
is reported apart.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

N, STEPS, BLOCKS, RATE = 10_000, 10_000, 20, 0.1


def _data(n: int, p: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (n, p)).astype(np.float32)
    slopes = np.array([1.5, -1.5, 1.0], np.float32)[:p]
    return x, (x[:, :3] @ slopes + rng.standard_normal(n).astype(np.float32))


def _session(n: int, p: int, steps: int, draws: int, rate: float, blocks: int):
    from pgbb import HuberRegression, Range, Schema
    from pgbb.accountant import Mechanism
    from pgbb.private.randomness import Randomness
    from pgbb.private.records import Records
    from pgbb.private.row_layout import empty_rows
    from pgbb.private.session import Session

    names = [f"x{i}" for i in range(p)]
    schema = Schema(y=Range(-20, 20), **{name: Range(-1, 1) for name in names})
    problem = HuberRegression("y ~ " + " + ".join(names) + " - 1").prepare(schema)
    x, y = _data(n, p)
    rows = empty_rows(*x.shape)
    rows[:, :-2], rows[:, -2], rows[:, -1] = x, y, 1
    records = Records(rows, np.ones(n, bool))
    mechanism = Mechanism(n=n, blocks=blocks, sampling_rate=rate, steps=steps, draws_per_step=draws, clip=problem.clip)
    return lambda seed: Session(records, problem, mechanism, 0.02, Randomness.create(seed))


class Clock:
    """Seconds since it was made: by the clock, or of the processor where these are fewer, as on a busy machine."""

    def __init__(self) -> None:
        self.begin = time.perf_counter(), time.process_time()

    def read(self) -> float:
        return min(time.perf_counter() - self.begin[0], time.process_time() - self.begin[1])


def jax_loop(steps: int = STEPS) -> tuple[float, float]:
    from pgbb.methods.pgbb.training import train

    make = _session(N, 3, steps, 1, RATE, BLOCKS)
    times = []
    for seed in range(3):
        clock = Clock()
        train(make(seed))
        times.append(clock.read())
    return min(times[1:]), times[0] - min(times[1:])


def torch_loop(steps: int = STEPS) -> float:
    """Algorithm 1 as one would first write it in PyTorch: the same network, optimiser, batches and answers."""
    import torch

    torch.set_num_threads(2)
    torch.manual_seed(0)
    x, y = (torch.from_numpy(a) for a in _data(N, 3))
    block = torch.arange(N) * BLOCKS // N
    gamma = torch.distributions.Dirichlet(torch.full((BLOCKS,), 0.9))
    layers = torch.nn.ModuleList(
        [torch.nn.Linear(BLOCKS, 256)] + [torch.nn.Linear(256 + BLOCKS, 256) for _ in range(2)]
    )
    head = torch.nn.Linear(256 + BLOCKS, 4)
    optimiser = torch.optim.Adam([*layers.parameters(), *head.parameters()], lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps, eta_min=1e-5)
    clock = Clock()
    for _ in range(steps):
        u = gamma.sample()
        h = u
        for layer in layers:
            h = torch.cat([torch.relu(layer(h)), u])
        theta = 5 * torch.tanh(head(h) / 20) + torch.tensor([0.0, 0.0, 0.0, 5.1])
        with torch.no_grad():
            batch = torch.nonzero(torch.rand(N) < RATE).squeeze(1)
            xb, yb, w = x[batch], y[batch], u[block[batch]] * BLOCKS / N
            z = (yb - xb @ theta[:-1]) / theta[-1]
            psi = z.clamp(-1.345, 1.345)
            gradient = torch.cat([-psi[:, None] * xb, (0.71 - psi[:, None] ** 2) / 2], dim=1)
            gradient = gradient * (2.3935 / gradient.norm(dim=1).clamp(min=1e-12)).clamp(max=1.0)[:, None]
            answer = w @ gradient + 0.02 * torch.randn(4)
        optimiser.zero_grad()
        theta.backward(answer)
        optimiser.step()
        schedule.step()
    return clock.read()


def loop() -> None:
    ours, compilation = jax_loop()
    theirs = torch_loop()
    print(f"Algorithm 1, n = {N:,}, T = {STEPS:,}, K = 1, q = {RATE}, S = {BLOCKS}")
    print(f"  pgbb          {ours:6.2f} s  (compilation {compilation:.2f} s, apart)")
    print(f"  PyTorch loop  {theirs:6.2f} s")
    print(f"  ratio         {theirs / ours:6.2f}")


def copied(n: int, p: int, rate: float, draws: int, repeats: int = 20) -> float:
    """Seconds that `numpy.take` needs to copy the rows of one step."""
    from pgbb.private.noise import Stream
    from pgbb.private.poisson import draw_batches

    x, _ = _data(n, p)
    positions, sizes = draw_batches(n, rate, draws * repeats, Stream.create("batches", 0))
    rows = [q[:s] for q, s in zip(positions, sizes, strict=True)]
    copies = []
    for _ in range(5):
        clock = Clock()
        for r in rows:
            np.take(x, r, axis=0)
        copies.append(clock.read() / repeats)
    return min(copies)


def stepped(n: int, p: int, rate: float, draws: int, steps: int, repeats: int = 3) -> float:
    """Seconds of one step of ours, compiled before."""
    from pgbb.methods.pgbb.training import train

    make = _session(n, p, steps, draws, rate, 5)
    times = []
    for seed in range(repeats):
        session = make(seed)
        clock = Clock()
        train(session)
        times.append(clock.read() / steps)
    return min(times[1:])


def step() -> None:
    n, p, draws, rate, steps = 1_940_000, 14, 5, 0.01, 400
    copy, ours = copied(n, p, rate, draws), stepped(n, p, rate, draws, steps)
    print(f"one step, n = {n:,}, p = {p}, q = {rate}, K = {draws} ({int(n * rate * draws):,} rows)")
    print(f"  pgbb         {ours * 1e3:6.2f} ms, sampling, noise, gradients and update included")
    print(f"  numpy.take   {copy * 1e3:6.2f} ms, to copy the same rows")
    print(f"  ratio        {ours / copy:6.2f}")


def _status(field: str) -> float:
    """A line of /proc/self/status in MiB (Linux)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(field)


def memory() -> None:
    """Peak memory of `pgbb.fit` on 1.94 million records, beyond the user's frame.

    Measured on the second of two equal fits, so that libraries, compiler and
    accountant, whose memory does not depend on n, are there already; the first is
    reported too.
    """
    import pgbb

    n, p = 1_940_000, 14
    names = [f"x{i}" for i in range(p)]
    schema = pgbb.Schema(y=pgbb.Range(-20, 20), **{name: pgbb.Range(-1, 1) for name in names})
    model = pgbb.HuberRegression("y ~ " + " + ".join(names) + " - 1")
    settings = {"schema": schema, "epsilon": 1.0, "delta": 1e-7, "method": "pgbb", "blocks": 5, "draws_per_step": 5}

    def frame(size: int) -> pd.DataFrame:
        x, y = _data(size, p)
        return pd.DataFrame(dict(zip(names, x.T.copy(), strict=True)) | {"y": y})

    pgbb.fit(model, frame(5000), sampling_rate=0.5, steps=20, **settings)
    data = frame(n)
    matrix = n * p * 4 / 2**20
    print(f"memory of a fit, n = {n:,}, p = {p}: design matrix {matrix:.0f} MiB")
    for label in ("first fit", "second fit"):
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before = _status("VmRSS")
        pgbb.fit(model, data, sampling_rate=0.01, steps=40, **settings)
        extra = _status("VmHWM") - before
        print(f"  {label:12}{extra:6.0f} MiB beyond the frame, ratio {extra / matrix:.2f}")


def draws() -> None:
    import pgbb

    x, y = _data(2000, 3)
    frame = pd.DataFrame({"x0": x[:, 0], "x1": x[:, 1], "y": y})
    schema = pgbb.Schema(x0=pgbb.Range(-1, 1), x1=pgbb.Range(-1, 1), y=pgbb.Range(-20, 20))
    release = pgbb.fit(
        pgbb.QuantileRegression("y ~ x0 + x1", taus=[0.1, 0.5, 0.9]), frame, schema=schema, epsilon=1.0, delta=1e-6,
        method="pgbb", blocks=20, steps=50,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        loaded = pgbb.load(release.save(Path(folder) / "r.pgbb"))
        loaded.sample(2000, tau=0.5)
        begin = time.perf_counter()
        loaded.sample(2000, tau=0.5)
        print(f"2,000 draws from a loaded release: {time.perf_counter() - begin:.4f} s after the first call")


if __name__ == "__main__":
    commands = {"loop": loop, "step": step, "memory": memory, "draws": draws}
    for name in sys.argv[1:2] or list(commands):
        commands[name]()
