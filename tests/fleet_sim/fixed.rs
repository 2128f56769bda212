//! Schedules that are written down step by step. The drawn ones change with every step that the simulator learns.

use carom_model::replication::State;

use crate::codes::{Index, PARTS, part_of};
use crate::faults::Faults;
use crate::node::Cut;
use crate::schedules::Simulation;
use crate::versions::Versions;
use crate::world::World;

/// A slug.
const SLUG: Index = 0;

/// Number of turns in which a node does everything that it can do by itself.
const TURNS: usize = 40;

/// Returns a world of two nodes of the next version, which have followed all streams to their ends. Redis has a replica, and
/// nothing fails by itself.
fn two_nodes() -> World {
    let has_followed =
        |world: &World| world.nodes.iter().all(|node| node.store.now.positions.iter().all(Option::is_some));
    let is_fit = |world: &World| world.nodes.len() == 2 && world.redis.replicas > 0 && has_followed(world);
    let mut world = (0..).map(|seed| World::new(seed, None, false)).find(is_fit).unwrap();
    world.faults = Faults::default();
    world.versions = Versions::of(&[true, true]);
    world
}

/// The writer of a node commits all orders.
fn commit(world: &mut World, node: usize) {
    while world.commit_up_to(node, 8, Cut::Not).unwrap() {}
}

/// A node follows, compares and delivers until nothing is left.
fn work(world: &mut World, node: usize) {
    for _ in 0..TURNS {
        for part in 0..PARTS {
            world.follow_part(node, part, 10);
            commit(world, node);
            world.compare_part(node, part);
        }
        world.deliver(node);
        commit(world, node);
    }
}

/// Returns the claim of the state of the slug in Redis.
fn claim(world: &World) -> Option<u64> {
    world.redis.state(SLUG).map(|state| state.version().claim)
}

#[test]
fn delete_outlives_an_older_node_and_a_failover() {
    let mut world = two_nodes();
    world.claims = 0;
    assert!(world.create(1, SLUG));
    [1, 0, 1].into_iter().for_each(|node| work(&mut world, node));
    assert!(world.nodes.iter().all(|node| node.served.get(SLUG).is_some()));
    world.redis.replicate(part_of(SLUG), usize::MAX);
    // Node 1 hears neither of the delete nor of the next link, which is of a kind of the next version.
    assert!(world.delete(0));
    assert!(world.create(0, SLUG));
    commit(&mut world, 0);
    assert!(world.redis.is_later(SLUG));
    // Node 0 goes back, and has nothing but a text that it cannot decode.
    assert!(world.change_version(0).unwrap());
    work(&mut world, 0);
    assert!(world.nodes[0].store.now.unread.contains_key(&SLUG));
    assert!(world.nodes[0].store.now.states.get(SLUG).is_none());
    // Redis loses all of that, and has the first link.
    assert!(world.fail_over(part_of(SLUG)));
    [1, 0].into_iter().for_each(|node| work(&mut world, node));
    assert_eq!(claim(&world), Some(1));
    assert!(!world.look(0).unwrap(), "its client was told that the link is gone");
    // Its text restores what followed, also on the other node.
    assert!(world.read_again(0));
    assert_eq!(claim(&world), Some(2));
    work(&mut world, 1);
    assert_eq!(world.nodes[1].served.get(SLUG).map(State::version).map(|version| version.claim), Some(2));
    assert!(world.nodes[0].served.get(SLUG).is_none());
    world.rest().unwrap();
}

#[test]
fn end_of_a_link_outlives_its_text_on_an_older_node() {
    let mut world = two_nodes();
    world.claims = 1;
    assert!(world.create(1, SLUG));
    work(&mut world, 1);
    assert!(world.redis.is_later(SLUG));
    assert!(world.change_version(0).unwrap());
    work(&mut world, 0);
    assert!(world.nodes[0].store.now.unread.contains_key(&SLUG));
    // Redis loses the link, and hears of its end from node 1 before node 0 asks.
    assert!(world.delete(1));
    commit(&mut world, 1);
    assert!(world.fail_over(part_of(SLUG)));
    work(&mut world, 1);
    assert_eq!(world.redis.state(SLUG).map(State::is_link), Some(false));
    world.read_again(0);
    work(&mut world, 0);
    assert_eq!(world.redis.state(SLUG).map(State::is_link), Some(false));
    assert!(world.nodes[0].store.now.unread.is_empty(), "that is the end of the mark");
    world.rest().unwrap();
}
