//! Nodes that join, and links that an emptied Redis lacks.

use super::{Answer, Command, Data, Faults, Guard, LINKS, Node, Server, World, name};
use crate::schedules::Simulation;
use crate::trace::note;

/// Most nodes of a fleet.
const NODES_MAX: usize = 4;

impl World {
    /// A node joins. Half of them have a copy of the store of `peer`, and start some time later.
    pub(super) fn join(&mut self, peer: usize) {
        if self.nodes.len() >= NODES_MAX {
            return;
        }
        let (number, at, now) = (self.nodes.len(), self.master(), self.number());
        let mut node = Node { at, epoch_at: now, ..Node::default() };
        let is_copy = self.nodes[peer].has_links && self.rng.permille(500);
        note!(self, "node {number} joins, with a copy of node {peer}: {is_copy}");
        if is_copy {
            let copied = &self.nodes[peer];
            (node.epoch, node.known) = (copied.epoch, copied.known.clone());
            (node.has_links, node.is_stopped) = (true, true);
            if !self.leaves_out(Guard::Copied) {
                node.known.insert(peer);
            }
            node.known.remove(&number);
        }
        self.nodes.push(node);
        if !is_copy {
            self.beat(number);
        }
    }

    /// True if a node has the links, or finds them in Redis.
    pub(super) fn finds_links(&mut self, node: usize) -> bool {
        let of = &mut self.nodes[node];
        of.has_links |= !of.is_cut && self.servers[of.at].data.has_links;
        of.has_links
    }

    /// A node brings back the links that its Redis has lost. It has found its positions in the streams lost before.
    pub(super) fn bring_back(&mut self, node: usize) {
        let Node { at, is_cut, has_links, epoch: known, .. } = self.nodes[node];
        if is_cut || !has_links || self.servers[at].data.has_links {
            return;
        }
        if known.number > 0 && !self.leaves_out(Guard::Rival) {
            let nonce = self.number();
            let enter = |known| Command::Enter { node, known, nonce };
            let Some(Answer::Epoch(found, has_reported)) = self.send(node, enter(known)) else { return };
            if let Some(known) = found.rival(Some(known), has_reported, nonce)
                && self.send(node, enter(known)).is_none()
            {
                return;
            }
        }
        // The heartbeat thread is woken first. Others that take the links must know for whose report to wait.
        self.beat(node);
        if !self.nodes[node].is_introduced && !self.leaves_out(Guard::Held) {
            return;
        }
        note!(self, "{} brings back the links", name(node));
        self.servers[at].data.has_links = true;
    }

    /// Notes that a node has heard of all live nodes since its epoch began, if it has.
    pub(super) fn settle(&mut self, node: usize) {
        let of = &self.nodes[node];
        let is_live = |other: &Node| other.has_beaten && !other.is_cut && !other.is_stopped && other.at == of.at;
        let live = self.nodes.iter().enumerate().filter(|(number, other)| *number != node && is_live(other));
        let has_heard = |number: &usize| of.heard.get(number).is_some_and(|time| *time > of.epoch_at);
        let have_all = live.map(|(number, _)| number).all(|number| has_heard(&number));
        self.nodes[node].is_settled |= have_all;
    }
}

/// Returns a world in which node 0 got visits, and was then cut off. Redis was emptied, and two new nodes have completed its
/// epochs, the last of which is later than that of node 0. Now node 0 is back.
fn emptied(guard: Option<Guard>) -> World {
    let mut world = (0..).map(|seed| World::new(seed, guard, false)).find(|world| world.nodes.len() == 1).unwrap();
    (world.faults, world.max) = (Faults::default(), [8; LINKS]);
    world.report_all(0);
    world.beat(0);
    (0..6).for_each(|_| world.visit(0, 0));
    assert_eq!(world.made[0], 6);
    world.nodes[0].is_cut = true;
    world.servers[0].data = Data::default();
    for _ in 0..2 {
        let node = Node { epoch_at: world.number(), ..Node::default() };
        world.nodes.push(node);
    }
    for name in ["s1", "s2"] {
        world.servers[0].name = name.to_owned();
        for node in [1, 2].repeat(4) {
            world.beat(node);
            world.report_all(node);
        }
    }
    world.nodes[0].is_cut = false;
    world
}

/// Lets node 0 bring the links back once the new nodes have heard of it, and the new nodes visit one of them.
fn visit_returned(mut world: World) -> Result<(), String> {
    world.bring_back(0);
    [1, 2].repeat(2).into_iter().for_each(|node| world.beat(node));
    world.bring_back(0);
    assert!(world.servers[0].data.has_links);
    [1, 2].into_iter().for_each(|node| world.beat(node));
    [1, 2].repeat(20).into_iter().for_each(|node| world.visit(node, 0));
    world.check()?;
    world.rest()
}

#[test]
fn returned_node_ends_the_epochs_of_others() {
    assert_eq!(visit_returned(emptied(None)), Ok(()));
    assert!(visit_returned(emptied(Some(Guard::Rival))).is_err());
}

#[test]
fn epoch_that_lacks_a_report_is_ended() {
    let mut world = emptied(None);
    world.begin_report(0);
    assert_eq!(visit_returned(world), Ok(()));
}

/// Returns a world in which node 0 was visited `visits` times before Redis was emptied. Node 1 has joined the emptied Redis
/// and knows of nobody. Node 0 hears of it there and has the links. Then another server takes over, which has nothing. Only
/// node 1 finds it, and node 0 stays at the server that was replaced.
fn replaced_master(guard: Option<Guard>, visits: u64) -> World {
    let mut world = (0..).map(|seed| World::new(seed, guard, false)).find(|world| world.nodes.len() == 1).unwrap();
    (world.faults, world.max) = (Faults::default(), [8; LINKS]);
    world.report_all(0);
    world.beat(0);
    (0..visits).for_each(|_| world.visit(0, 0));
    assert_eq!(world.made[0], visits);
    world.servers[0] = Server { name: "s1".to_owned(), data: Data::default() };
    let node = Node { epoch_at: world.number(), ..Node::default() };
    world.nodes.push(node);
    world.beat(1);
    world.beat(0);
    world.report_all(0);
    world.bring_back(0);
    world.finds_links(1);
    world.report_all(1);
    world.servers.push(Server { name: "s2".to_owned(), data: Data::default() });
    world.nodes[1].at = 1;
    world.beat(1);
    world.report_all(1);
    world.beat(1);
    world.beat(0);
    world
}

/// Lets both nodes visit a link, each at its own server.
fn visit_at_both_servers(mut world: World) -> Result<(), String> {
    [0, 1].repeat(20).into_iter().for_each(|node| world.visit(node, 0));
    world.check()?;
    world.rest()
}

#[test]
fn further_node_hears_of_a_node_first() {
    assert_eq!(visit_at_both_servers(replaced_master(None, 0)), Ok(()));
    assert!(visit_at_both_servers(replaced_master(Some(Guard::Further), 0)).is_err());
}

#[test]
fn links_wait_until_all_hear_of_their_node() {
    assert_eq!(visit_at_both_servers(replaced_master(None, 2)), Ok(()));
    assert!(visit_at_both_servers(replaced_master(Some(Guard::Held), 2)).is_err());
}
