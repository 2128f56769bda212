//! A node that restarts and then dies for good, while all other nodes are behind.

use super::{Faults, Guard, World};
use crate::schedules::Simulation;

/// Returns a world of three nodes without visits. Redis keeps every batch, and nothing fails by itself.
fn three_nodes(guard: Option<Guard>) -> World {
    let is_fit = |world: &World| world.nodes.len() == 3 && world.is_complete;
    let mut world = (0..).map(|seed| World::new(seed, guard, false)).find(is_fit).unwrap();
    world.faults = Faults::default();
    world
}

/// A node is visited, and Redis gets the batch and its number.
fn publish_visit(world: &mut World, node: usize) {
    let visit = world.visits.len();
    world.visit(node);
    world.nodes[node].write_log(world.guard);
    world.nodes[node].sync_log();
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
