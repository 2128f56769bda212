//! The start of the visit log.

use std::fs;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};

use super::block_exchange;
use super::sharing::Sharing;
use super::upkeep::Upkeep;
use super::{
    FOLDER, LogIntake, LogSharing, StartedVisitLog, VisitLogSetup, VisitLogState, VisitLogThreads, VisitLogWriter,
    read_back,
};
use crate::services::threads;
use crate::services::threads::priority::Priority;
use carom_limits::VISIT_QUERY_QUEUE_LEN;

/// Reads the log of a data directory, and starts its threads.
///
/// # Errors
/// If the folder cannot be read or written, or the operating system cannot start a thread.
pub fn start(setup: VisitLogSetup) -> io::Result<StartedVisitLog> {
    let VisitLogSetup { data_dir, terms, links, geo, sharing, fleet, receivers, mailboxes, stats } = setup;
    assert_eq!(sharing == LogSharing::Shared, fleet.is_some(), "a shared log would wait for its first number");
    let dir = data_dir.join(FOLDER);
    fs::create_dir_all(&dir)?;
    let (state, seq) = read_back(&dir, &stats, sharing)?;
    let intake = Mutex::new(LogIntake { receivers, pending: Vec::new(), visits: 0 });
    let (sharing, state) = (Sharing::new(sharing), Mutex::new(state));
    let (wants_seal, drops_sent) = (AtomicBool::new(false), AtomicBool::new(false));
    let shared =
        Arc::new(VisitLogState { dir, terms, links, geo, stats, sharing, intake, state, wants_seal, drops_sent });
    let mut writer = VisitLogWriter::open(Arc::clone(&shared), seq)?;
    let stop = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&stop);
    let exchange = fleet.map(|fleet| {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = block_exchange::start(Arc::clone(&shared), fleet, Arc::clone(&stop))?;
        Ok::<_, io::Error>((stop, thread))
    });
    let exchange = exchange.transpose()?;
    let thread = threads::start(Priority::Urgent, "visit-log", move || writer.run(&until))?;
    let (queue, requests) = sync_channel(VISIT_QUERY_QUEUE_LEN);
    let reader = threads::start(Priority::Long, "visit-query", move || Upkeep::new(shared, mailboxes).run(&requests))?;
    Ok(StartedVisitLog { queue, reader, threads: VisitLogThreads { stop, thread, exchange } })
}
