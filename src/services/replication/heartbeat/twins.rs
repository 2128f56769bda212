//! The search for another process with the name of this node, by the rules of [`carom_model::replication::twins`].

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::services::replication::redis::HeartbeatReply;
use carom_model::replication::twins::{NamedBeat, TWIN_SILENCE, TwinWatch};

/// The knowledge about other processes with the name of this node.
pub(super) struct Twins {
    watch: TwinWatch,
    /// The lock file that this process holds; `None` if it is unknown.
    lock_file: Option<String>,
    /// A description of this process, for people.
    own: ProcessText,
    /// The last other process that was seen, for people.
    other: Option<ProcessText>,
}

/// The marks by which people find a process.
#[derive(Clone, PartialEq, Eq, Debug)]
struct ProcessText {
    host: String,
    pid: u64,
    /// The address of the admin listener.
    admin: String,
}

impl ProcessText {
    /// Returns the marks in the description of a heartbeat.
    fn of(about: &Value) -> ProcessText {
        let text = |name: &str| about[name].as_str().unwrap_or("?").to_owned();
        ProcessText { host: text("host"), pid: about["pid"].as_u64().unwrap_or(0), admin: text("admin") }
    }

    fn to_text(&self) -> String {
        format!("process {} on {}, admin listener {}", self.pid, self.host, self.admin)
    }
}

impl Twins {
    /// Returns the state before the first heartbeat. `instance` is random. `lock_file` names the file that this process has
    /// locked, so that another process with this file has ended.
    pub(super) fn new(instance: u64, admin: SocketAddr, lock_file: Option<String>) -> Twins {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let own = ProcessText { host, pid: u64::from(std::process::id()), admin: admin.to_string() };
        Twins { watch: TwinWatch::new(instance), lock_file, own, other: None }
    }

    /// True if this process must accept no writes and send no heartbeats.
    pub(super) fn gives_way(&self) -> bool {
        self.watch.gives_way()
    }

    /// True if this process neither knows nor suspects another one with its name.
    pub(super) fn is_alone(&self, now: Duration) -> bool {
        self.watch.is_alone(now)
    }

    /// Returns the part of a heartbeat that describes this process.
    pub(super) fn describe(&self) -> Value {
        let ProcessText { host, pid, admin } = &self.own;
        let id = format!("{:016x}", self.watch.instance());
        let since_ms = self.watch.since_ms();
        json!({
            "id": id, "sinceMillis": since_ms, "host": host, "pid": pid, "admin": admin, "lockFile": self.lock_file,
        })
    }

    /// Takes the answer to a heartbeat of this process, which runs as the node `name`.
    pub(super) fn observe(&mut self, name: &str, heard: &HeartbeatReply, now: Duration) {
        let replaced = self.read(&heard.replaced);
        if let Some((beat_ms, _)) = heard.heartbeat_of(name) {
            self.watch.observe(beat_ms, replaced, now);
        }
    }

    /// Takes all heartbeats as this process reads them while it sends none.
    pub(super) fn look(&mut self, name: &str, heard: &HeartbeatReply, now: Duration) {
        let present = heard.heartbeat_of(name).and_then(|(_, about)| self.read(about));
        self.watch.look(present, now);
    }

    /// Returns the heartbeat with this description, and remembers its process if it is another one.
    fn read(&mut self, about: &str) -> Option<NamedBeat> {
        let about: Value = serde_json::from_str(about).ok()?;
        let process = &about["instance"];
        let instance = u64::from_str_radix(process["id"].as_str()?, 16).ok()?;
        if instance != self.watch.instance() {
            self.other = Some(ProcessText::of(process));
        }
        // A process that has left its grants takes no more of them.
        let has_left = about["leftGrants"].as_bool() == Some(true);
        let has_ended = has_left || self.lock_file.as_deref().is_some_and(|own| process["lockFile"] == own);
        let since_ms = process["sinceMillis"].as_u64();
        Some(NamedBeat { instance, since_ms, number: about["beat"].as_u64()?, has_ended })
    }

    /// Describes the problem and its remedy; `None` if no other process has the name.
    pub(super) fn problem(&self, name: &str) -> Option<String> {
        let other = self.other.as_ref().filter(|_| self.watch.has_twin())?;
        let (own, other, silence) = (self.own.to_text(), other.to_text(), TWIN_SILENCE.as_secs());
        let outcome = if self.watch.gives_way() {
            format!("this one joined later and refuses writes until the other one is silent for {silence} seconds")
        } else {
            "the other one joined later and refuses writes".to_owned()
        };
        Some(format!(
            "two processes run as the node {name}: this one ({own}) and another one ({other}); {outcome}; stop one of them, or give it its own fleet.node and data directory"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_processes_are_named() {
        let admin = SocketAddr::from(([10, 0, 0, 1], 8081));
        let mut twins = Twins::new(7, admin, None);
        assert_eq!(twins.problem("n0"), None);
        let own = json!({"instance": twins.describe(), "beat": 3}).to_string();
        assert_eq!(twins.read(&own), Some(NamedBeat { instance: 7, since_ms: None, number: 3, has_ended: false }));
        assert!(twins.other.is_none());
        let other = json!({"id": "000000000000000f", "sinceMillis": 5, "host": "web2", "pid": 12, "admin": "[::1]:9"});
        let heard = |beat: u64| HeartbeatReply {
            beats: vec![("n0".to_owned(), 9 + beat)],
            about: vec![("n0".to_owned(), json!({"instance": other, "beat": beat}).to_string())],
            replaced: json!({"instance": other, "beat": beat}).to_string(),
            ..HeartbeatReply::default()
        };
        for beat in 0..3 {
            assert!(!twins.gives_way());
            twins.observe("n0", &heard(beat), Duration::from_secs(beat));
        }
        let text = twins.problem("n0").unwrap();
        let (host, pid) = (&twins.own.host, std::process::id());
        assert!(
            text.contains(&format!("the node n0: this one (process {pid} on {host}, admin listener 10.0.0.1:8081)"))
        );
        assert!(text.contains("another one (process 12 on web2, admin listener [::1]:9)"), "{text}");
        assert!(twins.gives_way(), "{text}");
        assert!(text.contains("this one joined later and refuses writes until"), "{text}");
        assert_eq!(twins.describe()["sinceMillis"], 9);
        twins.look("n0", &heard(3), Duration::from_secs(4));
        assert!(twins.gives_way());
        (5..20).for_each(|second| twins.look("n0", &heard(3), Duration::from_secs(second)));
        assert!(!twins.gives_way(), "the other one is silent");
        assert!(twins.problem("n0").is_none(), "the other one is silent");
    }

    #[test]
    fn only_an_ended_predecessor_is_taken_for_one() {
        let admin = SocketAddr::from(([127, 0, 0, 1], 1));
        let heard = |has_left: bool, lock_file: Value| {
            let instance = json!({"id": "000000000000000f", "sinceMillis": 5, "lockFile": lock_file});
            json!({"instance": instance, "beat": 3, "leftGrants": has_left}).to_string()
        };
        let mut twins = Twins::new(7, admin, Some("boot/1/2".to_owned()));
        let cases = [
            (false, json!("boot/1/2"), true),
            (false, json!("boot/1/3"), false),
            (false, Value::Null, false),
            (true, json!("other/1/2"), true),
        ];
        for (has_left, lock_file, has_ended) in cases {
            let text = heard(has_left, lock_file);
            assert_eq!(twins.read(&text).unwrap().has_ended, has_ended, "{text}");
        }
        let mut twins = Twins::new(7, admin, None);
        assert!(!twins.read(&heard(false, Value::Null)).unwrap().has_ended, "neither file is known");
    }

    #[test]
    fn heartbeats_of_older_versions_name_no_process() {
        let mut twins = Twins::new(7, SocketAddr::from(([127, 0, 0, 1], 1)), None);
        for about in
            ["", "{}", r#"{"beat": 7}"#, r#"{"beat": 7, "instance": {"id": 7}}"#, r#"{"instance": {"id": "7"}}"#]
        {
            assert_eq!(twins.read(about), None, "{about}");
        }
    }
}
