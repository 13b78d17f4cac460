# SPDX-License-Identifier: Apache-2.0
"""What a tiering job does about the processes around it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lakeward.config.java import Java
from lakeward.tiering.job.classarchive import find_archive


def test_what_workers_are_forked_from_has_no_threads_that_a_fork_would_lose() -> None:
    code = """
import os, sys
os.environ["OPENBLAS_NUM_THREADS"] = "1"
from lakeward.tiering.work.preload import import_for_rounds
import_for_rounds(["embedded", "no such plugin"])
print("pyiceberg.io.pyarrow" in sys.modules, "pyarrow.flight" in sys.modules)
if os.path.isdir("/proc/self/task"):
    others = [t for t in os.listdir("/proc/self/task") if int(t) != os.getpid()]
    names = {open(f"/proc/self/task/{t}/comm").read().strip() for t in others}
    print(sorted(names - {"jemalloc_bg_thd"}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() in (["True True", "[]"], ["True True"])


def test_a_job_whose_spark_submit_is_gone_stops() -> None:
    """A grandchild is left by its parent, and notices."""
    code = """
import os, sys, threading
from lakeward.tiering.job.job import stop_with_parent
if os.fork():
    sys.stdin.readline()
    os._exit(0)
stopped = threading.Event()
stop_with_parent(stopped.set, poll_s=0.01)
print("watching", flush=True)
print("stopped" if stopped.wait(120) else "still there", flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "watching\n"
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stdout.readline() == "stopped\n"


def test_an_archive_is_kept_by_the_first_and_used_by_the_next(tmp_path: Path) -> None:
    java = Java(home=Path("/java"), version=17, origin="test")
    first = find_archive(java, tmp_path)
    assert first is not None
    assert first.draft is not None
    first.draft.write_bytes(b"classes")
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        first.keep(process)
    second = find_archive(java, tmp_path)
    assert second is not None
    assert second.draft is None
    assert "SharedArchiveFile" in " ".join(second.java_options)
    other = find_archive(Java(home=Path("/other"), version=17, origin="test"), tmp_path)
    assert other is not None
    assert other.draft is not None, "another Java needs its own"
