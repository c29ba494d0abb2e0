"""What the launcher of a cluster has told this process: where process 0 is, how many there are, which one this is.

Read from environment variables of SLURM and Open MPI; nothing is asked over a network.
"""

import os
import re

__all__ = ["launched"]

_FIRST_PORT, _PORTS = 61_440, 4_096  # the upper end of the ports that no service claims


def launched() -> tuple[str, int, int] | None:
    """Address of process 0, number of processes and number of this one; None where no launcher has set all of them."""
    for found in (_slurm, _open_mpi):
        try:
            return found()
        except (KeyError, ValueError):  # not set, or no numbers
            continue
    return None


def _slurm() -> tuple[str, int, int]:
    """The first node of a step, such as node07 of "node[07-09],other3"; the job's number gives the port."""
    nodes = re.fullmatch(r"([^,\[\]]+)(?:\[(\w+)[^\]]*\])?(?:,.*)?", os.environ["SLURM_STEP_NODELIST"])
    if nodes is None:
        raise ValueError
    port = _FIRST_PORT + int(os.environ["SLURM_JOB_ID"]) % _PORTS
    first = nodes[1] + (nodes[2] or "")
    return f"{first}:{port}", int(os.environ["SLURM_NTASKS"]), int(os.environ["SLURM_PROCID"])


def _open_mpi() -> tuple[str, int, int]:
    """The machine of `mpirun`, by its own address: "JOB.0;tcp://10.0.0.1,10.1.0.1:34911" or "JOB.0;tcp6://[::1]:43"."""
    job, _, rest = os.environ["OMPI_MCA_orte_hnp_uri"].partition(".")  # noqa: SIM112 - as it spells it
    host = re.search(r"tcp://([^,:]+)|tcp6://\[([^,\]]+)", rest)
    if host is None:
        raise ValueError
    port = _FIRST_PORT + int(job) // 2**12 % _PORTS  # job numbers are multiples of 2¹²
    address = host[1] or f"[{host[2]}]"
    return f"{address}:{port}", int(os.environ["OMPI_COMM_WORLD_SIZE"]), int(os.environ["OMPI_COMM_WORLD_RANK"])
