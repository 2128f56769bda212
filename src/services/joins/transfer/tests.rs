//! Joins from a peer that speaks HTTP on loopback, and that can be made to fail.

use std::cell::Cell;
use std::io::BufRead;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};

use tempfile::TempDir;

use super::*;
use crate::services::joins::open_snapshot::OpenSnapshot;
use crate::services::testing::KEY;
use carom_model::replication::follow::StreamPosition;
use carom_model::replication::{EntryId, Partition};
use carom_shards::Code;

const PLACE: StreamPosition = StreamPosition { id: EntryId { ms: 7, seq: 8 }, check: 9 };

/// Links of the peer: some pieces of a kilobyte each.
const LINKS: usize = 10_000;

/// The behaviour of the peer from a piece on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Behaviour {
    Good,
    /// Closes each connection in the middle of the piece.
    Cuts,
    /// Changes a byte of the piece.
    Damages,
    /// Has no such snapshot any more.
    Forgets,
    /// Answers like a version without snapshots.
    Old,
    /// Refuses the key.
    Refuses,
    /// Accepts connections and never answers; from the first piece on, or any request if that is piece 0.
    Silent,
}

struct Peer {
    snapshot: Mutex<OpenSnapshot>,
    behaviour: Mutex<(Behaviour, u32)>,
    begun: AtomicU32,
    ended: AtomicU32,
    pieces: Mutex<Vec<u32>>,
}

/// A running peer, and the data directory of a node that joins from it.
struct Scene {
    peer: Arc<Peer>,
    url: String,
    dir: TempDir,
}

impl Scene {
    fn new() -> Scene {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        let (links, _) = Links::open(&dir.path().join("a/links"), KEY).unwrap();
        let mut batch = links.batch();
        for number in 0..LINKS {
            batch.put(&code(number), &[7; 1_000]);
        }
        batch.set_position(Partition(3), &PLACE);
        batch.set_last_contact("boot", Duration::from_secs(1));
        links.commit(batch).unwrap();
        let (node, fingerprint) = ("n1".to_owned(), KEY.to_owned());
        let about = JoinSnapshot { id: 77, node, fingerprint, taken_ms: 1_000, links: 0, records: 0, bytes: 0 };
        let snapshot = Mutex::new(OpenSnapshot::open(&links, &dir.path().join("a"), about).unwrap());
        let peer = Arc::new(Peer {
            snapshot,
            behaviour: Mutex::new((Behaviour::Good, 0)),
            begun: AtomicU32::new(0),
            ended: AtomicU32::new(0),
            pieces: Mutex::default(),
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = Arc::clone(&peer);
        // It ends with the process: each test has one.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let _ = serving.serve(&mut stream.unwrap());
            }
        });
        std::fs::create_dir(dir.path().join("b")).unwrap();
        Scene { peer, url, dir }
    }

    /// Behaves in a way from that piece on.
    fn behave(&self, behaviour: Behaviour, from: u32) {
        *self.peer.behaviour.lock().unwrap() = (behaviour, from);
    }

    fn data_dir(&self) -> std::path::PathBuf {
        self.dir.path().join("b")
    }

    fn join_as(&self, node: &str, fingerprint: &str) -> Result<JoinSummary, JoinError> {
        let data_dir = self.data_dir();
        let (peer, node) = (self.url.as_str(), Some(node));
        let plan = JoinPlan { peer, key: Some("secret"), data_dir: &data_dir, fingerprint, node };
        join(&plan, &|| false, &mut |_| {})
    }

    fn join(&self) -> Result<JoinSummary, JoinError> {
        self.join_as("n2", KEY)
    }

    /// Takes the numbers of the pieces that were asked for.
    fn asked(&self) -> Vec<u32> {
        std::mem::take(&mut *self.peer.pieces.lock().unwrap())
    }

    fn has_all(&self) {
        let (links, _) = Links::open(&self.data_dir().join("links"), KEY).unwrap();
        for number in [0, 1, LINKS / 2, LINKS - 1] {
            assert_eq!(links.get(&code(number)).unwrap().as_deref(), Some(&[7; 1_000][..]));
        }
        assert_eq!(links.page(b"", LINKS + 1).unwrap().len(), LINKS);
        assert_eq!(links.position(Partition(3)).unwrap(), Some(PLACE));
        assert_eq!(links.last_contact("boot").unwrap(), None);
        assert!(links.has_joined_fleet().unwrap());
        assert!(!self.data_dir().join(JOIN_FOLDER).exists());
    }

    fn has_nothing(&self) {
        assert!(!self.data_dir().join("links").exists());
        assert!(!self.data_dir().join("visits").exists());
    }
}

fn code(number: usize) -> Code {
    Code::parse(format!("c{number:06}").as_bytes()).unwrap()
}

impl Peer {
    fn serve(&self, stream: &mut TcpStream) -> io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let request = lines.next().unwrap_or(Ok(String::new()))?;
        let mut has_key = false;
        for line in lines {
            let line = line?.to_ascii_lowercase();
            has_key |= line == "x-api-key: secret";
            if line.is_empty() {
                break;
            }
        }
        assert!(has_key, "{request}");
        let (method, path) = request.split_once(' ').unwrap();
        let parts: Vec<&str> = path.split(' ').next().unwrap().split('/').skip(1).collect();
        let behaviour = *self.behaviour.lock().unwrap();
        match (method, &parts[..]) {
            (_, _) if behaviour.0 == Behaviour::Old => reply(stream, "404 Not Found", "text/plain", b"Not found."),
            (_, _) if behaviour == (Behaviour::Silent, 0) => wait_forever(),
            (_, _) if behaviour.0 == Behaviour::Refuses => {
                let problem = br#"{"detail": "Provided API key does not exist or is invalid."}"#;
                reply(stream, "401 Unauthorized", "application/problem+json", problem)
            }
            ("POST", ["snapshots"]) => {
                self.begun.fetch_add(1, Ordering::Relaxed);
                reply(stream, "201 Created", "application/json", &self.about())
            }
            ("DELETE", ["snapshots", _]) => {
                self.ended.fetch_add(1, Ordering::Relaxed);
                reply(stream, "204 No Content", "application/json", b"")
            }
            ("GET", ["snapshots", "000000000000004d"]) => reply(stream, "200 OK", "application/json", &self.about()),
            ("GET", ["snapshots", "000000000000004d", "pieces", number]) => {
                self.piece(stream, number.parse().unwrap(), behaviour)
            }
            _ => panic!("{request}"),
        }
    }

    fn about(&self) -> Vec<u8> {
        self.snapshot.lock().unwrap().about.to_json().to_string().into_bytes()
    }

    fn piece(&self, stream: &mut TcpStream, number: u32, (behaviour, from): (Behaviour, u32)) -> io::Result<()> {
        self.pieces.lock().unwrap().push(number);
        let mut piece = self.snapshot.lock().unwrap().piece(number).unwrap();
        let kind = "application/octet-stream";
        match behaviour {
            Behaviour::Cuts if number >= from => {
                write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", piece.len())?;
                stream.write_all(&piece[..piece.len() / 2])
            }
            Behaviour::Damages if number >= from => {
                let at = piece.len() / 3;
                piece[at] ^= 0x10;
                reply(stream, "200 OK", kind, &piece)
            }
            Behaviour::Forgets if number >= from => {
                let problem = br#"{"type": "urn:carom:problem:snapshot-gone", "detail": "There is no such snapshot."}"#;
                reply(stream, "404 Not Found", "application/problem+json", problem)
            }
            Behaviour::Silent if number >= from => wait_forever(),
            _ => reply(stream, "200 OK", kind, &piece),
        }
    }
}

fn wait_forever() -> ! {
    loop {
        thread::park();
    }
}

fn reply(stream: &mut TcpStream, status: &str, kind: &str, body: &[u8]) -> io::Result<()> {
    let len = body.len();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n")?;
    stream.write_all(body)
}

#[test]
fn new_node_gets_all_links() {
    let scene = Scene::new();
    let summary = scene.join().unwrap();
    assert_eq!((&*summary.node, summary.counts.of(Section::Links), summary.kept_bytes), ("n1", LINKS as u64, 0));
    assert_eq!(scene.asked(), [0, 1, 2]);
    assert_eq!(scene.peer.ended.load(Ordering::Relaxed), 1);
    scene.has_all();
}

#[test]
fn cut_connection_is_opened_again() {
    let scene = Scene::new();
    scene.behave(Behaviour::Cuts, 1);
    thread::scope(|scope| {
        let joining = scope.spawn(|| scene.join());
        while scene.peer.pieces.lock().unwrap().len() < 3 {
            thread::sleep(Duration::from_millis(5));
        }
        scene.behave(Behaviour::Good, 0);
        joining.join().unwrap().unwrap();
    });
    let asked = scene.asked();
    assert_eq!(asked.iter().filter(|number| **number == 0).count(), 1, "{asked:?}");
    assert_eq!(scene.peer.begun.load(Ordering::Relaxed), 1);
    scene.has_all();
}

#[test]
fn damaged_piece_is_refused_and_fetched_later() {
    let scene = Scene::new();
    scene.behave(Behaviour::Damages, 1);
    let error = scene.join().unwrap_err();
    assert!(matches!(&error, JoinError::Damaged(what) if what.contains("checksum")), "{error}");
    assert_eq!(scene.asked(), [0, 1, 1, 1]);
    scene.has_nothing();
    scene.behave(Behaviour::Good, 0);
    let summary = scene.join().unwrap();
    assert_eq!(scene.asked(), [1, 2], "the first piece was kept");
    assert!(summary.kept_bytes > 0, "{summary:?}");
    assert!(summary.kept_bytes < summary.bytes, "{summary:?}");
    assert_eq!(scene.peer.begun.load(Ordering::Relaxed), 1);
    scene.has_all();
}

#[test]
fn damaged_file_of_pieces_is_fetched_again() {
    let scene = Scene::new();
    scene.behave(Behaviour::Damages, 2);
    scene.join().unwrap_err();
    assert_eq!(scene.asked(), [0, 1, 2, 2, 2]);
    scene.behave(Behaviour::Good, 0);
    let pieces = scene.data_dir().join(JOIN_FOLDER).join("pieces");
    let mut bytes = std::fs::read(&pieces).unwrap();
    let at = bytes.len() - 10;
    bytes[at] ^= 1;
    bytes.extend_from_slice(b"cut off");
    std::fs::write(&pieces, bytes).unwrap();
    scene.join().unwrap();
    assert_eq!(scene.asked(), [1, 2]);
    scene.has_all();
}

#[test]
fn restarted_peer_ends_the_join() {
    let scene = Scene::new();
    scene.behave(Behaviour::Forgets, 1);
    assert!(matches!(scene.join(), Err(JoinError::Gone)));
    assert!(!scene.data_dir().join(JOIN_FOLDER).exists(), "nothing of that snapshot is of use");
    scene.has_nothing();
    scene.behave(Behaviour::Good, 0);
    scene.asked();
    scene.join().unwrap();
    assert_eq!(scene.asked(), [0, 1, 2]);
    scene.has_all();
}

#[test]
fn stopped_join_keeps_its_pieces() {
    let scene = Scene::new();
    let data_dir = scene.data_dir();
    let plan = JoinPlan { peer: &scene.url, key: Some("secret"), data_dir: &data_dir, fingerprint: KEY, node: None };
    let stopped = join(&plan, &|| scene.peer.pieces.lock().unwrap().len() > 1, &mut |_| {});
    assert!(matches!(stopped, Err(JoinError::Stopped)), "{stopped:?}");
    scene.has_nothing();
    scene.asked();
    let summary = scene.join().unwrap();
    assert!(summary.kept_bytes > 0);
    assert_eq!(scene.peer.begun.load(Ordering::Relaxed), 1);
    scene.has_all();
}

#[test]
fn silent_peer_does_not_delay_a_stop() {
    for from in [0, 1] {
        let scene = Scene::new();
        scene.behave(Behaviour::Silent, from);
        let data_dir = scene.data_dir();
        let plan =
            JoinPlan { peer: &scene.url, key: Some("secret"), data_dir: &data_dir, fingerprint: KEY, node: None };
        let begun = Instant::now();
        let stops = || from == 0 || scene.peer.pieces.lock().unwrap().len() > 1;
        let stopped = join(&plan, &stops, &mut |_| {});
        assert!(matches!(stopped, Err(JoinError::Stopped)), "{stopped:?}");
        assert!(begun.elapsed() < Duration::from_secs(30), "a request would end after a minute");
        scene.has_nothing();
    }
}

/// Returns the niceness of each thread of this process with a name.
fn niceness(name: &str) -> Vec<i32> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().map(|entry| entry.unwrap().path());
    // A thread may have ended meanwhile.
    let of_name = |path: &Path| std::fs::read_to_string(path.join("comm")).is_ok_and(|said| said.trim() == name);
    let stats = threads.filter(|path| of_name(path)).filter_map(|path| std::fs::read_to_string(path.join("stat")).ok());
    // Fields behind the name, which stands in parentheses; the niceness is the 19th of all.
    stats.filter_map(|stat| stat.rsplit(')').next()?.split_whitespace().nth(16)?.parse().ok()).collect()
}

#[test]
fn threads_of_a_join_let_other_processes_go_first() {
    let scene = Scene::new();
    scene.behave(Behaviour::Silent, 1);
    let data_dir = scene.data_dir();
    let plan = JoinPlan { peer: &scene.url, key: Some("secret"), data_dir: &data_dir, fingerprint: KEY, node: None };
    let (begun, are_nice) = (Instant::now(), Cell::new(false));
    let is_nice = |name: &&str| niceness(name).into_iter().any(|niceness| niceness >= 10);
    // The last look may come after the threads have ended.
    let mut look = |_: &JoinProgress| are_nice.set(are_nice.get() || ["join-fetch", "join-fill"].iter().all(is_nice));
    let stopped = join(&plan, &|| are_nice.get() || begun.elapsed() > Duration::from_secs(20), &mut look);
    assert!(matches!(stopped, Err(JoinError::Stopped)), "{stopped:?}");
    assert!(are_nice.get());
}

#[test]
fn unfit_peers_leave_no_trace() {
    let scene = Scene::new();
    scene.behave(Behaviour::Old, 0);
    assert!(matches!(scene.join(), Err(JoinError::Unable(_))));
    scene.behave(Behaviour::Refuses, 0);
    assert!(matches!(scene.join(), Err(JoinError::Key(why)) if why.contains("invalid")));
    scene.behave(Behaviour::Good, 0);
    assert!(matches!(scene.join_as("n2", "other"), Err(JoinError::OtherCodeSecret(theirs)) if theirs == KEY));
    assert!(matches!(scene.join_as("n1", KEY), Err(JoinError::SameNode(name)) if name == "n1"));
    assert_eq!(scene.peer.ended.load(Ordering::Relaxed), 2, "the peer may close its snapshots");
    assert_eq!(std::fs::read_dir(scene.data_dir()).unwrap().count(), 0);
}
