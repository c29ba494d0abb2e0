"""Dask distributed as the engine: its scheduler places partitions, moves no records, and reads a lost worker's again.

Workers that have their partitions are called for an answer; whatever goes wrong there, tasks of the scheduler find out
and mend. A task never raises: Dask would write its arguments, which are records, into the worker's log. Connections are
encrypted, or do not leave the machine.
"""

import asyncio
import ctypes
import gc
import ipaddress
import logging
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from typing import Any

from pgbb import _validate
from pgbb._numerics import Ints
from pgbb.engine.guard import guarded, versions
from pgbb.engine.protocol import Batch, EngineLost, Failed, Question, Receipt, Work, settled
from pgbb.errors import InvalidValue, PgbbError

_LOOK = 5.0  # seconds between looks at which workers there are
_ATTEMPTS = 5  # how often tasks are sent out; each time Dask tries three other workers
_LOCAL = {  # for a cluster of this process: nothing on disk, no copies of partitions, no pages
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.scheduler.work-stealing": False,
    "distributed.nanny.pre-spawn-environ": {},
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
_RETURNS = {"distributed.deploy.lost-worker-timeout": "300s"}  # a start takes long on a busy machine
_FORM = "local:WORKERS such as local:4, or the scheduler of a Dask cluster such as tls://10.0.0.1:8786"


@dataclass(frozen=True)
class Cluster:
    """A Dask cluster whose workers read the records.

    Args:
      address: "local:4" for so many processes on this machine, or a scheduler's "tls://ADDRESS:PORT"; "tcp://" is for
        addresses of this machine only.
      ca, cert, key: files (PEM) of the certificate authority and of this process; by default those that Dask's
        configuration has.
      patience: seconds that workers may take for an answer.

    >>> Cluster("local:2").address
    'local:2'
    """

    address: str
    ca: str | None = None
    cert: str | None = None
    key: str | None = field(default=None, repr=False)
    patience: float = 900.0

    def __post_init__(self) -> None:
        given: object = self.address
        kind, _, rest = str(given).partition(":")
        if not isinstance(given, str) or kind not in ("local", "tls", "tcp"):
            raise _validate.fail("cluster", given, _FORM)
        if kind == "local" and not (rest.isdecimal() and 0 < int(rest) <= 1024):
            raise _validate.fail("cluster", given, _FORM)
        if kind != "local":
            _encrypted(given, "the scheduler")
        _validate.number("patience", self.patience, above=0)


def _encrypted(address: str, who: str) -> None:
    """Refuse an address to which sums before noise would travel in the open."""
    kind, _, rest = address.partition("://")
    host = rest.rpartition(":")[0].strip("[]")
    if kind in ("tls", "inproc") or (kind == "tcp" and _loopback(host)):
        return
    raise InvalidValue(
        f"{who} is at {address}, and others could read what is sent there: sums of records without noise. Take "
        "tls://, with certificates (docs/howto/cluster.md has the command); tcp:// is for 127.0.0.1 only."
    )


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_frame(source: object) -> bool:
    """Whether this is a Dask DataFrame; Dask need not be installed."""
    return type(source).__module__.startswith("dask") and hasattr(source, "to_delayed")


# On the driver -------------------------------------------------------------------------------------------------------


@contextmanager
def connected(given: Any) -> "Iterator[Dask]":
    """A cluster by its `Cluster` or address, by a client of Dask, or, for None, by the current client."""
    try:
        import distributed
    except ImportError:
        raise PgbbError("clusters are those of Dask: pip install 'pgbb[dask]', here and on the workers.") from None
    if isinstance(given, str):
        given = Cluster(given)
    with ExitStack() as stack:
        patience = Cluster("local:1").patience
        if isinstance(given, Cluster):
            patience, client = given.patience, _client(given, stack)
        elif given is None:
            client = _current(distributed)
        elif isinstance(given, distributed.Client):
            client = given
        else:
            raise _validate.fail("cluster", type(given).__name__, f"{_FORM}; a pgbb.Cluster; or a distributed.Client")
        there = Dask(client, patience)
        stack.callback(there.release)
        yield there


def _current(distributed: Any) -> Any:
    try:
        return distributed.default_client()
    except ValueError:
        raise InvalidValue(
            "data is a Dask DataFrame, and there is no cluster to read it: give cluster='local:2', the address of a "
            "scheduler, or make a distributed.Client first."
        ) from None


def _client(given: Cluster, stack: ExitStack) -> Any:
    """A client of its own, for the time of a fit."""
    import dask
    from distributed import Client, LocalCluster
    from distributed.security import Security

    kind, _, rest = given.address.partition(":")
    if kind == "local":
        stack.enter_context(dask.config.set(_RETURNS))  # read when a worker is lost
        with dask.config.set(_LOCAL):
            quiet: dict[str, Any] = {"dashboard_address": "127.0.0.1:0", "silence_logs": logging.CRITICAL}
            quiet["config"] = deepcopy(dask.config.config)  # for workers that are started again, too
            try:
                there = LocalCluster(
                    n_workers=int(rest), threads_per_worker=1, host="127.0.0.1", security=True, **quiet
                )
            except RuntimeError:  # of a nanny; and of each worker that runs an unguarded script to this line
                raise PgbbError(
                    f"the workers of {given.address} could not be started. Each of them imports your script first: let "
                    "what it does stand below a line `if __name__ == '__main__':`. Nothing was spent."
                ) from None
            stack.enter_context(there)
            return stack.enter_context(Client(there, set_as_default=False))
    files = {"tls_ca_file": given.ca, "tls_client_cert": given.cert, "tls_client_key": given.key}
    try:
        security = Security(require_encryption=kind == "tls", **{k: v for k, v in files.items() if v is not None})
        return stack.enter_context(Client(given.address, security=security, set_as_default=False))
    except (OSError, TypeError, ValueError) as error:  # ssl.SSLError and a wait that is over are OSErrors
        why = "no certificate was given" if isinstance(error, TypeError) else type(error).__name__
        traceback.clear_frames(error.__traceback__)
    gc.collect()  # what failed is closed here: in the thread of the next client it would wait for that client
    raise PgbbError(
        f"the scheduler {given.address} cannot be reached: {why}. Check the address, that it runs, and that ca, cert "
        "and key (--tls-ca, --tls-cert, --tls-key) are those of this cluster. Nothing was spent."
    )


class Dask:
    """An open connection to the scheduler of a Dask cluster."""

    def __init__(self, client: Any, patience: float) -> None:
        self.client, self.patience = client, patience
        self._engines: list[DaskEngine] = []
        _encrypted(client.scheduler.address, "the scheduler")
        for address in self.addresses():
            _encrypted(address, "a worker")
        if not self.workers:
            raise InvalidValue("the cluster has no workers. Start some, and wait for them (client.wait_for_workers).")

    def addresses(self) -> list[str]:
        """Addresses of the workers in a fixed order, as the scheduler has them: the client may not know them yet."""
        return sorted(self.client.sync(self.client.scheduler.identity, n_workers=-1)["workers"])

    @property
    def workers(self) -> int:
        """Number of workers."""
        return len(self.addresses())

    def holds(self, source: Any) -> bool:
        """Whether it is a Dask DataFrame."""
        return is_frame(source)

    def engine(self, source: Any, work: Work) -> "DaskEngine":
        """The workers, once they have encoded what they read."""
        self._engines.append(DaskEngine(self, source, work))
        return self._engines[-1]

    def release(self) -> None:
        """Let workers forget their partitions: those of the next fit would come on top of them."""
        for engine in self._engines:
            engine.release()


class DaskEngine:
    """Partitions on the workers of a Dask cluster. Each worker answers about the partitions that it has."""

    def __init__(self, cluster: Dask, source: Any, work: Work) -> None:
        from distributed import futures_of

        self._cluster, self._client, self._work = cluster, cluster.client, work
        self._versions = versions()
        self._groups: dict[str, list[int]] = {}
        self._preparing: list[Any] = []
        self._there = is_frame(source) and bool(futures_of(source))
        self._types: dict[str, Any] = {}
        self._parts = self._lazy(source) if is_frame(source) else list(source)
        self._kept = [self._encoded(i) for i in range(len(self._parts))]
        found = self._gathered(lambda: [self._submit(work.receipt, kept) for kept in self._kept])
        self._first = Receipt.total(found)
        self._starts = [0, *accumulate(receipt.records for receipt in found)]  # numbers of first records
        self.n = self._first.records
        if self.n == 0:
            raise InvalidValue("the data has 0 records; at least one is needed. Check the filter before it.")

    def release(self) -> None:
        """Let workers forget what they keep."""
        for future in (*self._kept, *self._preparing):
            future.release()

    def prepare(self, questions: Sequence[Question]) -> None:
        """Have every worker compile what will be asked; nobody waits for it."""
        named = [question.named() for question in questions]
        self._preparing = [
            self._submit(self._work.prepare, self._work.told, named, self._kept[parts[0]], workers=[worker])
            for worker, parts in self._placed().items()
        ]

    def sum(self, question: Question | Batch) -> Ints:
        """The partial sums of all workers, added up once their receipts are those of the first reading."""
        named = question.named()
        found = self._called(named)
        if found is not None and Receipt.total(receipt for _, receipt in found) == self._first:
            return settled(self._first, found)

        def tasks() -> list[Any]:
            return [
                self._submit(self._work.answer, self._work.told, named, kept, firsts, workers=[worker])
                for worker, kept, firsts in self._asked()
            ]

        return settled(self._first, self._gathered(tasks))

    def _asked(self) -> list[tuple[str, list[Any], list[int]]]:
        """Workers, what they keep, and the numbers of its first records."""
        return [
            (worker, [self._kept[i] for i in parts], [self._starts[i] for i in parts])
            for worker, parts in self._placed().items()
        ]

    def _called(self, named: Question | Batch) -> list[Any] | None:
        """Answers of the workers that have the partitions, called past the scheduler's tasks, which take longer.

        None if a worker or a partition of its is gone.
        """
        asked = self._asked()
        keys = [(worker, [future.key for future in kept], firsts) for worker, kept, firsts in asked]

        async def calls() -> list[Any]:
            there = await self._client.who_has(self._kept)  # a call of a worker that is gone would wait for it
            if any(worker not in there.get(key, ()) for worker, its, _ in keys for key in its):
                return [None]
            given = _answered, self._versions, self._work.answer, self._work.told, named
            found = [self._client.run(*given, its, firsts, workers=[worker]) for worker, its, firsts in keys]
            return [answer for one in await asyncio.gather(*found) for answer in one.values()]

        try:
            found = self._client.sync(calls, callback_timeout=self._cluster.patience)
        except TimeoutError:
            raise self._silent() from None
        except Exception:  # whatever it is, tasks meet it too
            return None
        return None if any(answer is None for answer in found) else _unfailed(found)

    def _silent(self) -> EngineLost:
        return EngineLost(
            f"the workers have not answered within {self._cluster.patience:g} s: they hang, or none is left. "
            "Look at the cluster; a larger limit is patience= of pgbb.Cluster."
        )

    def _lazy(self, frame: Any) -> list[Any]:
        """The partitions of a Dask DataFrame, with the columns that are needed; nothing is computed."""
        names = [name for name in self._work.columns if name in frame.columns]
        self._types = dict(frame.dtypes[names])  # public: what the frame says, and not what a partition turns out to be
        return list(frame[names].to_delayed())

    def _encoded(self, i: int) -> Any:
        """A future of partition i, which some worker encodes and keeps."""
        from dask.delayed import delayed

        part, told, addresses = self._parts[i], self._work.told, self._cluster.addresses()
        near = [addresses[i * len(addresses) // len(self._parts)]]
        if not hasattr(part, "dask"):
            return self._submit(self._work.encode, told, part, workers=near)
        task = delayed(_task, pure=False)(self._work.encode, self._versions, told, part, self._types)
        if self._there:  # the frame is in memory already: stay where it is
            return self._client.compute(task)
        return self._client.compute(task, workers=near, allow_other_workers=True)

    def _submit(self, function: Callable[..., Any], *args: Any, workers: list[str] | None = None) -> Any:
        """A task, on this worker if it can be; `_task` runs it."""
        return self._client.submit(
            _task, function, self._versions, *args, workers=workers, allow_other_workers=workers is not None, pure=False
        )

    def _placed(self) -> dict[str, list[int]]:
        """Partitions by the worker that has them, as far as the driver knows."""
        if not self._groups:
            where = self._client.who_has(self._kept)
            for i, kept in enumerate(self._kept):
                self._groups.setdefault(next(iter(where.get(kept.key) or ()), ""), []).append(i)
        return self._groups

    def _gathered(self, tasks: Callable[[], list[Any]]) -> list[Any]:
        """The results of tasks, sent out again where workers are lost; pgbb's own words where one has none."""
        from distributed import CancelledError, TimeoutError
        from distributed.scheduler import KilledWorker

        for _ in range(_ATTEMPTS):
            try:
                sent = tasks()
                if not self._done(sent):
                    self._kept, self._groups = [self._encoded(i) for i in range(len(self._parts))], {}
                    continue
                found = self._client.gather(sent)
            except TimeoutError:
                raise self._silent() from None
            except KilledWorker:
                self._mend()
                continue
            except (CancelledError, OSError) as error:
                raise EngineLost(f"the scheduler of the cluster is gone ({type(error).__name__}).") from None
            except Exception as error:  # such as a worker without pgbb; its message might quote records
                raise PgbbError(
                    f"a worker cannot do its part ({type(error).__name__}, see its log). Install the same versions of "
                    "pgbb and its packages everywhere. What a Dask DataFrame computes must work by itself, and each of "
                    "its partitions must have the columns that it says."
                ) from None
            if any(where not in self._groups for where, _ in found):  # somebody else has stepped in
                self._groups = {}
            return _unfailed([result for _, result in found])
        raise EngineLost(f"workers were lost in each of {_ATTEMPTS} attempts to read or count the records.")

    def _done(self, sent: list[Any]) -> bool:
        """Wait for tasks. False if all workers of the beginning are gone, and others have come.

        Dask would wait for ever: to the others it sends none of what was meant for the first.
        """
        from distributed import TimeoutError, wait

        first = {*self._groups} - {""} or {*self._cluster.addresses()}
        end = time.monotonic() + self._cluster.patience
        while True:
            try:
                with self._client.as_current():
                    wait(sent, timeout=min(_LOOK, self._cluster.patience))
                return True
            except TimeoutError:
                now = {*self._cluster.addresses()}
                if now and not now & first:
                    return False
                if time.monotonic() >= end:
                    raise

    def _mend(self) -> None:
        """Read partitions again that Dask has given up, since their workers were lost too often."""
        self._groups = {}
        for i, kept in enumerate(self._kept):
            if kept.status in ("error", "lost", "cancelled"):
                self._kept[i] = self._encoded(i)


def _unfailed(results: list[Any]) -> list[Any]:
    """The results, or an error with the words of the first worker that has none."""
    for result in results:
        if isinstance(result, Failed):
            raise PgbbError(result.text)
    return results


# On a worker ---------------------------------------------------------------------------------------------------------


def _task(function: Callable[..., Any], expected: tuple[str, ...], *args: Any) -> Any:
    """What a worker does, with its address; a partition that it keeps comes alone."""
    from distributed import get_worker

    worker = get_worker()
    result = _done_by(worker, expected, function, *args)
    return result if function.__name__ == "encode" else (worker.address, result)


async def _answered(
    expected: tuple[str, ...],
    answer: Callable[..., Any],
    told: bytes,
    named: Question | Batch,
    keys: list[str],
    firsts: list[int],
    dask_worker: Any,
) -> Any:
    """What a worker answers when it is called, in the thread of its tasks; None if a partition is not here."""
    kept = [dask_worker.data.get(key) for key in keys]
    if any(part is None for part in kept):
        return None
    thread = dask_worker.executors["default"]
    given = dask_worker, expected, answer, told, named, kept, firsts
    return await asyncio.get_running_loop().run_in_executor(thread, _done_by, *given)


def _done_by(worker: Any, expected: tuple[str, ...], function: Callable[..., Any], *args: Any) -> Any:
    """The result, or why this worker has none."""
    _keep_memory()
    return _unfit(worker) or guarded(f"worker {worker.address}", expected, function, *args)


def _unfit(worker: Any) -> Failed | None:
    """The reason why this worker may not have records, or None."""
    try:
        _encrypted(worker.address, "a worker")
    except InvalidValue as error:
        return Failed(str(error))
    memory = getattr(worker, "memory_manager", None)
    if memory is not None and memory.memory_limit and (memory.memory_target_fraction or memory.memory_spill_fraction):
        return Failed(
            f"worker {worker.address} would write encoded records to its disk when memory is short. Set Dask's "
            "distributed.worker.memory.target and distributed.worker.memory.spill to False on all workers."
        )
    return None


@cache
def _keep_memory() -> None:
    """Let the allocator keep what a sum frees: Dask's nanny makes it give all back, and every answer pays for it."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(-1, 2**30)  # M_TRIM_THRESHOLD
        mallopt(-3, 2**25)  # M_MMAP_THRESHOLD
