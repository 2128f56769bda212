//! A node that restarts and then dies for good, while all other nodes are behind.
//!
//! A restart publishes the batches of the count log again. A fold removes the log, also if Redis lacks its batches, as
//! after an outage. Then the other nodes need a snapshot before they can apply the later batches.

use super::{Faults, Guard, World};
use crate::schedules::Simulation;

/// Returns a world of three nodes without visits. Redis keeps every batch, and nothing fails by itself.
fn three_nodes(guard: Option<Guard>) -> World {
    let is_fit = |world: &World| world.nodes.len() == 3 && world.is_complete;
    let mut world = (0..).map(|seed| World::new(seed, guard, false)).find(is_fit).unwrap();
    world.faults = Faults::default();
    world
}

/// A node is visited, and the batch is in its log.
fn log_visit(world: &mut World, node: usize) {
    world.visit(node);
    world.nodes[node].write_log(world.guard);
    world.nodes[node].sync_log();
}

/// A node is visited, and Redis gets the batch and its number.
fn publish_visit(world: &mut World, node: usize) {
    let visit = world.visits.len();
    log_visit(world, node);
    assert!(world.publish(node).is_ok());
    assert!(world.turn(node).is_ok());
    assert!(world.visits[visit].is_known);
}

/// Lets node 0 publish a batch, fold it, start again, publish another one and die for good. Only then do the others read.
fn read_after_a_restart(guard: Option<Guard>) -> Result<(), String> {
    let mut world = three_nodes(guard);
    publish_visit(&mut world, 0);
    while world.nodes[0].fold(guard) {}
    world.kill(0, false);
    world.start(0);
    publish_visit(&mut world, 0);
    world.lose(0);
    world.rest()
}

#[test]
fn batches_from_before_a_restart_stay() {
    assert_eq!(read_after_a_restart(None), Ok(()));
    let broken = read_after_a_restart(Some(Guard::Earlier)).unwrap_err();
    assert!(broken.contains("no node counts visit 0"), "{broken}");
}

/// Starts a node again that could not publish its first batch, and lets it publish a second one.
fn publish_after_a_restart(world: &mut World, is_folded: bool) {
    log_visit(world, 0);
    while is_folded && world.nodes[0].fold(None) {}
    world.kill(0, false);
    world.start(0);
    publish_visit(world, 0);
}

/// Returns the visits that each of the nodes that are left counts.
fn counted(world: &World) -> Vec<Vec<u16>> {
    world.live().map(|(_, node)| node.totals(None).into_keys().collect()).collect()
}

#[test]
fn restart_publishes_the_batches_of_the_log() {
    let mut world = three_nodes(None);
    publish_after_a_restart(&mut world, false);
    assert!(world.unsent.is_empty());
    world.lose(0);
    assert_eq!(world.rest(), Ok(()));
    assert_eq!(counted(&world), [[0, 1], [0, 1]]);
}

#[test]
fn folded_batches_need_a_snapshot() {
    let mut world = three_nodes(None);
    publish_after_a_restart(&mut world, true);
    assert_eq!(world.rest(), Ok(()));
    assert_eq!(counted(&world), [[0, 1], [0, 1], [0, 1]]);
}

#[test]
fn batches_behind_a_lost_one_stay_missing() {
    let mut world = three_nodes(None);
    publish_after_a_restart(&mut world, true);
    let origin = world.process(0).counts.own_origin();
    assert_eq!((origin.1, world.unsent.get(&origin.0)), (2, Some(&1)));
    world.lose(0);
    assert_eq!(world.rest(), Ok(()));
    assert!(counted(&world).iter().all(Vec::is_empty), "the first batch is lost with the node");
    for node in [1, 2] {
        let lacks: Vec<_> = world.process(node).others.lacks().map(|(of, ..)| of).collect();
        assert_eq!(lacks, [origin.0], "node {node} says that visits are missing");
    }
}
