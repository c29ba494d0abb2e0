"""How much memory is left."""

from pathlib import Path

__all__ = ["free_memory"]


def free_memory() -> int | None:
    """Bytes that this process may still take, by the system and its control group; None where that is not told."""
    found = []
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
        found.append(int(lines["MemAvailable"].split()[0]) * 1024)
    except (OSError, KeyError, ValueError, IndexError):
        pass
    try:
        group = Path("/sys/fs/cgroup")
        limit, used = ((group / name).read_text(encoding="ascii") for name in ("memory.max", "memory.current"))
        found.append(max(int(limit) - int(used), 0))
    except (OSError, ValueError):  # no limit is the word max
        pass
    return min(found, default=None)
