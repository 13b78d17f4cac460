# SPDX-License-Identifier: Apache-2.0
"""A tiering job: wires session, heartbeat, dispatcher and kinds of work together, and ends cleanly."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from lakeward import __version__
from lakeward.errors import LakewardError, LeaseLost, SplitFailed, to_wire
from lakeward.lake.orphans import OrphanOptions
from lakeward.model import Clock, JobName, RoundOwner, SystemClock, new_instance_id, new_round_id
from lakeward.protocol.heartbeat import HandedOut, TableFailed
from lakeward.spi import HotPlugin, Plugin, PluginCache
from lakeward.tiering.job.enumerate import Enumerator, JobIdentity
from lakeward.tiering.job.formats import openable_formats
from lakeward.tiering.job.jobname import hold_name
from lakeward.tiering.job.metrics import JobMetrics, MetricsServer
from lakeward.tiering.job.observe import RoundObserver
from lakeward.tiering.job.orphans import OrphanDuty
from lakeward.tiering.job.session import SessionOptions, check_location, is_same_machine, load_hudi, open_session
from lakeward.tiering.job.warmup import WarmUp
from lakeward.tiering.work.control import RoundControl
from lakeward.tiering.work.dispatch import Dispatcher
from lakeward.tiering.work.kinds import load_runner
from lakeward.tiering.work.options import TieringOptions
from lakeward.tiering.work.runner import JobWorld, LeasedWork, RoundEnd, meet

log = logging.getLogger("lakeward.tiering")

SIGNAL_POLL_S = 1.0
"""A signal that arrives just before a wait does not end it: its handler runs with the next instruction."""

StartThread = Callable[[Callable[[], None], str], None]


class TieringJob:
    """One running job. `run` blocks until the job is stopped. Tests can replace its parts."""

    def __init__(
        self,
        options: TieringOptions,
        hot: HotPlugin,
        plugins: PluginCache,
        dispatcher: Dispatcher,
        *,
        name: JobName,
        start_thread: StartThread,
    ) -> None:
        self._options, self._start_thread, self._dispatcher = options, start_thread, dispatcher
        self._clock: Clock = SystemClock()
        self._flags = Path(tempfile.mkdtemp(prefix="lakeward-flags-")) if is_same_machine(options.master) else None
        self._stopping = threading.Event()
        self._broken: LakewardError | None = None
        self.metrics = JobMetrics()
        self.on_round: Callable[[LeasedWork, RoundEnd], None] = lambda _work, _end: None
        """Called from the threads of works, with each end."""

        self.observer = RoundObserver.of(options, hot.store())
        self._server = None if options.metrics_port is None else MetricsServer(self.metrics, options.metrics_port)
        self.world = JobWorld(
            hot=hot,
            plugins=plugins,
            dispatcher=dispatcher,
            clock=self._clock,
            options=options,
            check_location=self._check_location,
            start_thread=start_thread,
        )
        self.identity = JobIdentity(
            name=name,
            instance=new_instance_id(),
            pool=options.pool,
            slots=options.slots,
            host=socket.gethostname(),
            version=__version__,
            metrics_url=None if self._server is None else self._server.url,
            formats=openable_formats(),
        )
        max_age_ms = int(options.commit.max_age_s * 1000)
        self.duty = OrphanDuty(hot, plugins, self.world.clock, OrphanOptions(max_age_ms=max_age_ms))
        self.enumerator = Enumerator(
            coordinator=hot.coordinator(),
            identity=self.identity,
            start=self._start_work,
            new_work=self._new_work,
            gather=lambda works: meet(works, self.world),
            interval_s=options.heartbeat_s,
            on_end=self._note_end,
        )

    # ---- life ----------------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Until `stop` is called. Raises `Superseded` when another instance took the name, `SplitFailed` when Spark is
        gone.
        """
        beat = threading.Thread(target=self._beat, name="lakeward-heartbeat", daemon=True)
        beat.start()
        log.info("job %s serves pool %s with %d slots", self.identity.name, self.identity.pool, self.identity.slots)
        while not self._stopping.wait(SIGNAL_POLL_S):
            pass
        if self.enumerator.superseded is None:
            self._drain()
            self.enumerator.stop()
            beat.join(self._options.leave_limit_s)
            leaving = threading.Thread(target=self.enumerator.leave, name="lakeward-leave", daemon=True)
            leaving.start()
            leaving.join(self._options.leave_limit_s)
        self._close()
        if ended_by := self.enumerator.superseded or self._broken:
            raise ended_by

    def stop(self) -> None:
        """Safe to repeat, and to call from any thread; not from a signal handler, which may have interrupted the very
        wait that this ends (`run_until_signal` takes a thread)."""
        self._stopping.set()

    def _beat(self) -> None:
        try:
            self.enumerator.run()
        finally:
            self._stopping.set()

    def _drain(self) -> None:
        """Running rounds end by themselves, then at a boundary, then are given back: all within the grace."""
        grace = self._options.shutdown_grace_s
        self.enumerator.drain()
        if self.enumerator.wait_idle(grace * 0.4):
            return
        for work in self.enumerator.works():
            work.control.force()
        if self.enumerator.wait_idle(grace * 0.4):
            return
        for work in self.enumerator.works():
            work.control.leave(self._left(work))
        self.enumerator.wait_idle(grace * 0.2)

    def _left(self, work: LeasedWork) -> LakewardError:
        return LeaseLost(
            table=str(work.handed.path),
            round_id=work.round_id,
            job=self.identity.name,
            reason="the job is shutting down",
        )

    def _close(self) -> None:
        self._dispatcher.close()
        self.observer.close()
        if self._server is not None:
            self._server.close()
        if self._flags is not None:
            shutil.rmtree(self._flags, ignore_errors=True)

    # ---- works ---------------------------------------------------------------------------------------------------
    def _new_work(self, handed: HandedOut) -> LeasedWork:
        round_id = new_round_id()
        flag = None if self._flags is None else self._flags / round_id
        owner = RoundOwner(job=self.identity.name, instance=self.identity.instance, epoch=handed.epoch)
        return LeasedWork(handed=handed, owner=owner, round_id=round_id, control=RoundControl(flag))

    def _start_work(self, work: LeasedWork) -> None:
        handed = work.handed
        try:
            self._start_thread(lambda: self._run_work(work), f"lakeward-{handed.kind}-{handed.path}")
        except RuntimeError as error:  # no more threads: this table's round fails, the job goes on
            work.leave()
            failed = SplitFailed(table=str(handed.path), split="thread", kind="RuntimeError", text=str(error))
            self.enumerator.end(
                work,
                TableFailed(
                    table_id=handed.table_id,
                    epoch=handed.epoch,
                    error=to_wire(failed),
                    side=handed.side,
                    kind=handed.kind,
                ),
            )

    def _run_work(self, work: LeasedWork) -> None:
        began_s = time.time()
        end = load_runner(work.handed.kind).run(work, self.world)
        self.enumerator.end(work, end)
        self.on_round(work, end)
        self.observer.note(work, end, began_s)
        self.duty.after_round(work.handed.path, end)

    def _note_end(self, end: RoundEnd) -> None:
        self.metrics.note(end)
        if isinstance(end, TableFailed) and not end.given_back and not self._dispatcher.is_alive():
            self._broken = SplitFailed(
                table="all", split="Spark", kind="Spark", text="the Spark application has ended; start the job again"
            )
            self.stop()
        if isinstance(end, TableFailed):
            log.log(
                logging.INFO if end.given_back else logging.WARNING,
                "%s round %s: %s",
                end.kind,
                end.round_id,
                end.error.get("message"),
            )

    def _check_location(self, lake: str, location: str) -> None:
        check_location(lake, location, self._options.master)


def run_job(options: TieringOptions, started: Callable[[TieringJob], None] = lambda _job: None) -> None:
    """`lakeward tier`: starts Spark and the job, until SIGTERM or Ctrl-C; `started` is called before its first beat.
    Raises `Superseded` and what a wrong start raises.
    """
    hudi = load_hudi(options.pool)
    warm_up = WarmUp(options.hot).start()
    session = open_session(
        SessionOptions(
            master=options.master, conf=options.spark, cache_dir=options.cache_dir, hot=options.hot, hudi=hudi
        )
    )
    try:
        from lakeward.tiering.job.sparkdispatch import SparkDispatcher

        context = session.spark.sparkContext
        options = replace(options, master=str(context.master))  # with spark-submit it is not ours to say
        warm_up.finish(context, start_inheritable)
        plugins = PluginCache()
        hot = plugins.hot(Plugin(name=options.hot, options=dict(options.hot_options)))
        dispatcher = SparkDispatcher(context, start_inheritable)
        with hold_name(options.name, options.cache_dir) as held:
            job = TieringJob(options, hot, plugins, dispatcher, name=held.name, start_thread=start_inheritable)
            started(job)
            if session.is_submitted:
                stop_with_parent(job.stop)
            run_until_signal(job)
    finally:
        session.close()


def start_inheritable(target: Callable[[], None], name: str) -> None:
    """A thread whose Spark settings are its own, and whose JVM twin ends with it."""
    from pyspark import InheritableThread

    thread = InheritableThread(target=target, name=name)
    thread.daemon = True
    thread.start()


def stop_with_parent(stop: Callable[[], None], poll_s: float = 1.0) -> None:
    """Under spark-submit the JVM is the parent process, and ending the job ends the JVM: without it there is no Spark,
    so the process exits."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(poll_s)
        log.warning("spark-submit is gone: the job ends")
        stop()

    threading.Thread(target=watch, name="lakeward-parent", daemon=True).start()


def run_until_signal(job: TieringJob) -> None:
    """SIGTERM and Ctrl-C end the job cleanly. Called from the main thread."""

    def stop(*_: object) -> None:
        threading.Thread(target=job.stop, name="lakeward-stop", daemon=True).start()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        job.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
