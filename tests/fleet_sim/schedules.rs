//! Schedules of a world: a seed draws each, two threads run them, and a failure is reported with the fewest steps that
//! show it.
//!
//! `CAROM_SIM_SCHEDULES` sets how many schedules of each world are run. `CAROM_SIM_SEED` replays one and prints its steps.
//! `CAROM_SIM_STEPS` ends schedules early: all that has happened until then stays the same.

use std::fmt::Debug;
use std::panic::RefUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Schedules within which a guard that is left out must be missed.
const GUARD_SCHEDULES: u64 = 10_000;

/// A world whose steps a seed draws.
pub(crate) trait Simulation: Sized {
    /// The rules that keep the promises of the world. A schedule may leave out one of them.
    type Guard: Copy + Debug + RefUnwindSafe + Sync;

    /// Returns the world at the beginning of the schedule of a seed. With `trace`, it prints its steps.
    fn new(seed: u64, guard: Option<Self::Guard>, trace: bool) -> Self;

    /// Draws the number of steps.
    fn draw_steps(&mut self) -> usize;

    /// Takes the step with that number, which is 1 for the first one. Fails if it breaks a promise.
    fn step(&mut self, number: usize) -> Result<(), String>;

    /// Ends all faults, lets everything come to rest and checks the promises.
    fn rest(&mut self) -> Result<(), String>;
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Returns the most steps of a schedule, if the environment sets them.
fn steps_max() -> Option<usize> {
    setting("CAROM_SIM_STEPS").map(|steps| steps as usize)
}

/// Runs the schedule of a seed, or the first `most` of its steps.
fn run<S: Simulation>(seed: u64, most: Option<usize>, guard: Option<S::Guard>, trace: bool) -> Result<(), String> {
    let mut world = S::new(seed, guard, trace);
    let steps = world.draw_steps();
    for number in 1..=most.map_or(steps, |most| most.min(steps)) {
        world.step(number)?;
    }
    world.rest()
}

/// Runs a schedule without a trace. A panic of the code under test breaks a promise, too.
fn attempt<S: Simulation>(seed: u64, most: Option<usize>, guard: Option<S::Guard>) -> Result<(), String> {
    std::panic::catch_unwind(|| run::<S>(seed, most, guard, false))
        .unwrap_or_else(|_| Err(format!("schedule {seed} panicked")))
}

/// Returns the first seed in each thread's share whose schedule breaks a promise, with the promise.
fn search<S: Simulation>(schedules: u64, guard: Option<S::Guard>) -> Vec<(u64, String)> {
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let worker = || {
        while !stop.load(Ordering::Relaxed) {
            let from = next.fetch_add(100, Ordering::Relaxed);
            if from >= schedules {
                break;
            }
            for seed in from..(from + 100).min(schedules) {
                if let Err(broken) = attempt::<S>(seed, steps_max(), guard) {
                    stop.store(true, Ordering::Relaxed);
                    return Some((seed, broken));
                }
            }
        }
        None
    };
    let mut found: Vec<_> = std::thread::scope(|scope| {
        let threads = [scope.spawn(worker), scope.spawn(worker)];
        threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
    });
    found.sort();
    found
}

/// Returns the fewest steps with which the schedule of a seed breaks a promise, with the promise.
fn shortest<S: Simulation>(seed: u64, guard: Option<S::Guard>) -> Option<(usize, String)> {
    let drawn = S::new(seed, guard, false).draw_steps();
    (0..=drawn).find_map(|most| Some((most, attempt::<S>(seed, Some(most), guard).err()?)))
}

/// Asserts that no schedule of a world breaks a promise.
pub(crate) fn must_hold<S: Simulation>(schedules: u64) {
    if let Some(seed) = setting("CAROM_SIM_SEED") {
        run::<S>(seed, steps_max(), None, true).unwrap();
        return;
    }
    let found = search::<S>(setting("CAROM_SIM_SCHEDULES").unwrap_or(schedules), None);
    let report: Vec<String> = found.iter().map(|(seed, broken)| report::<S>(*seed, broken)).collect();
    assert!(report.is_empty(), "{}", report.join("\n"));
}

/// Describes a broken promise, and how to see its steps.
fn report<S: Simulation>(seed: u64, broken: &str) -> String {
    let short = shortest::<S>(seed, None).map(|(steps, broken)| format!("; with CAROM_SIM_STEPS={steps}: {broken}"));
    format!("CAROM_SIM_SEED={seed}: {broken}{}", short.unwrap_or_default())
}

/// Asserts that some schedule of a world breaks a promise without this guard.
pub(crate) fn must_matter<S: Simulation>(guard: S::Guard) {
    let found = search::<S>(GUARD_SCHEDULES, Some(guard));
    let (seed, broken) = found.first().unwrap_or_else(|| panic!("nothing breaks without {guard:?}"));
    println!("without {guard:?}, schedule {seed}: {broken}");
}

/// A world that breaks its promise with the seventh step.
struct Seventh {
    steps: usize,
}

impl Simulation for Seventh {
    type Guard = ();

    fn new(_: u64, _: Option<()>, _: bool) -> Seventh {
        Seventh { steps: 0 }
    }

    fn draw_steps(&mut self) -> usize {
        20
    }

    fn step(&mut self, number: usize) -> Result<(), String> {
        self.steps = number;
        Ok(())
    }

    fn rest(&mut self) -> Result<(), String> {
        if self.steps < 7 { Ok(()) } else { Err(format!("step {} was taken", self.steps)) }
    }
}

#[test]
fn report_names_the_fewest_steps_that_fail() {
    assert_eq!(shortest::<Seventh>(1, None), Some((7, "step 7 was taken".to_owned())));
    let report = report::<Seventh>(1, "step 20 was taken");
    assert_eq!(report, "CAROM_SIM_SEED=1: step 20 was taken; with CAROM_SIM_STEPS=7: step 7 was taken");
}
