//! The distribution of slots over the masters of a cluster, by which a scan of all masters can tell whether keys have moved
//! past it.

use std::time::Duration;

use carom_redis::{RedisCommand, RedisError, RequestRoute, ServerAddress, cmd, text};

use super::client::{Redis, nonsense};

/// Index of the flags of a server in a line of `CLUSTER NODES`.
const FLAGS: usize = 2;

/// Index of the configuration epoch of a server, which grows with each slot that it takes over.
const EPOCH: usize = 6;

/// Index of the first range of slots. Slots that are on the move follow the ranges, in brackets.
const SLOTS: usize = 8;

/// The masters of the fleet at one instant, each with its slots in its own words. Outside a cluster, the one master has no
/// such words.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SlotLayout(Vec<(ServerAddress, String)>);

impl SlotLayout {
    /// True if keys of a slot are being moved to another master.
    pub fn is_moving(&self) -> bool {
        self.0.iter().any(|(_, slots)| slots.contains('['))
    }

    /// True if no key has changed its master between this instant and a later one, at which the masters had the slots of
    /// `later`.
    pub fn is_still(&self, later: &SlotLayout) -> bool {
        self == later && !self.is_moving()
    }
}

impl Redis {
    /// Asks each master which slots it has.
    ///
    /// # Errors
    /// [`RedisError`] if a server does not answer, or refuses.
    pub fn slot_layout(&mut self, within: Duration) -> Result<SlotLayout, RedisError> {
        let masters = self.client.find_masters(within)?;
        if self.client.has_single_server() {
            return Ok(SlotLayout(masters.into_iter().map(|master| (master, String::new())).collect()));
        }
        let nodes = || RedisCommand::Plain(cmd("CLUSTER").arg("NODES").to_owned());
        let questions = masters.iter().map(|master| (RequestRoute::Server(master.clone()), nodes())).collect();
        let answers = self.client.ask_all(questions, within);
        let slots = masters.into_iter().zip(answers).map(|(master, answer)| -> Result<_, RedisError> {
            let slots = own_slots(&text(&answer?)).ok_or_else(|| nonsense("CLUSTER NODES"))?;
            Ok((master, slots))
        });
        slots.collect::<Result<_, RedisError>>().map(SlotLayout)
    }
}

/// Returns the epoch and the slots of the server that sent this answer to `CLUSTER NODES`; `None` if it is malformed.
fn own_slots(nodes: &str) -> Option<String> {
    let is_own =
        |words: &Vec<&str>| words.get(FLAGS).is_some_and(|flags| flags.split(',').any(|flag| flag == "myself"));
    let own = nodes.lines().map(|line| line.split_whitespace().collect::<Vec<&str>>()).find(is_own)?;
    let mut words = vec![*own.get(EPOCH)?];
    words.extend(own.iter().skip(SLOTS));
    Some(words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer of a master to `CLUSTER NODES`, with its epoch and slots.
    fn nodes(epoch: u64, slots: &str) -> String {
        format!(
            "07c37df 127.0.0.1:7002@17002,host slave e7d1eec 0 1426238317239 4 connected\n\
             67ed2db 127.0.0.1:7001@17001,host master - 0 1426238316232 2 connected 8192-16383 [9-<-e7d1eec]\n\
             e7d1eec 127.0.0.1:7000@17000,host myself,master - 0 0 {epoch} connected {slots}\n"
        )
    }

    fn layout(slots: &[&str]) -> SlotLayout {
        let address = |port| ServerAddress { host: "127.0.0.1".to_owned(), port };
        SlotLayout((7000..).zip(slots).map(|(port, slots)| (address(port), (*slots).to_owned())).collect())
    }

    #[test]
    fn server_names_its_own_slots() {
        assert_eq!(own_slots(&nodes(1, "0-8191")).as_deref(), Some("1 0-8191"));
        assert_eq!(own_slots(&nodes(3, "0-8 10-8191 [7->-67ed2db]")).as_deref(), Some("3 0-8 10-8191 [7->-67ed2db]"));
        assert_eq!(own_slots(&nodes(1, "")).as_deref(), Some("1"), "a master may have no slots");
        assert_eq!(own_slots("67ed2db 127.0.0.1:7001@17001 master - 0 0 2 connected 0-9"), None);
        assert_eq!(own_slots("e7d1eec 127.0.0.1:7000@17000 myself,master -"), None);
    }

    #[test]
    fn moved_slots_show_after_a_scan() {
        let before = layout(&["1 0-8191", "2 8192-16383"]);
        assert!(before.is_still(&before));
        assert!(!before.is_still(&layout(&["1 0-8190", "3 8191-16383"])));
        assert!(!before.is_still(&layout(&["4 0-8191", "3 8192-16383"])), "a slot has moved there and back");
        assert!(!before.is_still(&layout(&["1 0-8191", "2 8192-16383", "0"])));
    }

    #[test]
    fn slots_on_the_move_show_before_and_after_a_scan() {
        let (still, moving) = (layout(&["1 0-9"]), layout(&["1 0-9 [7->-67ed2db]"]));
        assert!(!still.is_moving());
        assert!(moving.is_moving());
        assert!(!still.is_still(&moving));
        assert!(!moving.is_still(&moving), "some keys are at one master, and some at the other");
        assert!(layout(&[""]).is_still(&layout(&[""])), "one server has all keys");
    }
}
