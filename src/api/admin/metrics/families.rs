//! Tables of metrics: one for the counters of each core, and others for the node, its fleet and its apps. A new
//! metric is a new row.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::api::admin::status::missing_nodes;
use carom_model::access::usage::App;
use carom_telemetry::bypass::BypassStats;
use carom_telemetry::exposition::MetricKind;
use carom_telemetry::sites::SiteStats;
use carom_telemetry::stats::{CoreStats, EventStats, FleetStats, NodeStats, SinkStats};

/// A metric and the source of its value.
pub(super) struct Family<T: 'static> {
    pub(super) name: &'static str,
    pub(super) kind: MetricKind,
    pub(super) help: &'static str,
    pub(super) value: fn(&T) -> f64,
}

const fn counter<T>(name: &'static str, help: &'static str, value: fn(&T) -> f64) -> Family<T> {
    Family { name, kind: MetricKind::Counter, help, value }
}

const fn gauge<T>(name: &'static str, help: &'static str, value: fn(&T) -> f64) -> Family<T> {
    Family { name, kind: MetricKind::Gauge, help, value }
}

fn flag(flag: &AtomicBool) -> f64 {
    f64::from(u8::from(flag.load(Ordering::Relaxed)))
}

/// Metrics of each core.
pub(super) const CORE: &[Family<CoreStats>] = &[
    counter("carom_redirects_total", "Requests answered with a redirect.", |core| core.redirects.get() as f64),
    counter(
        "carom_misses_total",
        "Requests without a redirect to a link: 404, 410, 421, or the redirect of a domain in their place.",
        |core| core.misses.get() as f64,
    ),
    counter(
        "carom_unavailable_total",
        "Requests answered 500 or 503, because the link is damaged or could not be looked up in time.",
        |core| core.unavailable.get() as f64,
    ),
    counter(
        "carom_throttled_total",
        "Requests answered 429, because the address requested too many unknown links.",
        |core| core.throttled.get() as f64,
    ),
    counter(
        "carom_bad_requests_total",
        "Requests rejected before handling: malformed, timed out or too large.",
        |core| core.bad_requests.get() as f64,
    ),
    counter(
        "carom_requests_timed_out_total",
        "HTTP/1.1 requests that timed out while arriving; included in carom_bad_requests_total.",
        |core| core.timed_out.get() as f64,
    ),
    counter(
        "carom_requests_too_long_total",
        "HTTP/1.1 requests with a head or body over the limit; included in carom_bad_requests_total.",
        |core| core.too_long.get() as f64,
    ),
    counter(
        "carom_slow_requests_total",
        "Requests for the API and pages, which are handled outside the fast path of redirects.",
        |core| core.handed_over.get() as f64,
    ),
    gauge("carom_connections", "Open connections.", |core| core.connections.get() as f64),
    counter("carom_connections_accepted_total", "Connections accepted.", |core| core.accepted.get() as f64),
    counter(
        "carom_connections_shed_total",
        "Connections closed on arrival, because a connection limit was reached.",
        |core| core.shed.get() as f64,
    ),
    counter("carom_connections_evicted_total", "Idle connections closed to make room for new ones.", |core| {
        core.connections_evicted.get() as f64
    }),
    counter(
        "carom_connections_untrusted_total",
        "Connections closed on PROXY listeners, because the address is not in trusted_proxies.",
        |core| core.untrusted.get() as f64,
    ),
    counter("carom_tls_handshakes_total", "Completed TLS handshakes.", |core| core.handshakes.get() as f64),
    counter("carom_tls_resumptions_total", "TLS handshakes that resumed a session.", |core| {
        core.resumptions.get() as f64
    }),
    counter("carom_tls_handshake_failures_total", "Failed TLS handshakes.", |core| {
        core.handshake_failures.get() as f64
    }),
    gauge("carom_links", "Links in memory.", |core| core.links.get() as f64),
    gauge("carom_link_bytes", "Bytes of short codes and destinations in memory.", |core| core.link_bytes.get() as f64),
    gauge("carom_map_bytes", "Bytes of the link map in memory.", |core| core.map_bytes.get() as f64),
    counter("carom_mesh_questions_total", "Lookups sent to other cores.", |core| core.forwarded_out.get() as f64),
    counter("carom_mesh_answers_total", "Lookups answered for other cores.", |core| core.forwarded_in.get() as f64),
    counter(
        "carom_mesh_copy_hits_total",
        "Redirects served from local copies of links that other cores own.",
        |core| core.hot_hits.get() as f64,
    ),
    counter("carom_mesh_doorbells_total", "Wake-ups sent to other cores.", |core| core.doorbells.get() as f64),
    counter("carom_store_fetches_total", "Codes looked up in the store because they were not in memory.", |core| {
        core.fetches.get() as f64
    }),
    counter("carom_store_fetched_redirects_total", "Redirects whose link was read from the store.", |core| {
        core.fetched.get() as f64
    }),
    gauge("carom_codes_ready", "Short codes that the core holds ready for creates.", |core| {
        core.codes_remaining.get() as f64
    }),
    gauge("carom_codes_segment_size", "Size of the current segment (batch) of short codes.", |core| {
        core.segment_len.get() as f64
    }),
    counter("carom_codes_segments_total", "Segments of short codes that the core received.", |core| {
        core.refills.get() as f64
    }),
    counter("carom_codes_segment_errors_total", "Failed requests for a segment of short codes.", |core| {
        core.refill_errors.get() as f64
    }),
    counter("carom_codes_waits_total", "Creates that waited for a short code.", |core| core.code_waits.get() as f64),
    counter("carom_codes_wait_errors_total", "Creates that failed for lack of a short code.", |core| {
        core.code_wait_errors.get() as f64
    }),
    gauge(
        "carom_longest_task_seconds",
        "Longest time for which one request blocked the redirects of the core.",
        |core| core.task_micros_max.get() as f64 / 1e6,
    ),
    counter(
        "carom_loop_turns_total",
        "Iterations of the event loop of the core. More requests per iteration mean a busier core.",
        |core| core.turns.get() as f64,
    ),
    counter(
        "carom_loop_gathered_total",
        "Sleeps in which the core gathered requests for 100 µs, as a busy core does (Linux 6.12 and later).",
        |core| core.gathered.get() as f64,
    ),
];

/// Metrics of the datapath of each core that has bypass.
pub(super) const BYPASS: &[Family<BypassStats>] = &[
    gauge("carom_bypass_native", "1 if the XDP program runs in the driver, else 0.", |bypass| flag(&bypass.is_native)),
    gauge("carom_bypass_zero_copy", "1 if the device reads and writes frames itself, else 0.", |bypass| {
        flag(&bypass.is_zero_copy)
    }),
    counter("carom_bypass_frames_received_total", "Frames received past the kernel.", |bypass| {
        bypass.frames_in.get() as f64
    }),
    counter("carom_bypass_frames_sent_total", "Frames sent past the kernel, retransmissions included.", |bypass| {
        bypass.frames_out.get() as f64
    }),
    gauge("carom_bypass_connections", "Open connections of bypass.", |bypass| bypass.open.get() as f64),
    counter("carom_bypass_connections_total", "Connections opened over bypass.", |bypass| bypass.opened.get() as f64),
    counter("carom_bypass_retransmissions_total", "Segments sent again over bypass.", |bypass| {
        bypass.retransmissions.get() as f64
    }),
    counter("carom_bypass_timeouts_total", "Retransmission timeouts of bypass.", |bypass| bypass.timeouts.get() as f64),
    counter(
        "carom_bypass_syn_cookies_total",
        "SYN cookies sent, because too many connections were half open.",
        |bypass| bypass.cookies_sent.get() as f64,
    ),
    counter(
        "carom_bypass_timed_out_total",
        "Connections of bypass closed, because the client did not answer.",
        |bypass| bypass.timed_out.get() as f64,
    ),
    counter(
        "carom_bypass_shed_total",
        "Connections of bypass reset, because they left answers unacknowledged while frames were short; included in carom_bypass_timed_out_total.",
        |bypass| bypass.shed.get() as f64,
    ),
    counter("carom_bypass_resets_received_total", "Connections of bypass that clients reset.", |bypass| {
        bypass.resets_received.get() as f64
    }),
    counter("carom_bypass_out_of_order_total", "Segments that arrived out of order over bypass.", |bypass| {
        bypass.out_of_order.get() as f64
    }),
    counter(
        "carom_bypass_kernel_drops_total",
        "Received frames that the kernel dropped for any reason; it counts some of them twice.",
        |bypass| bypass.kernel_drops.get() as f64,
    ),
    counter(
        "carom_bypass_receive_ring_full_total",
        "Received frames that the kernel dropped, because the core was too slow and its ring was full.",
        |bypass| bypass.receive_ring_full.get() as f64,
    ),
    counter(
        "carom_bypass_fill_ring_empty_total",
        "Received frames that the kernel dropped, because the core was too slow to provide free frames.",
        |bypass| bypass.fill_ring_empty.get() as f64,
    ),
    counter("carom_bypass_ring_full_total", "Times that the ring of frames to send was full.", |bypass| {
        bypass.ring_full.get() as f64
    }),
];

/// Metrics of the node.
pub(super) const NODE: &[Family<NodeStats>] = &[
    gauge("carom_ready", "1 while /readyz returns 200, else 0.", |node| f64::from(u8::from(node.is_ready()))),
    gauge("carom_draining", "1 while the node drains, else 0.", |node| flag(&node.draining)),
    gauge("carom_store_writable", "1 while writes are accepted, else 0.", |node| 1.0 - flag(&node.writes_refused)),
    counter("carom_store_updates_total", "Links created, changed and deleted.", |node| node.store_updates.get() as f64),
    counter("carom_store_reads_total", "Records read from the store.", |node| node.store_selects.get() as f64),
    counter("carom_store_errors_total", "Failed reads and writes of the store.", |node| node.store_errors.get() as f64),
    counter("carom_store_damaged_records_total", "Records of the store that could not be decoded.", |node| {
        node.store_damaged.get() as f64
    }),
    counter(
        "carom_store_newer_records_total",
        "Records of the store that only a newer version of carom can decode, each time one was loaded or fetched.",
        |node| node.store_newer.get() as f64,
    ),
    gauge("carom_store_queue", "Writes in the present commit; 0 between commits.", |node| {
        node.write_queue.get() as f64
    }),
    counter(
        "carom_store_fetches_left_out_total",
        "Lookups in the store refused, because the queue was full.",
        |node| node.fetches_left_out.get() as f64,
    ),
    gauge("carom_memory_limit_bytes", "links.memory_limit in bytes; 0 if all links are in memory.", |node| {
        node.memory_limit.get() as f64
    }),
    counter(
        "carom_visit_referrers_dropped_total",
        "Visits counted without their referrer, because the table of referrers was full.",
        |node| node.referrers_dropped.get() as f64,
    ),
    counter("carom_visits_dropped_total", "Visits that could not be counted.", |node| node.visits_dropped.get() as f64),
    counter("carom_access_log_lines_total", "Lines written to the access log.", |node| {
        node.access_log.lines.get() as f64
    }),
    counter("carom_access_log_dropped_total", "Lines dropped from the access log.", |node| {
        node.access_log.dropped.get() as f64
    }),
    counter("carom_visit_log_visits_total", "Visits written to the visit log.", |node| {
        node.visit_log.visits.get() as f64
    }),
    counter("carom_visit_log_dropped_total", "Visits that could not be logged.", |node| {
        node.visit_log.dropped.get() as f64
    }),
    gauge("carom_visit_log_bytes", "Size of the visit log on disk, without its newest segment.", |node| {
        node.visit_log.bytes.get() as f64
    }),
    counter("carom_visit_log_received_total", "Visits of other nodes written to the visit log.", |node| {
        node.visit_log.received.get() as f64
    }),
    counter("carom_visit_log_published_total", "Blocks of visits sent to the other nodes of the fleet.", |node| {
        node.visit_log.published.get() as f64
    }),
    gauge("carom_visit_log_lag_seconds", "Age of the oldest logged visit that other nodes cannot have yet.", |node| {
        node.visit_log.lag_ms.get() as f64 / 1_000.0
    }),
    gauge("carom_visit_log_gaps", "Spans of time in which logged visits of other nodes are missing here.", |node| {
        node.visit_log.gaps.get() as f64
    }),
    counter("carom_visit_log_unread_total", "Blocks of visits of other nodes that could not be read.", |node| {
        node.visit_log.unread.get() as f64
    }),
    counter("carom_expired_links_total", "Expired links removed.", |node| node.expiry.expired.get() as f64),
    gauge("carom_expiry_waiting", "Expired links waiting to be removed, approximately.", |node| {
        node.expiry.due.get() as f64
    }),
    gauge("carom_expiry_late_seconds", "How long the oldest expired link has been waiting to be removed.", |node| {
        node.expiry.late_ms.get() as f64 / 1_000.0
    }),
    counter("carom_codes_recycled_total", "Codes of removed links made available again.", |node| {
        node.expiry.recycled.get() as f64
    }),
    gauge("carom_codes_length", "Length of new short codes, in characters.", |node| node.issuer_length.get() as f64),
    gauge("carom_codes_never_issued", "Codes of the current length that were never issued.", |node| {
        node.issuer_remaining.get() as f64
    }),
    counter("carom_codes_issuer_errors_total", "Failed reservations of counter values for new codes.", |node| {
        node.issuer_errors.get() as f64
    }),
    gauge("carom_bulk_requests", "Bulk requests in progress.", |node| node.bulks.load(Ordering::Relaxed) as f64),
    gauge("carom_data_dir_free_bytes", "Free space on the disk of the data directory.", |node| {
        node.data_dir.free_bytes.get() as f64
    }),
    gauge("carom_data_dir_size_bytes", "Size of the disk of the data directory.", |node| {
        node.data_dir.size_bytes.get() as f64
    }),
    gauge("carom_last_backup_timestamp_seconds", "Time of the last complete backup; 0 if there was none.", |node| {
        node.data_dir.last_backup_ms.get() as f64 / 1_000.0
    }),
];

/// Metrics of the fleet, if the node belongs to one.
pub(super) const FLEET: &[Family<FleetStats>] = &[
    gauge("carom_redis_connected", "1 if Redis answered the last heartbeat, else 0.", |fleet| flag(&fleet.connected)),
    counter("carom_redis_errors_total", "Requests to Redis that got no response.", |fleet| fleet.errors.get() as f64),
    gauge("carom_fleet_nodes", "Known nodes of the fleet, including this one.", |fleet| {
        fleet.members.lock().unwrap_or_else(std::sync::PoisonError::into_inner).len() as f64
    }),
    gauge(
        "carom_fleet_nodes_missing",
        "Nodes whose visits are missing in the totals of this node, because they are silent or batches have not arrived.",
        |fleet| missing_nodes(fleet) as f64,
    ),
    gauge("carom_fleet_outbox", "Unsynced changes: links whose state Redis may not have yet.", |fleet| {
        fleet.outbox.get() as f64
    }),
    gauge(
        "carom_fleet_settling",
        "In a shared home of links: changes that Redis has, and that this node stores for some seconds longer.",
        |fleet| fleet.settling.get() as f64,
    ),
    counter("carom_fleet_delivered_total", "Changes synced to Redis.", |fleet| fleet.delivered.get() as f64),
    counter("carom_fleet_followed_total", "Changes received through the streams.", |fleet| fleet.followed.get() as f64),
    gauge(
        "carom_fleet_lag_seconds",
        "Replication lag: age of the last change in the Redis streams when read here.",
        |fleet| fleet.lag_ms.get() as f64 / 1_000.0,
    ),
    counter(
        "carom_fleet_conflicts_total",
        "Links dropped, because another node had a link with the same code.",
        |fleet| fleet.conflicts.get() as f64,
    ),
    counter("carom_fleet_collisions_total", "Generated codes skipped, because they were already in use.", |fleet| {
        fleet.collisions.get() as f64
    }),
    counter(
        "carom_fleet_gaps_total",
        "Positions in Redis streams that were lost; each starts a comparison with Redis.",
        |fleet| fleet.gaps.get() as f64,
    ),
    gauge("carom_fleet_comparing", "Partitions still to be compared with Redis.", |fleet| fleet.comparing.get() as f64),
    gauge(
        "carom_fleet_visits_missing",
        "Origins whose visit counts have been missing here for a minute or longer; totals are too low.",
        |fleet| fleet.visits_missing.get() as f64,
    ),
    counter("carom_fleet_look_ups_total", "Unknown codes looked up in Redis.", |fleet| fleet.look_ups.get() as f64),
    counter("carom_fleet_look_up_hits_total", "Unknown codes found in Redis.", |fleet| fleet.look_up_hits.get() as f64),
    counter(
        "carom_fleet_look_ups_left_out_total",
        "Unknown codes not looked up in Redis, because the queue was full.",
        |fleet| fleet.look_ups_left_out.get() as f64,
    ),
    counter(
        "carom_fleet_code_regressions_total",
        "How often the code counter in Redis was behind the codes in use.",
        |fleet| fleet.regressions.get() as f64,
    ),
];

/// Metrics of the sites of the fleet, if there are two.
pub(super) const SITE: &[Family<SiteStats>] = &[
    gauge(
        "carom_site_current",
        "1 if this site has read all changes of the other one within 3 seconds, else 0.",
        |site| flag(&site.is_current),
    ),
    gauge("carom_site_relay", "1 if this node is the relay of its site, else 0.", |site| flag(&site.is_relay)),
    counter("carom_site_relayed_total", "Changes of the other site that this node brought to its own.", |site| {
        site.relayed.get() as f64
    }),
    counter(
        "carom_site_replaced_total",
        "Links of this site that were replaced by one of the other site with the same short code and revision.",
        |site| site.replaced.get() as f64,
    ),
];

/// Metrics of the event log.
pub(super) const EVENTS: &[Family<EventStats>] = &[
    gauge("carom_events_last", "Number of the last event.", |events| events.last.get() as f64),
    gauge("carom_events_bytes", "Size of the event log on disk.", |events| events.bytes.get() as f64),
    counter("carom_events_dropped_total", "Visits that could not be added to the event log.", |events| {
        events.dropped.get() as f64
    }),
];

/// Metrics of each sink of events.
pub(super) const SINK: &[Family<SinkStats>] = &[
    gauge("carom_events_sink_lag", "Events that the sink has not delivered yet.", |sink| sink.lag.get() as f64),
    counter("carom_events_sink_delivered_total", "Events delivered, including repeated ones.", |sink| {
        sink.delivered.get() as f64
    }),
    counter("carom_events_sink_failed_total", "Failed attempts to deliver events.", |sink| sink.failed.get() as f64),
    counter(
        "carom_events_sink_dead_total",
        "Events that the receiver refused for good, kept as dead letters.",
        |sink| sink.dead.get() as f64,
    ),
    counter("carom_events_sink_lost_total", "Events removed from the log before the sink delivered them.", |sink| {
        sink.lost.get() as f64
    }),
];

/// Metrics of each app.
pub(super) const APP: &[Family<App>] = &[
    counter("carom_app_requests_total", "Authorised requests of the app.", |app| {
        app.requests.load(Ordering::Relaxed) as f64
    }),
    counter("carom_app_creates_total", "Links created by the app.", |app| app.creates.load(Ordering::Relaxed) as f64),
    counter("carom_app_limited_total", "Creates refused by the rate limit of the app.", |app| {
        app.limited.load(Ordering::Relaxed) as f64
    }),
    counter(
        "carom_app_forbidden_total",
        "Requests denied, because the role or domains of the key do not allow them.",
        |app| app.forbidden.load(Ordering::Relaxed) as f64,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T>(families: &[Family<T>]) -> Vec<&'static str> {
        for family in families {
            let is_counter = family.kind == MetricKind::Counter;
            assert_eq!(family.name.ends_with("_total"), is_counter, "{}", family.name);
            assert!(family.name.starts_with("carom_"), "{}", family.name);
            assert!(family.help.ends_with('.'), "{}", family.name);
            assert!(!family.help.contains(['\n', '\\']), "{}", family.name);
        }
        families.iter().map(|family| family.name).collect()
    }

    #[test]
    fn names_follow_the_conventions_and_differ() {
        let mut all = [check(CORE), check(NODE), check(FLEET), check(APP), check(EVENTS), check(SINK)].concat();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
