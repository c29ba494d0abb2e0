"""How much memory is left."""

from pathlib import Path

import psutil

__all__ = ["free_memory"]

_GROUP = Path("/sys/fs/cgroup")


def free_memory() -> int:
    """Bytes that this process may still take, by the system and by the limit of its control group.

    psutil tells the first. It does not read control groups, whose limit is the smaller one in a container.
    """
    free = psutil.virtual_memory().available
    try:
        limit, used = (int((_GROUP / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):  # no control group; where there is no limit the file holds the word max
        return free
    return min(free, max(limit - used, 0))
