"""Which processes fit together: as the caller says, or as the launcher of a cluster has set. Opens no connection."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pgbb import _validate
from pgbb.errors import InvalidValue

__all__ = ["Hosts"]

_FORM = "ADDRESS:PORT,PROCESSES,PROCESS such as 10.0.0.1:5555,2,0, or auto"
_PORTS = 2**12  # the last so many: a job takes one by its number


@dataclass(frozen=True)
class Hosts:
    """Which processes fit together, and which of them this one is. All make the same call, but for `process`.

    Args:
      coordinator: address and port of process 0, such as "10.0.0.1:5555".
      processes: how many there are.
      process: this one's number, from 0.
      wait: seconds to wait for all to join.
      patience: seconds that a process may be silent during the fit before it counts as lost.

    >>> Hosts.of("10.0.0.1:5555,2,1")
    Hosts(coordinator='10.0.0.1:5555', processes=2, process=1, wait=300.0, patience=900.0)
    """

    coordinator: str
    processes: int
    process: int
    wait: float = 300.0
    patience: float = 900.0

    def __post_init__(self) -> None:
        _validate.integer("processes", self.processes, low=1, high=4096)
        _validate.integer("process", self.process, low=0)
        if self.process >= self.processes:
            raise _validate.fail("process", self.process, f"from 0 to {self.processes - 1}", "Numbers begin at 0.")
        _validate.number("wait", self.wait, above=0)
        _validate.number("patience", self.patience, above=0)
        self.address  # noqa: B018 - raises where it is not one

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of process 0."""
        given: object = self.coordinator
        host, _, port = str(given).rpartition(":")
        if not isinstance(given, str) or not host or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise _validate.fail("coordinator", given, "an address and a port, such as 10.0.0.1:5555")
        return host.strip("[]"), int(port)

    @classmethod
    def of(cls, given: "Hosts | str") -> "Hosts":
        """From "ADDRESS:PORT,PROCESSES,PROCESS", or with "auto" from what the cluster's launcher has set."""
        if isinstance(given, Hosts):
            return given
        if not isinstance(given, str):
            raise _validate.fail("hosts", given, _FORM)
        if given.strip() == "auto":
            return cls(*_launched())
        parts = [part.strip() for part in given.split(",")]
        if len(parts) != 3 or not (parts[1].isdecimal() and parts[2].isdecimal()):
            raise _validate.fail("hosts", given, _FORM)
        return cls(parts[0], int(parts[1]), int(parts[2]))


def _launched() -> tuple[str, int, int]:
    """Coordinator, processes and process from the variables of SLURM or Open MPI."""
    for launcher in (_slurm, _open_mpi):
        try:
            return launcher(os.environ)
        except (KeyError, ValueError, AttributeError):  # not set, or not all of them, or of another form
            continue
    raise InvalidValue(
        "hosts = 'auto' found no cluster: the variables of SLURM or Open MPI are not set, or not all of them. "
        f"Write {_FORM.removesuffix(', or auto')}."
    )


def _port(job: int) -> int:
    return 2**16 - _PORTS + job % _PORTS


def _slurm(given: Mapping[str, str]) -> tuple[str, int, int]:
    """The first node of a list such as node01,node02 or node[01-03,07] is process 0's."""
    prefix, first = re.match(r"([^,\[]+)(?:\[([^,\]-]+))?", given["SLURM_STEP_NODELIST"]).groups(default="")  # type: ignore[union-attr]
    address = f"{prefix}{first}:{_port(int(given['SLURM_JOB_ID']))}"
    return address, int(given["SLURM_NTASKS"]), int(given["SLURM_PROCID"])


def _open_mpi(given: Mapping[str, str]) -> tuple[str, int, int]:
    """A launcher such as 1531576320.0;tcp://10.96.0.1,10.148.0.1:34911 runs where process 0 does."""
    uri = given["OMPI_MCA_orte_hnp_uri"]
    address = next(filter(None, re.search(r"tcp://([^,:]+)|tcp6://\[([^,\]]+)", uri).groups()))  # type: ignore[union-attr]
    job = int(uri.split(".")[0]) // 2**12  # a multiple of that
    host = f"[{address}]" if ":" in address else address
    return f"{host}:{_port(job)}", int(given["OMPI_COMM_WORLD_SIZE"]), int(given["OMPI_COMM_WORLD_RANK"])
