//! Nodes that the others had forgotten, and that come back.

use super::{Guard, World};
use crate::codes::issued;
use crate::schedules::Simulation;

/// Returns a world of two nodes with one link. Redis has forgotten node 1. Node 0 has restarted since then, so it knows
/// no other node. Now node 1 reaches Redis again.
fn returned(guard: Option<Guard>) -> World {
    let is_pair = |world: &World| world.nodes.len() == 2;
    let mut world = (0..).map(|seed| World::new(seed, guard, false)).find(is_pair).unwrap();
    world.create(0).unwrap();
    world.cut_off(1, true);
    world.forget();
    world.restart(0);
    world.cut_off(1, false);
    world
}

/// Node 0 recycles the code of the removed link, as far as it may while node 1 does nothing.
fn recycle(world: &mut World) {
    // First it waits for the removal, and then for its release.
    for _ in 0..2 {
        world.turn(0);
        world.begin(0);
        world.beat(0);
        world.turn(0);
        world.proceed(0).unwrap();
    }
}

/// Node 1 is a member again, and does not read while the link is removed and another one is created.
fn create_unread(guard: Option<Guard>) -> Result<(), String> {
    let mut world = returned(guard);
    world.beat(1);
    world.turn(1);
    world.expire(0);
    recycle(&mut world);
    world.create(0)?;
    world.rest()
}

#[test]
fn returned_node_counts_once_it_has_read() {
    let mut world = returned(None);
    world.expire(0);
    world.turn(1);
    recycle(&mut world);
    // Node 1 has the removal of the link, and lacks the release of its code.
    world.beat(1);
    assert_eq!(world.create(0), Ok(()));
    assert!(world.live.contains_key(&issued(1)), "the code has a link again");
    world.turn(1);
    assert!(!world.nodes[1].is_gone);
    assert_eq!(world.check_members(issued(1)), Ok(()));
    world.rest().unwrap();
}

#[test]
fn codes_wait_for_a_returned_node() {
    assert_eq!(create_unread(None), Ok(()));
    assert!(create_unread(Some(Guard::Passed)).is_err());
}
