//! A ledger of acknowledged changes, which a node must keep; a change whose response was lost has two valid outcomes.
//!
//! Clients change links of their own until the node is gone. Afterwards each key must show one of the states that its
//! client can account for, and no code may have been given out twice, deleted links included.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::support::http::{Reply, SHORT_URLS, Wire, request};
use crate::support::node::{Dice, Node, wait_until};

/// Custom slugs of each client; so few that each is made, deleted and made again many times.
const SLUGS: u64 = 12;

/// Requests that [`Ledger::check`] sends before it reads their answers.
const PIPELINED: usize = 64;

/// The destination of a slug; `None` where it has no link.
type State = Option<String>;

/// One client and what it knows.
#[derive(Debug)]
struct Client {
    name: usize,
    dice: Dice,
    /// Targets made so far: no two changes write the same.
    targets: u64,
    /// For each key the states that are possible, one where the last answer came.
    keys: BTreeMap<String, Vec<State>>,
    /// Issued codes whose links live.
    live: Vec<String>,
    /// Every code that was ever given to this client.
    issued: Vec<String>,
    /// Broken promises, in words.
    broken: Vec<String>,
    /// Changes that were acknowledged.
    acknowledged: u64,
}

/// The knowledge of all clients.
#[derive(Debug)]
pub(crate) struct Ledger {
    clients: Vec<Client>,
}

impl Ledger {
    /// Returns the ledger of some clients that have done nothing yet.
    pub(crate) fn new(clients: usize, dice: &mut Dice) -> Ledger {
        let client = |name| Client {
            name,
            dice: Dice(dice.next()),
            targets: 0,
            keys: BTreeMap::new(),
            live: Vec::new(),
            issued: Vec::new(),
            broken: Vec::new(),
            acknowledged: 0,
        };
        Ledger { clients: (0..clients).map(client).collect() }
    }

    /// Lets all clients change links until the node is gone; meanwhile `end` ends it.
    pub(crate) fn run<R>(&mut self, address: SocketAddr, end: impl FnOnce() -> R) -> R {
        self.run_counted(address, |_| end())
    }

    /// Lets all clients change links, and calls `end`, which ends the node, once this many changes were answered and
    /// `then` has passed. Counting makes the load of a test independent of the speed of the disk.
    pub(crate) fn run_until<R>(
        &mut self,
        address: SocketAddr,
        changes: u64,
        then: Duration,
        end: impl FnOnce() -> R,
    ) -> R {
        self.run_counted(address, |answered| {
            wait_until("answered changes", || answered.load(Ordering::Relaxed) >= changes);
            std::thread::sleep(then);
            end()
        })
    }

    fn run_counted<R>(&mut self, address: SocketAddr, end: impl FnOnce(&AtomicU64) -> R) -> R {
        let answered = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for client in &mut self.clients {
                scope.spawn(|| client.run(address, &answered));
            }
            end(&answered)
        })
    }

    /// Returns the number of changes that were acknowledged.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.clients.iter().map(|client| client.acknowledged).sum()
    }

    /// Returns the number of codes that were given out.
    pub(crate) fn issued(&self) -> usize {
        self.clients.iter().map(|client| client.issued.len()).sum()
    }

    /// Compares a node with what was promised, and returns what was not kept. `one_in` 1 looks at every key; a larger
    /// number at a part of them, and always at those whose last change was not answered.
    pub(crate) fn check(&mut self, node: &Node, one_in: u64) -> Vec<String> {
        let mut broken = self.given_twice();
        for client in &mut self.clients {
            client.check(&mut node.wire(), one_in);
            broken.append(&mut client.broken);
        }
        broken
    }

    fn given_twice(&self) -> Vec<String> {
        let mut seen = HashSet::new();
        let all = self.clients.iter().flat_map(|client| &client.issued);
        all.filter(|code| !seen.insert(code.as_str())).map(|code| format!("{code} was given out twice")).collect()
    }
}

impl Client {
    fn run(&mut self, address: SocketAddr, answered: &AtomicU64) {
        let Ok(mut wire) = Wire::try_open(address) else { return };
        while self.change(&mut wire).is_ok() {
            answered.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// One change; an error when its answer does not come.
    fn change(&mut self, wire: &mut Wire) -> io::Result<()> {
        match self.dice.below(10) {
            0..5 => self.create_issued(wire),
            5..8 => {
                let slug = format!("slug-{}-{}", self.name, self.dice.below(SLUGS));
                match self.dice.below(2) {
                    0 => self.create_custom(wire, slug),
                    _ => self.delete(wire, slug),
                }
            }
            _ if self.live.is_empty() => self.create_issued(wire),
            _ => {
                let at = self.dice.below(self.live.len() as u64) as usize;
                let code = self.live.swap_remove(at);
                self.delete(wire, code)
            }
        }
    }

    fn create_issued(&mut self, wire: &mut Wire) -> io::Result<()> {
        let target = self.target();
        // Without an answer nobody knows the code, so nothing was promised.
        let reply = wire.try_create(&json!({"longUrl": target}))?;
        if !self.is_done(&reply, 200) {
            return Ok(());
        }
        let code = reply.code();
        self.issued.push(code.clone());
        self.live.push(code.clone());
        self.keys.insert(code, vec![Some(target)]);
        Ok(())
    }

    fn create_custom(&mut self, wire: &mut Wire, slug: String) -> io::Result<()> {
        let target = self.target();
        let before = self.states(&slug);
        self.allow(&slug, Some(target.clone()));
        let reply = wire.try_create(&json!({"longUrl": target, "customSlug": slug}))?;
        let taken: Vec<State> = before.iter().filter(|state| state.is_some()).cloned().collect();
        let states = match reply.status {
            400 if !taken.is_empty() => taken,
            200 if before.contains(&None) => vec![Some(target)],
            status => {
                self.broken.push(format!("{slug} with {before:?} was answered with {status}: {}", reply.text()));
                before
            }
        };
        self.acknowledged += 1;
        self.keys.insert(slug, states);
        Ok(())
    }

    fn delete(&mut self, wire: &mut Wire, key: String) -> io::Result<()> {
        let before = self.states(&key);
        self.allow(&key, None);
        let reply = wire.try_ask("DELETE", &format!("{SHORT_URLS}/{key}"), "", b"")?;
        let fits = match reply.status {
            204 => before.iter().any(Option::is_some),
            404 => before.contains(&None),
            _ => false,
        };
        if !fits {
            self.broken.push(format!("deleting {key} with {before:?} was answered with {}", reply.status));
        }
        self.acknowledged += 1;
        self.keys.insert(key, vec![None]);
        Ok(())
    }

    /// True if an answer has the status of success; any other is a broken promise.
    fn is_done(&mut self, reply: &Reply, status: u16) -> bool {
        let done = reply.status == status;
        if done {
            self.acknowledged += 1;
        } else {
            self.broken.push(format!("refused with {}: {}", reply.status, reply.text()));
        }
        done
    }

    fn target(&mut self) -> String {
        self.targets += 1;
        format!("https://example.org/{}/{}", self.name, self.targets)
    }

    fn states(&self, key: &str) -> Vec<State> {
        self.keys.get(key).cloned().unwrap_or_else(|| vec![None])
    }

    /// Until its answer comes, a change may have happened or not.
    fn allow(&mut self, key: &str, state: State) {
        let mut states = self.states(key);
        states.push(state);
        self.keys.insert(key.to_owned(), states);
    }

    /// Looks at keys, and takes what is found for settled.
    fn check(&mut self, wire: &mut Wire, one_in: u64) {
        let dice = &mut self.dice;
        let keys: Vec<String> = self
            .keys
            .iter()
            .filter(|(_, states)| states.len() > 1 || dice.below(one_in) == 0)
            .map(|(key, _)| key.clone())
            .collect();
        for keys in keys.chunks(PIPELINED) {
            let ask = |key: &String| request("GET", &format!("/{key}"), "", b"");
            wire.send(&keys.iter().flat_map(ask).collect::<Vec<u8>>());
            for key in keys {
                self.check_one(key, &wire.reply());
            }
        }
    }

    fn check_one(&mut self, key: &str, reply: &Reply) {
        let found: State = match reply.status {
            302 => Some(reply.location().to_owned()),
            404 => None,
            status => return self.broken.push(format!("{key} was answered with {status}")),
        };
        let states = self.states(key);
        if states.contains(&found) {
            // An issued code whose deletion did not happen is live again.
            if states.len() > 1 && found.is_some() && !key.starts_with("slug-") {
                self.live.push(key.to_owned());
            }
        } else {
            self.broken.push(format!("{key} shows {found:?}, which is none of {states:?}"));
        }
        self.keys.insert(key.to_owned(), vec![found]);
    }
}
