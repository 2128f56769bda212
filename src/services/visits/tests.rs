//! Tests of the threads that count.

use super::*;
use crate::services::testing::KEY;
use carom_model::visits::{RecordOutcome, Visit, ring};
use carom_shards::Code;
use std::time::{Duration, Instant};

/// Timeout of the tests, long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn no_visit_is_dropped_while_the_store_syncs() {
    let dir = tempfile::tempdir().unwrap();
    let (links, _) = Links::open(&dir.path().join("links"), KEY).unwrap();
    let (mut sender, receiver) = ring();
    let stats = Arc::default();
    let StartedVisits { visits, threads, .. } = start(dir.path(), &links, vec![receiver], &stats, None).unwrap();
    let code = Code::parse(&[b'x'; 64]).unwrap();
    let visitor = sender.visitor(b"Mozilla/5.0", format!("https://{}.example/", "x".repeat(52)).as_bytes());
    const VISITS: u64 = 20_000;
    {
        // A fold holds the lock of the aggregator during its sync.
        let _syncing = visits.aggregator();
        for at in 0..VISITS {
            let begin = Instant::now();
            while sender.record(&Visit { code: Some(code), visitor }) == RecordOutcome::Nothing {
                assert!(begin.elapsed() < PATIENCE, "the ring was full after {at} visits, and stayed so");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
    assert_eq!(visits.counts(&[code]).unwrap()[0].total, VISITS);
    threads.stop();
}
