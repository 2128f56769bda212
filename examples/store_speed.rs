//! Measures the store by itself: import, export, reading back at start, and durable creates.
//!
//! `store_speed gen N FILE`, `store_speed import DIR FILE`, `store_speed export DIR FILE`, `store_speed load DIR
//! CORES`, `store_speed create DIR WAITING SECONDS [dedupe]`. Release builds only.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a tool for developers")]

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use carom::bridge::{FleetDecision, Mailbox, Mailboxes, StoreRequest, Ticket, ToCore, WriterOrder};
use carom::commands::data::import;
use carom::commands::data::import_setup::ImportSetup;
use carom::services::loader::{self, LoadPace};
use carom::services::readers::export;
use carom::services::search::{self, Catalog};
use carom::services::writer;
use carom_model::destination::long_url::Authority;
use carom_model::domains::{Domains, UnknownHost};
use carom_model::link::labels::LinkLabels;
use carom_model::link::record;
use carom_model::link::{Link, Origin, Reuse, Version};
use carom_shards::{Code, CodeHasher, CodeLength, CodeSecret, CodeSpace, CoreCount, CoreId, CounterValue, Policy};
use carom_store::links::Links;
use carom_telemetry::stats::NodeStats;

fn main() {
    if cfg!(debug_assertions) {
        return println!("measure a release build");
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["gen", count, file] => generate(count.parse().unwrap(), file),
        ["import", dir, file] => run_import(Path::new(dir), file),
        ["export", dir, file] => run_export(Path::new(dir), file),
        ["load", dir, cores] => run_load(Path::new(dir), cores.parse().unwrap()),
        ["create", dir, waiting, seconds] => {
            run_create(Path::new(dir), waiting.parse().unwrap(), Duration::from_secs(seconds.parse().unwrap()), None);
        }
        ["create", dir, waiting, seconds, "dedupe"] => {
            let (seconds, window) = (Duration::from_secs(seconds.parse().unwrap()), Duration::from_secs(86_400));
            run_create(Path::new(dir), waiting.parse().unwrap(), seconds, Some(window));
        }
        _ => println!("see the head of the file for the arguments"),
    }
}

fn space() -> CodeSpace {
    CodeSpace::new(&CodeSecret::from_bytes([9; 32]))
}

fn open(dir: &Path) -> Links {
    let start = Instant::now();
    let (links, repairs) = Links::open(&dir.join("links"), "speed").unwrap();
    println!("open {:.2} s, {} repairs", start.elapsed().as_secs_f64(), repairs.len());
    links
}

fn target(number: u64) -> String {
    let noise = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!(
        "https://www.example{}.org/articles/{noise:016x}/of/{}/page?id={number}&ref={:012x}",
        number % 977,
        number % 31,
        noise >> 16
    )
}

fn generate(count: u64, file: &str) {
    let space = space();
    let mut out = BufWriter::new(File::create(file).unwrap());
    for number in 0..count {
        let code = space.code(CodeLength::DEFAULT, CounterValue(number)).to_code();
        writeln!(
            out,
            r#"{{"shortCode":"{code}","longUrl":"{}","dateCreated":"2026-01-02T03:04:05+00:00","validUntil":null,"redirectStatus":302,"cacheSeconds":null}}"#,
            target(number)
        )
        .unwrap();
    }
}

fn run_import(dir: &Path, file: &str) {
    std::fs::create_dir_all(dir).unwrap();
    let mut input = File::open(file).unwrap();
    let setup = ImportSetup {
        dry_run: false,
        moving: None,
        of_fleet: false,
        links: open(dir),
        data_dir: dir.to_owned(),
        space: space(),
        length: CodeLength::DEFAULT,
        own: Authority::of("http://127.0.0.1:8080").into_iter().collect(),
        domains: Domains::new("http://s.test", &[], false, UnknownHost::NotFound),
        threads: 2,
        total_bytes: input.metadata().ok().map(|metadata| metadata.len()),
        terminal: false,
    };
    import::import(&setup, &mut input, &mut std::io::stderr(), None).unwrap();
}

fn run_export(dir: &Path, file: &str) {
    let mut out = BufWriter::new(File::create(file).unwrap());
    export::export(&open(dir), 2, &mut out, &mut std::io::stderr(), false).unwrap();
}

struct Node {
    mailboxes: Mailboxes,
    mail: Vec<std::sync::mpsc::Receiver<ToCore>>,
}

fn node(cores: usize) -> Node {
    let bell = Arc::new(File::options().write(true).open("/dev/null").unwrap());
    let (boxes, mail) = (0..cores).map(|_| Mailbox::new(Arc::clone(&bell))).unzip();
    Node { mailboxes: Mailboxes::new(boxes), mail }
}

fn run_load(dir: &Path, cores: usize) {
    let start = Instant::now();
    let links = open(dir);
    let node = node(cores);
    let decoders: Vec<_> = node
        .mail
        .into_iter()
        .map(|mail| {
            std::thread::spawn(move || {
                let mut bytes = 0;
                while let Ok(message) = mail.recv() {
                    let batch = match message {
                        ToCore::Load(batch) => batch,
                        ToCore::LoadBegin { .. } => continue,
                        _ => break,
                    };
                    for (key, value) in batch.iter() {
                        if let Ok(record::RecordRef::Link(link)) = record::decode(key, value) {
                            bytes += link.target.len();
                        }
                    }
                }
                bytes
            })
        })
        .collect();
    let cores = CoreCount::new(cores).unwrap();
    let report =
        loader::load(&links, &node.mailboxes, CodeHasher::new(1), cores, &NodeStats::default(), (dir, LoadPace::Full))
            .unwrap();
    let bytes: usize = decoders.into_iter().map(|decoder| decoder.join().unwrap()).sum();
    let time = start.elapsed().as_secs_f64();
    println!("{} records, {} MB in {time:.2} s, {:.0}/s", report.records, bytes >> 20, report.records as f64 / time);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    println!("{}", status.lines().find(|line| line.starts_with("VmHWM")).unwrap());
    std::process::exit(0);
}

fn run_create(dir: &Path, waiting: u64, time: Duration, dedupe: Option<Duration>) {
    std::fs::create_dir_all(dir).unwrap();
    let node = node(1);
    let stats = Arc::new(NodeStats::default());
    let links = open(dir);
    let catalog = Arc::new(Catalog::new(links.clone(), 256 << 20, dir).unwrap());
    let counting = search::start_counting(&catalog).unwrap();
    let _signing = search::start_signing(&catalog).unwrap();
    let setup = writer::WriterSetup {
        links,
        catalog,
        mailboxes: node.mailboxes.clone(),
        hasher: CodeHasher::new(1),
        cores: CoreCount::new(1).unwrap(),
        stats: Arc::clone(&stats),
        data_dir: dir.to_owned(),
        dedupe,
        deliveries: None,
        home: None,
        allowances: carom::bridge::AllowanceQueue::new().0,
        ended: std::sync::mpsc::channel().0,
        expiry: std::sync::mpsc::channel().0,
        #[cfg(feature = "faults")]
        faults: carom::services::faults::Faults::from_env(),
    };
    let (queue, _thread) = writer::start(setup).unwrap();
    counting.join().unwrap();
    let space = space();
    let base = u64::from(std::process::id()) * 10_000_000;
    let create = |number: u64| {
        let code: Code = space.code(CodeLength::DEFAULT, CounterValue(base + number)).to_code();
        let (policy, version) = (Policy::default(), Version::default());
        let (origin, labels) = (Origin::Issued, LinkLabels::default());
        let link = Link { code, policy, target: target(number), created_ms: 1, origin, version, labels };
        let ticket = Ticket::new(CoreId(0), number);
        let request = StoreRequest::Create { link: Arc::new(link), reuse: Reuse::Recent, ticket };
        queue.send(WriterOrder::Client(request, FleetDecision::Alone)).unwrap();
    };
    let start = Instant::now();
    (0..waiting).for_each(create);
    let (mut done, mut refused, mut sent) = (0u32, 0u32, waiting);
    while start.elapsed() < time {
        match node.mail[0].recv().unwrap() {
            ToCore::Apply { .. } => done += 1,
            ToCore::Reply { reply, .. } => {
                if refused == 0 {
                    println!("after {done}: {reply:?}");
                }
                refused += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
            other => panic!("unexpected {other:?}"),
        }
        create(sent);
        sent += 1;
    }
    let commits = stats.syncs.spread().count();
    for alarm in stats.alarms.list() {
        println!("alarm {}: {} (over: {})", alarm.alarm.name(), alarm.text, alarm.cleared_ms.is_some());
    }
    println!(
        "{waiting} waiting: {:.0} creates/s, {refused} refused, {commits} commits of {:.1}, sync {:.2} ms",
        f64::from(done) / start.elapsed().as_secs_f64(),
        f64::from(done) / commits as f64,
        stats.syncs.spread().sum().as_secs_f64() * 1e3 / commits as f64
    );
    // Exits as if killed: nothing is closed.
    std::process::exit(0);
}
