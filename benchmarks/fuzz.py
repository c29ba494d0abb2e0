"""Coverage-guided fuzzing of everything that reads what a stranger wrote, and of what reads the records.

    python benchmarks/fuzz.py [TARGET ...] [--cases N] [--seed S] [--keep FOLDER]

Needs the extra `fuzz` (atheris). Each target runs in a process of its own, from valid inputs that are mutated with
knowledge of their structure (benchmarks/hostile.py). A case is a finding unless it works or raises pgbb's own error
with a message, within SECONDS and MEMORY, writing nowhere but into its folder, starting no program, opening no
connection and executing no code; and unless no canary planted in the records appears in what it says. Findings are
told apart by where they arose. With `--keep` the smallest input of each and each target's report are kept, so that
targets may be run one by one, and benchmarks/results/fuzz.md is written from all reports there. Exits with 1 on a
finding.
"""

import argparse
import contextlib
import io
import json
import os
import platform
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "fuzz.md"
TARGETS = ("schema", "formula", "release", "ledger", "data", "report")
CASES = 100_000
SECONDS = 5.0  # of one case
MEMORY = 2**30  # bytes that a case may take beyond what the process had
LONGEST = 2**16  # bytes of an input
LONGEST_MESSAGE = 20_000

FORBIDDEN = (
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "subprocess.Popen",
    "socket.connect",
    "pty.spawn",
    "ctypes.dlopen",
    "webbrowser.open",
    "os.remove",
    "os.rename",
    "os.mkdir",
    "shutil.rmtree",
)


class Hang(BaseException):
    """A case took longer than SECONDS; no handler of ordinary errors may swallow it."""


class Finding(Exception):
    """A rule that a case broke, other than by an exception."""


class Watch:
    """The audit hook: what a case does to the machine, noted only while a case runs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.on, self.seen = str(folder), False, []
        sys.addaudithook(self._hook)

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "open":
            path, mode, flags = args
            writing = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) if isinstance(flags, int) else "w" in str(mode)
            if writing and isinstance(path, str | bytes | os.PathLike) and not self._inside(path):
                self.seen.append(f"opened for writing: {os.fsdecode(path)}")
        elif event == "exec":
            name = getattr(args[0], "co_filename", "")
            if not os.path.isabs(name) and not name.startswith("<frozen"):
                calls = [f.name for f in traceback.extract_stack()]
                if "_find_and_load" not in calls:  # an import that comes late
                    self.seen.append(f"executed code of {name!r} by {calls[-6:-2]}")
        elif event in FORBIDDEN:
            names = [a for a in args if isinstance(a, str | bytes | os.PathLike)]
            if event.startswith(("os.r", "os.mk", "shutil")) and all(map(self._inside, names)):
                return
            self.seen.append(f"{event} {names}")

    def _inside(self, path: Any) -> bool:
        return os.path.abspath(os.fsdecode(path)).startswith((self.folder, os.devnull))


class Run:
    """One target's cases: counts what became of each, and keeps the findings."""

    def __init__(self, name: str, target: Any, watch: Watch, keep: Path) -> None:
        self.name, self.target, self.watch, self.keep = name, target, watch, keep
        self.cases = self.worked = self.refused = 0
        self.slowest, self.began = 0.0, time.monotonic()
        self.findings: dict[str, dict[str, Any]] = {}
        from pgbb.errors import PgbbError

        self.own = PgbbError

    def case(self, data: bytes) -> None:
        """Run one input; never raises."""
        self.cases += 1
        said, began = io.StringIO(), time.monotonic()
        self.watch.seen, self.watch.on = [], True
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            with warnings.catch_warnings(record=True) as warned, contextlib.redirect_stdout(said):
                warnings.simplefilter("always")
                with contextlib.redirect_stderr(said):
                    try:
                        self.target.run(data)
                        self.worked += 1
                    except self.own as error:
                        self.refused += 1
                        message = str(error)
                        if not 10 <= len(message) <= LONGEST_MESSAGE:
                            raise Finding(f"message of {len(message)} letters") from error
                        said.write("".join(traceback.format_exception(error)))
            self.target.check(data, said.getvalue() + " ".join(str(w.message) for w in warned))
            if self.watch.seen:
                raise Finding(self.watch.seen[0])
        except (Exception, Hang) as error:
            self._found(data, error)
        except BaseException as error:  # a panic of compiled code is not an Exception
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            self._found(data, error)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self.watch.on = False
            self.slowest = max(self.slowest, time.monotonic() - began)

    def _found(self, data: bytes, error: BaseException) -> None:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "/pgbb/" in f.filename]
        where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else str(error)[:60]
        key = f"{type(error).__name__} at {where}"
        known = self.findings.setdefault(key, {"times": 0, "size": len(data) + 1, "says": ""})
        known["times"] += 1
        if len(data) < known["size"]:
            known.update(size=len(data), says=f"{type(error).__name__}: {error}"[:200])
            number = list(self.findings).index(key)
            (self.keep / f"{self.name}-{number}.input").write_bytes(data)
            text = "".join(traceback.format_exception(error))
            (self.keep / f"{self.name}-{number}.txt").write_text(f"{key}\n{text[-6000:]}", errors="replace")

    def report(self) -> dict[str, Any]:
        return {
            "cases": self.cases,
            "worked": self.worked,
            "refused": self.refused,
            "seconds": time.monotonic() - self.began,
            "slowest": self.slowest,
            "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "findings": self.findings,
        }


def child(name: str, cases: int, seed: int, keep: Path, out: Path) -> None:
    """Fuzz one target in this process; atheris leaves it by exiting."""
    import atheris

    with atheris.instrument_imports(include=["pgbb", "formulaic", "tomllib"]):
        import hostile

        import pgbb
        import pgbb.cli
        import pgbb.report  # noqa: F401

    folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    os.chdir(folder)  # where a relative path leads
    target = hostile.TARGETS[name](folder)
    corpus = out.parent / f"{name}-corpus"
    corpus.mkdir()
    seeds = target.seeds()
    for number, data in enumerate(seeds):
        (corpus / f"{number:03}").write_bytes(data)
    for data in seeds:  # imports what is imported late, before memory and behaviour are watched
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(), contextlib.suppress(Exception):
            warnings.simplefilter("ignore")
            target.run(data)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    run = Run(name, target, Watch(folder), keep)

    def hang(_: int, __: FrameType | None) -> None:
        raise Hang(f"more than {SECONDS:g} s")

    signal.signal(signal.SIGALRM, hang)

    def one(data: bytes) -> None:
        run.case(data)
        if run.cases % 500 == 0 or run.cases >= cases:
            out.write_text(json.dumps({**run.report(), "base": base}))

    def mutate(data: bytes, longest: int, number: int) -> bytes:
        try:
            changed = target.mutate(data, number) if number % 4 else None
        except Exception:  # such as a nest of nests: the engine's own mutation then
            changed = None
        return atheris.Mutate(data, longest) if changed is None or len(changed) > longest else changed

    flags = [
        f"-runs={cases}",
        f"-seed={seed}",
        f"-max_len={LONGEST}",
        "-timeout=0",
        "-rss_limit_mb=0",
        "-len_control=0",
    ]
    atheris.Setup([sys.argv[0], str(corpus), *flags], one, custom_mutator=mutate)
    atheris.Fuzz()


def fuzz(name: str, cases: int, seed: int, keep: Path) -> dict[str, Any]:
    """One target in a child process."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report.json"
        command = [sys.executable, __file__, name, "--child", str(out), "--cases", str(cases), "--seed", str(seed)]
        done = subprocess.run(
            [*command, "--keep", str(keep)],
            capture_output=True,
            text=True,
            errors="replace",
            env={**os.environ, "JAX_PLATFORMS": "cpu", "COLUMNS": "100"},
        )
        if not out.exists():
            sys.exit(f"{name}: no case ran\n{done.stderr[-3000:]}")
        report: dict[str, Any] = json.loads(out.read_text())
    covered = [line.split("cov: ")[1].split()[0] for line in done.stderr.splitlines() if "cov: " in line]
    report["edges"] = int(covered[-1]) if covered else 0
    if report["cases"] < cases:  # the process died: that is a finding, whatever the last input was
        report["findings"][f"process ended with {done.returncode}"] = {"times": 1, "says": done.stderr[-300:]}
    return report


def write(reports: dict[str, dict[str, Any]]) -> None:
    """The table, by this script alone."""
    from importlib.metadata import version

    import hostile

    lines = [
        "# Fuzzing",
        "",
        "Written by `python benchmarks/fuzz.py`; docs/sharp-edges.md says what targets have to withstand. A case is",
        f"a finding unless it works or raises pgbb's own error within {SECONDS:g} s and {MEMORY / 2**30:g} GiB, writes",
        "nothing outside its folder, executes nothing, and tells nothing of the records.",
        "",
        f"Engine: atheris {version('atheris')} (libFuzzer, coverage-guided) with structure-aware mutation; "
        f"Python {platform.python_version()}.",
        "",
        "| target | what | cases | seconds | worked | refused | edges | slowest, s | memory grew, MiB | findings |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, r in reports.items():
        what = hostile.TARGETS[name].__doc__.splitlines()[0].rstrip(".")
        lines.append(
            f"| {name} | {what} | {r['cases']:,} | {r['seconds']:.0f} | {r['worked']:,} | {r['refused']:,} | "
            f"{r['edges']:,} | {r['slowest']:.2f} | {(r['peak'] - r['base']) / 2**20:.0f} | {len(r['findings'])} |"
        )
    lines += [
        "",
        "Edges: branches of pgbb, formulaic and tomllib reached. Inputs found earlier are in tests/test_hostile.py.",
    ]
    for name, r in reports.items():
        for key, found in r["findings"].items():
            lines.append(f"- {name}: {key}, {found['times']} times: {found['says']!r}")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=None)
    parser.add_argument("--child", type=Path, default=None, help=argparse.SUPPRESS)
    given = parser.parse_args()
    keep = (given.keep or Path(tempfile.mkdtemp(prefix="fuzz-findings-"))).resolve()
    keep.mkdir(exist_ok=True)
    if given.child is not None:
        child(given.targets[0], given.cases, given.seed, keep, given.child)
        return
    chosen = given.targets or TARGETS
    reports = {}
    for name in chosen:
        reports[name] = r = fuzz(name, given.cases, given.seed, keep)
        print(
            f"{name}: {r['cases']:,} cases, {r['seconds']:.0f} s, {r['edges']:,} edges, {len(r['findings'])} findings",
            flush=True,
        )
        for key, found in r["findings"].items():
            print(f"  {found['times']:6} {key}: {found['says']!r}", flush=True)
        (keep / f"{name}.json").write_text(json.dumps({**r, "seed": given.seed}))
    if given.keep is not None:
        write({name: json.loads(file.read_text()) for name in TARGETS if (file := keep / f"{name}.json").exists()})
    sys.exit(any(r["findings"] for r in reports.values()))


if __name__ == "__main__":
    main()
