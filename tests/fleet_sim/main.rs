//! A fleet in one thread: nodes, Redis and clients take steps in any order, faults happen, and at the end every promise
//! must hold.
//!
//! The decisions are those of the program: the simulator drives `replication::rules`, `replication::follow`,
//! `replication::outbox`, `replication::lease` and `services::writer::planner` as its threads do. Everything below is a
//! model: the store of a node, with a power loss that may take some of it (`store.rs`); Redis with lagging replicas,
//! dumps, trimmed streams (`stream.rs`) and clocks that jump (`redis.rs`); and commands that are lost, late, or sent twice
//! (`world.rs`). A node has three threads that send orders to its writer, each in its own order: one asks Redis for
//! clients, one follows, delivers and compares (`follower.rs`), and one looks up unknown codes. The writer takes from
//! them in any order (`node.rs`).
//!
//! A schedule is one run of some hundred steps, all of them chosen by a seed. Then everything is well again, and within
//! a bound all must come to rest (`rest.rs`). The promises (`ledger.rs`):
//!
//! 1. No code has two acknowledged links at once, and no counter value is given twice.
//! 2. No acknowledged link is lost without a delete. Of a slug that Redis forgot, and that somebody else claimed then,
//!    one may be, and a conflict is reported.
//! 3. All nodes end with what Redis has, and nothing waits for anything.
//! 4. What was deleted stays deleted, and what was refused does not turn up.
//! 5. A node whose client was told that a link is gone does not show it again.
//! 6. A link that was changed does not expire: here, a change is that its end was moved.
//! 7. No node answers 404 for an acknowledged link (`absence.rs`, `heartbeats.rs`).
//! 8. Nodes of two versions (`versions.rs`): a node does not serve a state after it has read a newer one that it cannot
//!    decode. After the upgrade it has all states. While all nodes are heard of and none goes back to the older version,
//!    each of them can decode everything.
//!
//! That this would be seen is shown for each thing that keeps the promises by leaving it out (`guards.rs`). Schedules that
//! are not drawn, but written down, are in `fixed.rs`.
//!
//! Membership and take-overs have a world of their own with their own promises (`members.rs`): `replication::members`
//! decides, clocks run fast or slow, and processes stand still anywhere. So have the counts of visits (`counts.rs`):
//! `visits::batches` and `visits::count_exchange` decide. So has the retention (`retention.rs`): states expire in Redis,
//! nodes lag behind, and join by a copy. So have recycled codes (`recycling.rs`): links expire, and their codes wait for
//! all members. So have limits on visits (`grants.rs`): `visits::grants` decides, and servers lose what they granted. So
//! have two sites (`sites.rs`): their relays bring states across. An hour of separation (`sites/separation.rs`) adds
//! states that expire meanwhile, and visits. And so has a Redis that comes back empty while nodes are away (`epochs.rs`):
//! `replication::known_members` decides.
//!
//! The worlds have models of Redis of their own, because they lose writes in different ways. A replica of states lags
//! behind by commands, and entries get their names from clocks that jump (`redis.rs`). A replica of visit counts is a copy
//! of whole streams, whose entries have the numbers of their origins (`counts/redis.rs`). Replicas of leases and links are
//! copies of one age (`members.rs`). What the models have in common is in the program: `replication::rules` and
//! `replication::lease`.
//!
//! The settings of a run are in `schedules.rs`.
//!
//! The model leaves out:
//!
//! * A command that comes so late that the code has had two other changes in between, or from a server that is gone.
//! * Two entries of one stream with the same name and the same text, made before and after a loss.
//! * Two losses so close to each other that no read of a stream falls between them and a piece of a comparison.
//! * Losses of the counter by which more values are lost unseen than the margin leaves out, and a fleet whose nodes
//!   have never heard of any counter.
//! * That a slug is claimed, deleted and claimed again after a loss before anybody comes by who knows of the lost link,
//!   or that a second loss brings back what was there before a first one: then its loss may go unreported.
//! * Changes of links; imports; damaged records; full disks.
//! * Of members: clocks that stand still while their machine does, as of a virtual machine that was stored and is run
//!   again later, or that run apart by more than a twentieth each; servers with old dumps; and take-overs together with deletes, slugs and whole comparisons.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests, which the lint does not take for tests"
)]

mod absence;
mod adapter;
mod codes;
mod counts;
mod epochs;
mod faults;
mod fixed;
mod follower;
mod grants;
mod guards;
mod heartbeats;
mod ledger;
mod members;
mod node;
mod recycling;
mod redis;
mod requests;
mod rest;
mod retention;
mod rng;
mod schedules;
mod sites;
mod store;
mod stream;
mod trace;
mod versions;
mod world;
mod writer;

use guards::Guard;
use schedules::{must_hold, must_matter};
use world::World;

/// Schedules of the main world in one test run, unless the environment sets another number: about a minute on two cores
/// beside other tests.
const SCHEDULES: u64 = 60_000;

/// Schedules of the world of members, which take about 15 seconds on two cores beside other tests.
const MEMBERS_SCHEDULES: u64 = 30_000;

/// Schedules of the world of counts.
const COUNTS_SCHEDULES: u64 = 15_000;

/// Schedules of the world of the retention.
const RETENTION_SCHEDULES: u64 = 30_000;

/// Schedules of the world of two sites.
const SITES_SCHEDULES: u64 = 20_000;

/// Schedules of an hour of separation.
const SEPARATION_SCHEDULES: u64 = 4_000;

/// Schedules of the world of recycled codes.
const RECYCLING_SCHEDULES: u64 = 20_000;

/// Schedules of the world of a Redis that comes back empty.
const EPOCHS_SCHEDULES: u64 = 20_000;

/// Schedules of the world of visit limits, which are short.
const GRANTS_SCHEDULES: u64 = 20_000;

#[test]
fn guarantees_hold_in_every_schedule() {
    must_hold::<World>(SCHEDULES);
}

#[test]
fn membership_guarantees_hold_in_every_schedule() {
    must_hold::<members::World>(MEMBERS_SCHEDULES);
}

#[test]
fn visits_count_once_in_every_schedule() {
    must_hold::<counts::World>(COUNTS_SCHEDULES);
}

#[test]
fn retention_guarantees_hold_in_every_schedule() {
    must_hold::<retention::World>(RETENTION_SCHEDULES);
}

#[test]
fn two_sites_agree_in_every_schedule() {
    must_hold::<sites::World>(SITES_SCHEDULES);
}

#[test]
fn sites_agree_after_an_hour_of_separation() {
    must_hold::<sites::separation::World>(SEPARATION_SCHEDULES);
}

#[test]
fn recycled_codes_have_one_link_in_every_schedule() {
    must_hold::<recycling::World>(RECYCLING_SCHEDULES);
}

#[test]
fn emptied_redis_denies_no_link_in_any_schedule() {
    must_hold::<epochs::World>(EPOCHS_SCHEDULES);
}

#[test]
fn visit_limits_hold_in_every_schedule() {
    must_hold::<grants::World>(GRANTS_SCHEDULES);
}

macro_rules! guards {
    ($world:ty, $($name:ident: $guard:path,)*) => {
        $(
            #[test]
            fn $name() {
                must_matter::<$world>($guard);
            }
        )*
    };
}

guards! {
    World,
    a_code_is_given_only_if_nobody_has_it: Guard::InsertIfAbsent,
    the_outbox_waits_for_the_echo: Guard::Echo,
    what_was_passed_is_brought_again: Guard::Passed,
    a_gap_is_noticed: Guard::Gap,
    another_entry_of_the_same_name_is_noticed: Guard::Check,
    a_comparison_brings_what_redis_lacks: Guard::Upwards,
    a_counter_is_raised_to_the_floor: Guard::Floor,
    another_server_leaves_a_margin: Guard::Margin,
    a_lease_waits_for_a_replica: Guard::Wait,
    what_is_undelivered_is_not_overwritten: Guard::Undelivered,
    an_acknowledgement_waits_for_the_sync: Guard::Sync,
    a_doubtful_slug_is_withdrawn: Guard::Withdraw,
    a_link_expires_as_it_is_known: Guard::Exact,
    a_mark_is_durable_before_its_values_are_used: Guard::Mark,
    redis_cannot_deny_a_code_that_may_be_leased: Guard::Alone,
    redis_cannot_deny_what_it_may_have_lost: Guard::Settled,
    others_may_have_leased_since: Guard::Bound,
    a_slug_in_the_form_of_a_code_is_in_the_streams: Guard::Followed,
    a_node_confirms_once_redis_has_its_links: Guard::Empty,
    a_node_confirms_the_time_before_it_heard: Guard::Heard,
    undecoded_entry_holds_its_place: Guard::Place,
    mark_outlives_the_process: Guard::Marked,
    marked_codes_are_read_again: Guard::Again,
    state_of_a_marked_code_is_delivered: Guard::Kept,
    lost_text_of_a_marked_code_is_restored: Guard::Restored,
    nodes_write_what_all_of_them_read: Guard::Agreed,
    undecoded_state_is_not_missing: Guard::Unread,
}

guards! {
    members::World,
    a_tenth_is_left_for_clocks: members::Guard::Tenth,
    a_node_that_has_come_back_is_left_alone: members::Guard::Unchanged,
    after_an_outage_all_are_watched_anew: members::Guard::Anew,
    what_was_lost_stays_lost: members::Guard::Lost,
    a_silence_ends_with_the_answer: members::Guard::Answer,
    a_process_goes_by_what_was_written_down: members::Guard::Heard,
    nothing_is_written_down_of_who_came_back_too_late: members::Guard::Fresh,
    a_lease_waits_for_a_heartbeat: members::Guard::Begun,
    who_came_back_too_late_throws_away: members::Guard::GiveUp,
    what_redis_has_is_not_used_again: members::Guard::Used,
    two_heartbeats_at_one_time_differ: members::Guard::Number,
}

guards! {
    retention::World,
    claim_brings_the_state_of_its_node: retention::Guard::Mine,
    node_that_is_behind_refuses_changes: retention::Guard::Behind,
    node_that_is_behind_does_not_compare: retention::Guard::Compare,
    nothing_is_missing_on_a_node_that_is_behind: retention::Guard::Missing,
    earlier_state_that_returns_is_answered: retention::Guard::Returned,
    node_that_began_too_late_stays_behind: retention::Guard::Began,
    last_entry_before_the_retention_stays: retention::Guard::Kept,
}

guards! {
    sites::World,
    sites_decide_alike_between_equal_revisions: sites::Guard::Tie,
    state_that_has_changed_is_not_replaced: sites::Guard::Unchanged,
    position_is_stored_after_its_states: sites::Guard::Stored,
    position_is_held_while_a_failover_may_take_states: sites::Guard::Held,
    all_states_are_offered_after_a_gap: sites::Guard::Gap,
    relay_notices_that_its_notes_are_lost: sites::Guard::Owner,
    pass_under_way_does_not_count: sites::Guard::Pass,
}

guards! {
    sites::separation::World,
    gap_in_which_states_expired_is_noted: sites::Guard::Lack,
    gap_lasts_until_all_states_are_compared: sites::Guard::Compared,
    gap_in_the_first_comparison_is_noted: sites::Guard::Contact,
    site_that_may_lack_states_has_not_read_all: sites::Guard::ReadOfPass,
    visit_of_another_site_counts_once: sites::Guard::VisitOnce,
}

guards! {
    recycling::World,
    codes_wait_until_every_member_has_passed_them: recycling::Guard::Passed,
    node_uses_its_own_releases_alone: recycling::Guard::Own,
    tombstone_counts_while_the_stream_is_followed: recycling::Guard::Followed,
}

guards! {
    epochs::World,
    emptied_redis_has_another_epoch: epochs::Guard::Epoch,
    members_are_known_after_a_restart: epochs::Guard::Recorded,
    returned_member_counts_once_it_has_passed: epochs::Guard::Passed,
}

guards! {
    grants::World,
    lost_grants_wait_for_all_reports: grants::Guard::Reports,
    another_server_may_lack_grants: grants::Guard::Server,
    replaced_server_grants_nothing: grants::Guard::Later,
    process_knows_the_nodes_of_an_earlier_one: grants::Guard::Holders,
    totals_of_a_stopped_node_are_stored: grants::Guard::Handover,
    others_hear_of_a_process_before_its_grants: grants::Guard::Introduction,
    copy_of_a_store_waits_for_its_node: grants::Guard::Copied,
}

guards! {
    counts::World,
    batch_with_a_known_number_is_skipped: counts::Guard::Once,
    batch_behind_a_gap_waits: counts::Guard::Gap,
    batch_is_published_after_its_sync: counts::Guard::Synced,
    logs_of_the_last_process_are_synced: counts::Guard::Recovered,
    mark_of_a_fold_has_the_numbers_of_its_batches: counts::Guard::Reached,
    rows_count_after_their_mark: counts::Guard::Mark,
    older_copy_is_another_origin: counts::Guard::Renew,
    rows_of_a_snapshot_count_after_its_end: counts::Guard::Building,
    snapshot_replaces_what_is_in_memory: counts::Guard::Replaced,
    forgotten_origins_are_noted_by_others: counts::Guard::Lagging,
    publisher_without_an_answer_compares: counts::Guard::Unsure,
    missing_batch_keeps_no_other_origin_waiting: counts::Guard::Turns,
    slot_is_free_once_its_rows_are_removed: counts::Guard::Emptied,
}
