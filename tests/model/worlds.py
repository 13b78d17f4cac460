# SPDX-License-Identifier: Apache-2.0
"""The worlds that are searched with every protection on: no invariant may break in any of them."""

from __future__ import annotations

from tests.model.world import LOG, LOG2, PK, PK2, World

BASIC = World(LOG, first=2, rounds=2)
FOREIGN = BASIC._replace(fcompact=2, expiry=True)
PK_FOREIGN = World(PK, pk=True, first=2, rounds=2, fcompact=1, expiry=True)
COMPACTING = World(PK, pk=True, tiered=1, first=2, slots=1, rounds=1, compactions=1)
ZOMBIES = COMPACTING._replace(compactions=2, compactors=2)
GROUPS = World(PK2, pk=True, tiered=1, first=1, slots=1, rounds=1, compactions=1, frewrite=1)
CUT = World(LOG, first=1, rounds=2, cuts=1)
RESYNC = World(PK2, pk=True, tiered=1, first=1, rounds=2, fdelete=1, resyncs=1, gc="")
LEASED = BASIC._replace(leased=True)
EQUALITY = COMPACTING._replace(flink=1, gc="")

WORLDS = {
    "log table, two jobs, zombies, lost answers": BASIC,
    "log table, late requests": BASIC._replace(late=True),
    "log table, kills": BASIC._replace(kills=1),
    "log table, two buckets": World(LOG2, first=1, rounds=2),
    "log table, 2 foreign compactions, foreign expiry": FOREIGN,
    "PK table, foreign compaction and expiry": PK_FOREIGN,
    "PK table, late requests, foreign compaction": World(PK, pk=True, first=2, rounds=2, fcompact=1, late=True),
    "foreign rollback, expiry": BASIC._replace(rollback=1, fcompact=1, expiry=True),
    "foreign rollback, late requests": BASIC._replace(rollback=1, late=True),
    "coordinator database lost": BASIC._replace(dbloss=1, expiry=True),
    "a Flink tiering job beside ours": BASIC._replace(flink=1),
    "orphans by sweep, compaction, late requests": BASIC._replace(gc="sweep", compactions=1, late=True),
    "orphans by sweep, database lost without intents, foreign expiry": BASIC._replace(
        gc="sweep", dbloss=1, expiry=True
    ),
    "read lease against our expiry and compaction": BASIC._replace(slots=1, readers=1, compactions=1),
    "log table, three rounds": World(LOG, first=1, rounds=3),
    "PK table, three rounds, foreign compaction, no orphan removal": World(
        PK, pk=True, first=1, rounds=3, fcompact=1, gc=""
    ),
    "leased commits, two jobs, zombies, lost answers": LEASED,
    "leased commits, late requests": LEASED._replace(late=True),
    "leased commits, kills": LEASED._replace(kills=1),
    "leased commits, foreign rollback, expiry": LEASED._replace(rollback=1, fcompact=1, expiry=True),
    "leased commits, PK table, late requests, foreign compaction": World(
        PK, pk=True, first=2, rounds=2, fcompact=1, late=True, leased=True
    ),
    "leased commits, coordinator database lost": LEASED._replace(dbloss=1, expiry=True),
    "leased commits beside a compaction": COMPACTING._replace(slots=2, rounds=2, leased=True),
    "leased commits of a resync, kills": RESYNC._replace(slots=1, kills=1, leased=True),
    "a cut, two jobs, zombies, lost answers": CUT,
    "a cut, late requests": CUT._replace(late=True),
    "a cut of two buckets, kills": CUT._replace(log=LOG2, slots=1, kills=1),
    "two cuts, PK table, foreign compaction": World(PK, pk=True, first=1, slots=1, rounds=3, cuts=2, fcompact=1, gc=""),
    "a cut beside a compaction": COMPACTING._replace(cuts=1, rounds=2),
    "PK table, a round and a compaction at once": COMPACTING,
    "PK table, two rounds, two jobs and a compaction at once": COMPACTING._replace(slots=2, rounds=2),
    "compaction and its zombie": ZOMBIES,
    "compaction and its zombie, late requests": ZOMBIES._replace(late=True),
    "compaction, kills": COMPACTING._replace(kills=1),
    "compaction beside a foreign one and expiry": COMPACTING._replace(fcompact=1, expiry=True),
    "compaction in groups, one bucket rewritten by others": GROUPS,
    "compaction, foreign rollback": COMPACTING._replace(rollback=1),
    "compaction, coordinator database lost": COMPACTING._replace(dbloss=1),
    "compaction, orphans by sweep": COMPACTING._replace(gc="sweep"),
    "compaction and a reader beside our expiry": COMPACTING._replace(readers=1),
    "compaction under equality deletes of a Flink job": EQUALITY,
    "compaction under equality deletes of a Flink job, two compactions": EQUALITY._replace(compactions=2),
    "resync of two buckets": RESYNC,
    "resync, kills": RESYNC._replace(slots=1, kills=1),
    "resync, late requests": RESYNC._replace(slots=1, late=True),
    "resync, coordinator database lost": RESYNC._replace(slots=1, dbloss=1),
    "resync, asked for twice": RESYNC._replace(slots=1, fdelete=2, resyncs=2),
    "resync beside our compaction": RESYNC._replace(slots=1, rounds=1, compactions=1),
    "resync, orphan removal": RESYNC._replace(slots=1, gc="intents"),
}
