//! Nodes that share one code space through Redis.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use carom::services::replication::redis::{Redis, RedisSettings, ServerAddress};
use carom_redis::ClientSettings;
use carom_shards::CodeSecret;
use carom_store::links::Links;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::http::{Reply, SHORT_URLS};
use crate::support::links::change;
use crate::support::node::{Node, Setup, wait_for, wait_until};
use crate::support::redis::Server;

/// Nodes that are told nothing but the same Redis and the same key.
pub(crate) struct Fleet {
    _folder: TempDir,
    setups: Vec<Setup>,
}

impl Fleet {
    /// Returns a fleet of some nodes, which have not started yet.
    pub(crate) fn new(nodes: usize, redis: &str) -> Fleet {
        let folder = tempfile::tempdir().unwrap();
        let setups = (0..nodes).map(|number| setup(&folder.path().join(format!("{number}")), number, redis)).collect();
        Fleet { _folder: folder, setups }
    }

    /// Returns the setup of one of them.
    pub(crate) fn setup(&self, number: usize) -> Setup {
        self.setups[number].clone()
    }

    /// Starts all of them, and waits until each has heard of Redis and compared its links.
    pub(crate) fn start(&self) -> Vec<Node> {
        let nodes: Vec<Node> = self.setups.iter().map(Setup::start).collect();
        nodes.iter().for_each(settle);
        nodes
    }
}

/// The secret key of the nodes.
pub(crate) const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// Warnings that a busy machine causes: a heartbeat waits half a second for Redis, a lease of codes and each step of a purge one
/// second, and a visit of a limited link five seconds for the reports of other nodes.
pub(crate) const LATE: [&str; 4] =
    ["redis_away", "codes_failed", "a purge could not be carried out", "Redis may have lost visits"];

/// A node of that number: on one core, and every second one on two. It waits for Redis, which shares its CPUs with other tests,
/// for as long as a node may.
pub(crate) fn setup(data_dir: &Path, number: usize, redis: &str) -> Setup {
    let setup = Setup::new(data_dir)
        .cores(1 + number % 2)
        .env("CAROM_SPACE_KEY", KEY)
        .env("CAROM_FLEET_NODE", &format!("n{number}"))
        .env("CAROM_FLEET_ANSWER_MS", "1000")
        .env("CAROM_FLEET_LOOK_UP_MS", "1000")
        .argument("--redis")
        .argument(redis);
    LATE.into_iter().fold(setup, Setup::expect)
}

/// A node that waits for Redis for as long as nodes usually do, for tests of outages and of timeouts.
pub(crate) fn with_usual_timeouts(setup: Setup) -> Setup {
    setup.env("CAROM_FLEET_ANSWER_MS", "auto").env("CAROM_FLEET_LOOK_UP_MS", "auto")
}

/// Memory for the links of a node whose links are in Redis, in bytes.
pub(crate) const HOT_LIMIT: u64 = 1 << 20;

/// A node whose links are in Redis.
pub(crate) fn shared(setup: Setup) -> Setup {
    let setup = setup.env("CAROM_LINKS_HOME", "shared").env("CAROM_LINKS_MEMORY_LIMIT", &HOT_LIMIT.to_string());
    setup.env("CAROM_FLEET_RETENTION", "forever")
}

/// Waits until a node has heard of Redis, has nothing to bring there or to compare, and can create links.
pub(crate) fn settle(node: &Node) {
    wait_until("a node that agrees with Redis", || {
        let status = node.status();
        let fleet = &status["fleet"];
        let is_agreed = fleet["comparing"] == 0 && fleet["outbox"] == 0;
        status["redis"]["connected"] == true && is_agreed && has_codes(&status)
    });
}

/// True if every core has codes: on a busy machine, the first lease may take longer than a create waits for it.
fn has_codes(status: &Value) -> bool {
    let cores = status["cores"].as_array().expect("a list of cores");
    cores.iter().all(|core| core["codes"]["remaining"].as_u64() > Some(0))
}

/// Returns the names of the nodes that a node has stored.
pub(crate) fn stored_members(setup: &Setup) -> Vec<String> {
    let Ok(content) = std::fs::read(setup.data_dir().join("members.json")) else { return Vec::new() };
    let content: Value = serde_json::from_slice(&content).unwrap();
    serde_json::from_value(content["nodes"].clone()).unwrap()
}

pub(crate) const WITHIN: Duration = Duration::from_secs(10);

/// A client with keys of its own.
pub(crate) fn connect(server: &Server) -> Redis {
    connect_as("test", server)
}

/// A client with the keys of the fleet that has this prefix.
pub(crate) fn connect_as(prefix: &str, server: &Server) -> Redis {
    let client = ClientSettings::plain(ServerAddress { host: "127.0.0.1".to_owned(), port: server.port() });
    let settings = RedisSettings { client, prefix: prefix.to_owned(), stream_len: 100_000 };
    Redis::new(Arc::new(settings)).unwrap()
}

/// The store of a node that does not run.
pub(crate) fn open_links(setup: &Setup) -> Links {
    let secret = CodeSecret::from_hex(KEY).expect("a secret");
    Links::open(&setup.data_dir().join("links"), &secret.fingerprint()).expect("the store opens").0
}

pub(crate) fn redirects(node: &Node, slug: &str, target: &str) -> bool {
    let reply = node.wire().get(&format!("/{slug}"));
    reply.status == 302 && reply.location() == target
}

/// Asks until a node no longer answers that it cannot know (503), which a slow Redis causes. Returns the first other answer.
pub(crate) fn known(mut ask: impl FnMut() -> Reply) -> Reply {
    wait_for("an answer that is known", || Some(ask()).filter(|reply| reply.status != 503))
}

/// Changes a link, once Redis answers in time. Returns the response.
pub(crate) fn changed(node: &Node, code: &str, fields: &Value) -> Reply {
    known(|| change(&mut node.wire(), code, fields))
}

/// Deletes a link, once Redis answers in time. A delete that was not confirmed (503) may have ended the link already.
pub(crate) fn delete(node: &Node, code: &str) {
    let mut may_be_gone = false;
    let reply = known(|| {
        let reply = node.wire().delete(code);
        may_be_gone |= reply.status == 503;
        reply
    });
    let is_deleted = if may_be_gone { matches!(reply.status, 204 | 404) } else { reply.status == 204 };
    assert!(is_deleted, "{code}: {reply:?}");
}

/// Time after which a node that waits for the link of another one decides alone: half of `fleet.answer_ms`.
const ALONE_AFTER: Duration = Duration::from_millis(500);

/// Runs rounds, each of which returns true if all nodes agree, until so many have. They must agree while Redis answers in time. When
/// it does not, a node decides alone: another round takes the place of such a one.
pub(crate) fn agreeing_rounds(nodes: &[Node], count: usize, mut agrees: impl FnMut(usize) -> bool) {
    let errors = || nodes.iter().map(|node| node.status()["redis"]["error"].as_u64().unwrap()).sum::<u64>();
    let (mut agreed, mut round) = (0, 0);
    while agreed < count {
        assert!(round < count + count.div_ceil(2) + 3, "of {round} rounds, {agreed} agreed");
        let (before, begun) = (errors(), Instant::now());
        if agrees(round) {
            agreed += 1;
        } else {
            let took = begun.elapsed();
            assert!(took >= ALONE_AFTER || errors() > before, "nodes disagree in round {round}, after {took:?}");
        }
        round += 1;
    }
}

/// Checks that the first answer that a node knows is a redirect.
pub(crate) fn assert_redirects(node: &Node, code: &str, target: &str) {
    let reply = known(|| node.wire().get(&format!("/{code}")));
    assert_eq!((reply.status, reply.field("location")), (302, Some(target)), "{code}: {reply:?}");
}

/// Checks that all of these times but a tenth are shorter than a second: a machine that stands still makes one or two longer.
pub(crate) fn is_usually_within_a_second(mut times: Vec<Duration>) {
    times.sort_unstable();
    let usual = times[(times.len() - 1) * 9 / 10];
    assert!(usual < Duration::from_secs(1), "{times:?}");
}

/// Checks that more than half of these times are shorter than `longest`: a machine that stands still makes some longer, and a wait that
/// should not be makes all longer.
pub(crate) fn most_are_shorter<const N: usize>(mut times: [Duration; N], longest: Duration) {
    times.sort_unstable();
    assert!(times[N / 2] < longest, "{times:?}");
}

/// Checks that a node answers every request for a code with 503, because only a later version can read its state.
pub(crate) fn is_marked(node: &Node, slug: &str) {
    let reply = node.wire().get(&format!("/{slug}"));
    assert_eq!((reply.status, reply.field("retry-after")), (503, Some("1")), "{reply:?}");
    let path = format!("{SHORT_URLS}/{slug}");
    assert_eq!(node.wire().get(&path).status, 503);
    assert_eq!(change(&mut node.wire(), slug, &json!({"title": "lost"})).status, 503);
    assert_eq!(node.wire().ask("DELETE", &path, "", b"").status, 503);
    assert_eq!(node.wire().create(&json!({"longUrl": "https://example.org/", "customSlug": slug})).status, 503);
}
