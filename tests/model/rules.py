# SPDX-License-Identifier: Apache-2.0
"""The protections of the protocol, one switch each. `Rules()` is the design; a mutation turns some of them off."""

from __future__ import annotations

from typing import NamedTuple


class Rules(NamedTuple):
    token_check: bool = True
    """A round's commit needs the token that it was planned on."""
    offset_check: bool = True
    """A round's commit needs head offset == round start, per bucket."""
    exact_head: bool = True
    """A commit is conditional on exactly the head that was read."""
    assert_tag: bool = True
    """... and on the tag that was read."""
    prefix: bool = True
    """Only the contiguous prefix of sub-splits counts."""
    find_first: bool = True
    """A conflict or unknown looks for its own round id before anything else."""
    find_ledger: bool = True
    """... in the coordinator's ledger too."""
    resend_unknown: bool = True
    """Unknown and not found: send the same request again until it is answered."""
    re_resolve: bool = True
    """A moved head means resolving again."""
    tag: bool = True
    """Each commit moves the tag."""
    lease_check: bool = True
    """The lease is checked before the lake commit, of a round and of a compaction."""
    leased_alone: bool = True
    """A catalog that checks the lease itself takes one leased commit of a table at a time, from check to report."""
    refused_find: bool = True
    """A leased commit that was sent before and is refused now looks for its own round id before it counts as lost."""
    trim_short: bool = True
    """A short split's replaced rows are only those of records below its stop."""
    coord_monotone: bool = True
    """A late coordinator commit never moves the committed offset back."""
    new_round_id: bool = True
    """A loser that plans again does so as a new round, with a new intent."""
    broken_chain: bool = True
    """Expired ancestors between main and tag are no rollback if the rows are the same."""
    any_token: bool = True
    """A snapshot without a round id still changes the token (its snapshot id stands in)."""
    any_offsets: bool = True
    """Every snapshot with an offset map counts, not just those with our table id."""

    fence: bool = True
    """Orphan removal fences before it deletes."""
    fence_then_list: bool = True
    """... and lists referenced files after the fence."""
    fence_stops: bool = True
    """... and stops on a rolled back table, like a round does."""
    fence_adopts: bool = True
    """... and tells the coordinator of the newest round before it moves the tag."""
    fence_idle: bool = True
    """... and fences only while no round holds the table's lease."""
    fence_spares_compaction: bool = True
    """... nor a compaction."""
    keep_intent: bool = True
    """An intent outlives the orphan removal that served it."""
    durable_intents: bool = True
    """Intents outlive the coordinator's database."""
    expiry_marks: bool = True
    """Expiry first marks its snapshots where leases are kept; a marked one is not leased."""

    compaction_fenced: bool = True
    """A compaction commits only on the fence number it was planned on, and its orphans wait for a higher one."""
    carry_over: bool = True
    """A compaction carries over deletes that arrived meanwhile."""
    carry_again: bool = True
    """... and does so anew on every head it tries to commit on."""
    inputs_live: bool = True
    """A group is committed only while all its inputs are live."""
    drop_alone: bool = True
    """A group that lost an input is left out alone."""
    compaction_rebases: bool = True
    """A compaction whose head moved tries again on the new one."""
    close_landed: bool = True
    """A compaction's intent is closed once it is known to have landed: its leftovers then need no fence."""
    copy_token: bool = True
    """A compaction copies the head's token, so that rounds do not take it for a round."""
    copy_head: bool = True
    """... and the offsets of the head it commits on, not of the one it was planned on."""
    planned_sequence: bool = True
    """A compaction's file gets the sequence number of the planned snapshot: younger equality deletes still apply."""
    not_older_sequence: bool = True
    """... and not an older one: equality deletes that were applied must not apply again."""

    resync_remains: bool = True
    """A resync goes on until each of its buckets was compared, not until its first commit."""
    resync_marked: bool = True
    """... and the lake says so until then, for whoever does not hear the round's report."""
    resync_copied: bool = True
    """... in every commit of ours that comes meanwhile."""
    resync_anew: bool = True
    """A resync that is asked for while another one is under way is not served by a round of that one."""

    cut_stops: bool = True
    """A plan goes no further than a cut that the lake has not reached."""
    cut_after_ends: bool = True
    """... and looks for cuts after it has seen the log's ends."""

    def without(self, names: str) -> Rules:
        return self._replace(**dict.fromkeys(names.split(), False))
