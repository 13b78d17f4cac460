# SPDX-License-Identifier: Apache-2.0
"""One protection taken away at a time, and the world in which that breaks an invariant."""

from __future__ import annotations

from tests.model.world import PK, World
from tests.model.worlds import BASIC, COMPACTING, CUT, EQUALITY, FOREIGN, GROUPS, LEASED, PK_FOREIGN, RESYNC, ZOMBIES

Mutation = tuple[World, str]
"""(world, names of the rules that are off)"""

MUTATIONS: dict[str, Mutation] = {
    "token check and lease check": (BASIC, "token_check lease_check"),
    "token check, fencing while leased": (BASIC, "token_check fence_idle"),
    "offset equality, beside a Flink job, token = round id": (BASIC._replace(flink=1), "offset_check any_token"),
    "token check and offset equality": (BASIC._replace(gc=""), "token_check offset_check"),
    "exact head": (BASIC, "exact_head assert_tag"),
    "contiguous prefix": (BASIC, "prefix"),
    "find round id first": (BASIC, "find_first"),
    "find round id first, and token and offset checks": (
        BASIC._replace(gc=""),
        "find_first token_check offset_check",
    ),
    "fencing snapshot": (BASIC, "fence"),
    "fence before listing": (BASIC, "fence_then_list"),
    "fencing snapshot, sweep": (BASIC._replace(gc="sweep"), "fence"),
    "resolve again": (PK_FOREIGN._replace(slots=1, tiered=1, rounds=1), "re_resolve"),
    "resolve again, beside our compaction": (COMPACTING._replace(gc=""), "re_resolve"),
    "tag": (FOREIGN, "tag assert_tag"),
    "carrying deletes over": (COMPACTING._replace(gc=""), "carry_over"),
    "carrying deletes over again": (COMPACTING._replace(gc=""), "carry_again"),
    "compaction fenced": (COMPACTING, "compaction_fenced"),
    "compaction: exact head": (COMPACTING._replace(gc=""), "exact_head assert_tag"),
    "compaction: inputs still live, beside its zombie": (ZOMBIES._replace(gc=""), "inputs_live"),
    "compaction: inputs still live, beside a foreign one": (
        COMPACTING._replace(fcompact=1, gc=""),
        "inputs_live",
    ),
    "compaction: a group dropped alone": (GROUPS._replace(gc=""), "drop_alone"),
    "compaction: tries again on a moved head": (COMPACTING._replace(gc=""), "compaction_rebases"),
    "compaction: token copied": (COMPACTING._replace(gc=""), "copy_token"),
    "compaction: offsets of the head it commits on": (COMPACTING._replace(gc=""), "copy_head"),
    "compaction: sequence number of the planned snapshot": (EQUALITY, "planned_sequence"),
    "compaction: no older sequence number": (EQUALITY, "not_older_sequence"),
    "compaction: intent closed only when it landed": (COMPACTING._replace(first=1), "close_landed"),
    "stopping at a cut": (CUT._replace(gc=""), "cut_stops"),
    "looking for cuts after the log's ends": (CUT._replace(gc=""), "cut_after_ends"),
    "leased commits: one at a time": (LEASED, "leased_alone"),
    "leased commits: a refused one looks for itself": (LEASED._replace(late=True), "refused_find"),
    "resync: done when every bucket was compared": (RESYNC._replace(slots=1, rounds=1), "resync_remains"),
    "resync: the lake says that it is not done": (RESYNC._replace(slots=1, dbloss=1), "resync_marked"),
    "resync: ... for a report that never came": (RESYNC._replace(slots=1, kills=1), "resync_marked"),
    "resync: a compaction copies that": (
        RESYNC._replace(slots=1, rounds=1, compactions=1, dbloss=1),
        "resync_copied",
    ),
    "resync: a second one is not served by a round of the first": (
        RESYNC._replace(slots=1, rounds=1, fdelete=2, resyncs=2),
        "resync_anew",
    ),
    "fencing while a compaction runs": (COMPACTING, "fence_spares_compaction"),
    "fencing snapshot, beside a compaction": (COMPACTING, "fence"),
}
"""Each must be caught."""

COVERED: dict[str, Mutation] = {
    "token check": (BASIC, "token_check"),
    "offset equality": (BASIC, "offset_check"),
    "lease check": (BASIC, "lease_check"),
    "lease check of a compaction": (ZOMBIES, "lease_check"),
}
"""Alone these break nothing: another protection stands behind each. They save work that would be thrown away."""

READINGS: dict[str, Mutation] = {
    "stop short decided in pass two": (World(PK, pk=True, first=2, rounds=2), "trim_short"),
    "late coordinator commit overwrites": (BASIC, "coord_monotone"),
    "tag unreachable because others expired the snapshots between": (FOREIGN, "broken_chain"),
    "commit asserts main only, rollback returns main to the old head": (BASIC._replace(rollback=1), "assert_tag"),
    "unknown and not found counts as lost": (BASIC._replace(late=True), "resend_unknown"),
    "find looks at retained snapshots only": (BASIC._replace(expiry=True), "find_ledger"),
    "orphan removal closes the intent": (BASIC, "keep_intent"),
    "only snapshots with our table id count": (BASIC._replace(flink=1), "any_offsets"),
    "expiry and leases do not exclude each other": (COMPACTING._replace(readers=1, gc=""), "expiry_marks"),
    "intents are lost with the database": (BASIC._replace(dbloss=1), "durable_intents"),
    "fence does not tell the coordinator": (
        BASIC._replace(compactions=1, expiry=True, rounds=1),
        "fence_adopts",
    ),
    "fence ignores a rollback": (BASIC._replace(rollback=1), "fence_stops"),
    "fence while another round runs": (BASIC, "fence_idle"),
    "a loser plans again under its old round id": (BASIC, "new_round_id"),
}
"""Behaviours that a reader of design.md could take for allowed. Each must be caught."""

ENVIRONMENT: dict[str, World] = {
    "a paused Flink job": BASIC._replace(flink=1, flink_zombie=True),
    "the Flink job does not tag, others expire": FOREIGN._replace(flink=1, fcompact=1),
    "foreign remove_orphan_files during a pause": BASIC._replace(forphan=1, rounds=1),
}
"""What nobody can prevent, because the other party checks nothing: found by the model, named by verify."""

DEEP = frozenset(
    {
        "token check, fencing while leased",
        "late coordinator commit overwrites",
        "commit asserts main only, rollback returns main to the old head",
        "find looks at retained snapshots only",
        "fence ignores a rollback",
        "a loser plans again under its old round id",
        "resync: a compaction copies that",
    }
)
"""Their counterexamples lie behind more than 15,000 states: left to `make soak`."""
