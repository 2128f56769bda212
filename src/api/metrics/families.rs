//! What is measured: a table for what each core counts, and others for the node, its fleet and its apps. To add a metric is to
//! add a row.

use std::sync::atomic::{AtomicBool, Ordering};

use super::exposition::Kind;
use crate::apps::usage::App;
use crate::stats::{CoreStats, FleetStats, NodeStats};

/// A metric, and where its value comes from.
pub(super) struct Family<T: 'static> {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
    pub(super) value: fn(&T) -> f64,
}

const fn counter<T>(name: &'static str, help: &'static str, value: fn(&T) -> f64) -> Family<T> {
    Family { name, kind: Kind::Counter, help, value }
}

const fn gauge<T>(name: &'static str, help: &'static str, value: fn(&T) -> f64) -> Family<T> {
    Family { name, kind: Kind::Gauge, help, value }
}

fn flag(flag: &AtomicBool) -> f64 {
    f64::from(u8::from(flag.load(Ordering::Relaxed)))
}

/// What each core counts.
pub(super) const CORE: &[Family<CoreStats>] = &[
    counter("carom_redirects_total", "Requests answered with a redirect.", |core| core.redirects.get() as f64),
    counter("carom_misses_total", "Requests for codes that do not exist or are gone.", |core| core.misses.get() as f64),
    counter("carom_unavailable_total", "Requests for links that could not be read, or not in time.", |core| {
        core.unavailable.get() as f64
    }),
    counter("carom_throttled_total", "Requests of addresses that ask too often for what does not exist.", |core| {
        core.throttled.get() as f64
    }),
    counter("carom_bad_requests_total", "Requests refused before anybody looked at what they ask for.", |core| {
        core.bad_requests.get() as f64
    }),
    counter("carom_requests_timed_out_total", "Those of them, of HTTP/1.1, that took too long to come.", |core| {
        core.timed_out.get() as f64
    }),
    counter("carom_requests_too_long_total", "Those of them, of HTTP/1.1, whose head or body was too long.", |core| {
        core.too_long.get() as f64
    }),
    counter("carom_slow_requests_total", "Requests for the API and for pages.", |core| core.handed_over.get() as f64),
    gauge("carom_connections", "Open connections.", |core| core.connections.get() as f64),
    counter("carom_connections_accepted_total", "Connections accepted.", |core| core.accepted.get() as f64),
    counter("carom_connections_shed_total", "Connections closed as they came, because there were too many.", |core| {
        core.shed.get() as f64
    }),
    counter("carom_connections_evicted_total", "Idle connections closed to make room for others.", |core| {
        core.evicted.get() as f64
    }),
    counter("carom_connections_untrusted_total", "Connections with a PROXY header that may not send one.", |core| {
        core.untrusted.get() as f64
    }),
    counter("carom_tls_handshakes_total", "TLS handshakes that came to an end as they should.", |core| {
        core.handshakes.get() as f64
    }),
    counter("carom_tls_resumptions_total", "Handshakes that went on with a session of before.", |core| {
        core.resumptions.get() as f64
    }),
    counter("carom_tls_handshake_failures_total", "TLS handshakes that came to nothing.", |core| {
        core.handshake_failures.get() as f64
    }),
    gauge("carom_links", "Links in memory.", |core| core.links.get() as f64),
    gauge("carom_link_bytes", "Bytes of the codes and targets of links in memory.", |core| {
        core.link_bytes.get() as f64
    }),
    gauge("carom_map_bytes", "Bytes that the map takes for them.", |core| core.map_bytes.get() as f64),
    counter("carom_mesh_questions_total", "Look-ups sent to other cores.", |core| core.forwarded_out.get() as f64),
    counter("carom_mesh_answers_total", "Look-ups answered for other cores.", |core| core.forwarded_in.get() as f64),
    counter("carom_mesh_copy_hits_total", "Redirects to links of other cores from copies of them.", |core| {
        core.hot_hits.get() as f64
    }),
    counter("carom_mesh_doorbells_total", "Other cores woken for a message.", |core| core.doorbells.get() as f64),
    counter("carom_store_fetches_total", "Codes that were not in memory and were asked of the store.", |core| {
        core.fetches.get() as f64
    }),
    counter("carom_store_fetched_redirects_total", "Redirects whose link was not in memory.", |core| {
        core.fetched.get() as f64
    }),
    gauge("carom_codes_ready", "Codes that the core can give out at once.", |core| core.codes_remaining.get() as f64),
    gauge("carom_codes_segment_size", "Codes in the segment in use.", |core| core.segment_len.get() as f64),
    counter("carom_codes_segments_total", "Segments of codes that the core was given.", |core| {
        core.refills.get() as f64
    }),
    counter("carom_codes_segment_errors_total", "Segments that could not be made.", |core| {
        core.refill_errors.get() as f64
    }),
    counter("carom_codes_waits_total", "Creates that had to wait for a fresh code.", |core| {
        core.code_waits.get() as f64
    }),
    counter("carom_codes_wait_errors_total", "Creates that waited for a fresh code in vain.", |core| {
        core.code_wait_errors.get() as f64
    }),
    counter("carom_loop_turns_total", "Turns of the core's loop: requests by turns tell how busy it is.", |core| {
        core.turns.get() as f64
    }),
];

/// What is known of the node.
pub(super) const NODE: &[Family<NodeStats>] = &[
    gauge("carom_ready", "Whether all links are in memory and clients are let in.", |node| {
        flag(&node.ready) * (1.0 - flag(&node.draining))
    }),
    gauge("carom_draining", "Whether the node is on its way out.", |node| flag(&node.draining)),
    gauge("carom_store_writable", "Whether writes are taken.", |node| 1.0 - flag(&node.writes_refused)),
    counter("carom_store_updates_total", "Links created, changed and deleted.", |node| node.store_updates.get() as f64),
    counter("carom_store_reads_total", "Records read.", |node| node.store_selects.get() as f64),
    counter("carom_store_errors_total", "Reads and writes that failed.", |node| node.store_errors.get() as f64),
    counter("carom_store_damaged_records_total", "Records that could not be decoded.", |node| {
        node.store_damaged.get() as f64
    }),
    gauge("carom_store_queue", "Writes that are being committed.", |node| node.write_queue.get() as f64),
    counter(
        "carom_store_fetches_left_out_total",
        "Codes that the store was not asked for, because too many waited.",
        |node| node.fetches_left_out.get() as f64,
    ),
    gauge("carom_memory_limit_bytes", "Bytes that links may take in memory; 0 where all are kept there.", |node| {
        node.memory_limit.get() as f64
    }),
    counter("carom_visits_dropped_total", "Visits that could not be counted.", |node| node.visits_dropped.get() as f64),
    counter("carom_access_log_lines_total", "Lines of the access log that were written.", |node| {
        node.access_log.lines.get() as f64
    }),
    counter("carom_access_log_dropped_total", "Lines of the access log that were not.", |node| {
        node.access_log.dropped.get() as f64
    }),
    counter("carom_expired_links_total", "Links removed because their time was over.", |node| {
        node.expiry.expired.get() as f64
    }),
    gauge("carom_expiry_waiting", "Links whose time is over and that are still to be removed, about.", |node| {
        node.expiry.due.get() as f64
    }),
    gauge("carom_expiry_late_seconds", "For how long the first of them has waited.", |node| {
        node.expiry.late_ms.get() as f64 / 1_000.0
    }),
    counter("carom_codes_recycled_total", "Codes of removed links that were made ready for others.", |node| {
        node.expiry.recycled.get() as f64
    }),
    gauge("carom_codes_length", "Characters of the codes that are issued now.", |node| node.issuer_length.get() as f64),
    gauge("carom_codes_never_issued", "Codes of that length that were never given out.", |node| {
        node.issuer_remaining.get() as f64
    }),
    counter("carom_codes_issuer_errors_total", "Times that no counter values could be had for new codes.", |node| {
        node.issuer_errors.get() as f64
    }),
    gauge("carom_bulk_requests", "Requests under way that make many links.", |node| {
        node.bulks.load(Ordering::Relaxed) as f64
    }),
];

/// What is known of the fleet, where there is one.
pub(super) const FLEET: &[Family<FleetStats>] = &[
    gauge("carom_redis_connected", "Whether Redis answered the last heartbeat.", |fleet| flag(&fleet.connected)),
    counter("carom_redis_errors_total", "Questions to Redis that got no answer.", |fleet| fleet.errors.get() as f64),
    gauge("carom_fleet_nodes", "Nodes that are known, this one among them.", |fleet| {
        fleet.members.lock().unwrap_or_else(std::sync::PoisonError::into_inner).len() as f64
    }),
    gauge("carom_fleet_outbox", "Codes whose state Redis may not have yet.", |fleet| fleet.outbox.get() as f64),
    counter("carom_fleet_delivered_total", "States that were brought to Redis from the outbox.", |fleet| {
        fleet.delivered.get() as f64
    }),
    counter("carom_fleet_followed_total", "Changes that came through the streams.", |fleet| {
        fleet.followed.get() as f64
    }),
    gauge("carom_fleet_lag_seconds", "From the last change being accepted to its being read here.", |fleet| {
        fleet.lag_ms.get() as f64 / 1_000.0
    }),
    counter("carom_fleet_conflicts_total", "Links given up because another node had their codes.", |fleet| {
        fleet.conflicts.get() as f64
    }),
    counter(
        "carom_fleet_collisions_total",
        "Codes that somebody had already, so that the next one was taken.",
        |fleet| fleet.collisions.get() as f64,
    ),
    counter("carom_fleet_gaps_total", "Places in streams that were lost.", |fleet| fleet.gaps.get() as f64),
    gauge("carom_fleet_comparing", "Partitions that are still to be compared with Redis.", |fleet| {
        fleet.comparing.get() as f64
    }),
    counter("carom_fleet_look_ups_total", "Unknown codes that were looked up in Redis.", |fleet| {
        fleet.look_ups.get() as f64
    }),
    counter("carom_fleet_look_up_hits_total", "Unknown codes that were found there.", |fleet| {
        fleet.look_up_hits.get() as f64
    }),
    counter("carom_fleet_look_ups_left_out_total", "Unknown codes not looked up, because too many were.", |fleet| {
        fleet.look_ups_left_out.get() as f64
    }),
    counter("carom_fleet_code_regressions_total", "Times that the counter of codes had been set back.", |fleet| {
        fleet.regressions.get() as f64
    }),
];

/// What apps have done.
pub(super) const APP: &[Family<App>] = &[
    counter("carom_app_requests_total", "Requests of an app that were let in.", |app| {
        app.requests.load(Ordering::Relaxed) as f64
    }),
    counter("carom_app_creates_total", "Links that an app has made.", |app| app.creates.load(Ordering::Relaxed) as f64),
    counter("carom_app_limited_total", "Links that an app was not let make, because it made too many.", |app| {
        app.limited.load(Ordering::Relaxed) as f64
    }),
    counter("carom_app_forbidden_total", "Requests that the keys of an app do not allow.", |app| {
        app.forbidden.load(Ordering::Relaxed) as f64
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T>(families: &[Family<T>]) -> Vec<&'static str> {
        for family in families {
            let is_counter = family.kind == Kind::Counter;
            assert_eq!(family.name.ends_with("_total"), is_counter, "{}", family.name);
            assert!(family.name.starts_with("carom_") && family.help.ends_with('.'), "{}", family.name);
            assert!(!family.help.contains(['\n', '\\']), "{}", family.name);
        }
        families.iter().map(|family| family.name).collect()
    }

    #[test]
    fn names_follow_the_conventions_and_differ() {
        let mut all = [check(CORE), check(NODE), check(FLEET), check(APP)].concat();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
