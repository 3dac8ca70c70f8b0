"""Where the contest takes place: this machine, and the rivals' own Python environment.

The environment is made from `rivals.lock`, whose hashes pin every byte, and made anew when that file changes. It stands
apart from Wakugumi's so that neither can choose the other's versions.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".bench" / "venv"
LOCK = ROOT / "bench" / "rivals.lock"
INSTALL_LIMIT_S = 240
IN_MEMORY = {"tmpfs", "ramfs"}
SYNCS = 200


class NoRivals(Exception):
    """The rivals' environment could not be made; Wakugumi can still run alone."""


class NotOnDisk(Exception):
    """A contest about what survives a power cut was to be held in memory."""


def rivals_python() -> Path:
    """The rivals' interpreter, installing the locked rivals first where that has not been done."""
    python = VENV / "bin" / "python"
    stamp = VENV / "made-from"
    wanted = f"{hashlib.sha256(LOCK.read_bytes()).hexdigest()} {platform.python_version()}\n"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"making the rivals' environment in {VENV.relative_to(ROOT)} (once) …", file=sys.stderr)
    shutil.rmtree(VENV, ignore_errors=True)
    install = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r", LOCK)
    for command in ((sys.executable, "-m", "venv", VENV), install):
        try:
            subprocess.run(command, check=True, timeout=INSTALL_LIMIT_S, capture_output=True, text=True)
        except subprocess.TimeoutExpired:
            raise NoRivals(f"installing the rivals took longer than {INSTALL_LIMIT_S} s") from None
        except subprocess.CalledProcessError as failed:
            said = failed.stderr.strip().splitlines() or ["no reason given"]
            raise NoRivals(f"the rivals could not be installed: {said[-1]}") from None
    stamp.write_text(wanted)
    return python


def pin_to_two_cpus() -> list[int]:
    """Bind this process, and so every contestant it starts, to the same two CPUs; fewer where there are fewer."""
    cpus = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, cpus)
    return cpus


def machine(cpus: list[int]) -> dict[str, str]:
    """What a reader needs to know of this machine to judge the absolute numbers."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "CPU": _cpu_model(),
        "Cores": f"{os.cpu_count()}, of which the contest uses {len(cpus)}",
        "Memory": f"{memory_gib:.0f} GiB",
        "Kernel": f"{platform.system()} {platform.release()}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "Load before the run": f"{os.getloadavg()[0]:.2f}",
    }


def disk(folder: Path) -> dict[str, str]:
    """What is below the folder, and how soon a small write there is safe. Raises NotOnDisk."""
    folder.mkdir(parents=True, exist_ok=True)
    kind = _file_system(folder.resolve())
    if kind in IN_MEMORY:
        raise NotOnDisk(f"{folder} is in memory ({kind}): nothing there is durable, and nothing would be proven")
    taken_ms = []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(SYNCS):
            file.write(bytes(4096))
            start = time.perf_counter()
            os.fsync(file.fileno())
            taken_ms.append((time.perf_counter() - start) * 1e3)
    return {"Disk": f"{kind}; fsync of 4 KiB more takes {median(taken_ms):.2f} ms (median of {SYNCS}, before the run)"}


def _file_system(folder: Path) -> str:
    """The type of the mount that the folder is on: of those above it, the nearest."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    above = [(len(point), kind) for point, kind in mounts if folder.is_relative_to(point)]
    return max(above)[1] if above else "unknown"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
