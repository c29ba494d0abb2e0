"""The process that holds an entry of a ledger, and whether it is still there."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil


@dataclass(frozen=True)
class Owner:
    """A process, described such that another process can tell whether it is still there.

    A number is given to another process sooner or later; a number with its start time is not.

    Attributes:
      host: the name of the machine, with a number that tells it from another of the same name, where there is one.
      pid: its number.
      started: when it began, in hundredths of a second since the system did; empty where that is not known.
      boot, space: which start of the system and which set of process numbers it belongs to, as Linux tells them.
    """

    host: str
    pid: int
    started: str = ""
    boot: str = ""
    space: str = ""

    @classmethod
    def current(cls) -> Self:
        """This process."""
        return cls(_host(), os.getpid(), _started(os.getpid()), *_system())

    def alive(self) -> bool | None:
        """Whether the process is there; None where this machine cannot know."""
        boot, space = _system()
        if self.host != _host():
            return None
        if self.boot != boot:
            return False
        if self.space != space:
            return None
        if self.started:
            return _started(self.pid) == self.started
        return self.pid < 2**31 and psutil.pid_exists(self.pid)


def _host() -> str:
    try:
        return f"{platform.node()} {Path('/etc/machine-id').read_text(encoding='ascii').strip()[:12]}".strip()
    except (OSError, UnicodeDecodeError):
        return platform.node()


def _started(pid: int) -> str:
    """When a process began; empty if it is not there, has ended, or may not be looked at.

    Both times move when the clock of the system is set; their difference does not.
    """
    try:
        process = psutil.Process(pid)
        if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return ""
        return str(round(100 * (process.create_time() - psutil.boot_time())))
    except (psutil.Error, OSError):
        return ""


def _system() -> tuple[str, str]:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return boot, os.readlink("/proc/self/ns/pid")
    except OSError:
        return "", ""
