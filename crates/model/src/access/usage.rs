//! The activity of an app, and its rate limit: atomic counters that all cores share.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::AppName;
use crate::access::rate::Gcra;

/// The whole of a rate limit, in the unit of [`share_of`].
const WHOLE: u32 = 1_000_000;

/// Part of a rate limit that the nodes of a fleet divide evenly, whatever arrives where: a tenth.
const EVEN: u64 = WHOLE as u64 / 10;

/// Returns the share of a node in a rate limit, in millionths: `own` of `all` creates arrived there, and so many
/// `nodes` divide the limit. The shares of all nodes add up to the whole.
pub fn share_of(own: u64, all: u64, nodes: usize) -> u32 {
    let nodes = nodes.max(1) as u64;
    let whole = u64::from(WHOLE);
    let share = match all {
        0 => whole / nodes,
        all => EVEN / nodes + (u128::from(whole - EVEN) * u128::from(own.min(all)) / u128::from(all)) as u64,
    };
    share.min(whole) as u32
}

/// The state of an app that cores share. It outlives changes of its keys.
#[derive(Debug)]
pub struct App {
    /// The name of the app.
    pub name: AppName,
    /// Authenticated requests of the app.
    pub requests: AtomicU64,
    /// Links that the app has created.
    pub creates: AtomicU64,
    /// Creates refused by the rate limit.
    pub limited: AtomicU64,
    /// Requests refused because the role or domains of the key do not allow them.
    pub forbidden: AtomicU64,
    /// The last request, in milliseconds since 1970 UTC; 0 before the first.
    pub seen_ms: AtomicU64,
    /// The version that the app last reported of itself.
    version: Mutex<Option<String>>,
    rate: Rate,
    /// Creates that were tried, refused or not.
    tried: AtomicU64,
    /// The share of this node in the rate limit of the fleet, in millionths.
    share: AtomicU32,
}

impl App {
    /// Returns the state of an app before its first request.
    pub fn new(name: AppName) -> App {
        App {
            name,
            requests: AtomicU64::new(0),
            creates: AtomicU64::new(0),
            limited: AtomicU64::new(0),
            forbidden: AtomicU64::new(0),
            seen_ms: AtomicU64::new(0),
            version: Mutex::default(),
            rate: Rate::default(),
            tried: AtomicU64::new(0),
            share: AtomicU32::new(WHOLE),
        }
    }

    /// Counts a request, and records the version that the app reports with it.
    pub fn note(&self, now_ms: u64, version: Option<&str>) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.seen_ms.store(now_ms, Ordering::Relaxed);
        if let Some(version) = version {
            let mut known = self.version.lock().unwrap_or_else(PoisonError::into_inner);
            if known.as_deref() != Some(version) {
                *known = Some(version.to_owned());
            }
        }
    }

    /// Returns the version that the app last reported of itself.
    pub fn version(&self) -> Option<String> {
        self.version.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of creates that were tried, refused or not.
    pub fn tried(&self) -> u64 {
        self.tried.load(Ordering::Relaxed)
    }

    /// Sets the share of this node in the rate limit of the fleet, as [`share_of`] returns it.
    pub fn set_share(&self, share: u32) {
        self.share.store(share, Ordering::Relaxed);
    }

    /// Takes one create from the node's share of a rate limit of `per_second`, at the instant `now` of the shared
    /// clock.
    ///
    /// # Errors
    /// The exhausted quota, with the time until the next create.
    pub fn take_create(&self, per_second: u32, now: Duration) -> Result<Quota, Quota> {
        self.tried.fetch_add(1, Ordering::Relaxed);
        let taken = self.rate.take_share(per_second, self.share.load(Ordering::Relaxed), now);
        if taken.is_err() {
            self.limited.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }
}

/// The state of a rate limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quota {
    /// Creates per second, which is also the burst.
    pub limit: u32,
    /// Creates that are possible at once now.
    pub remaining: u32,
    /// Time until the full burst is available.
    pub reset: Duration,
    /// Time until the next create; zero if one is possible now.
    pub wait: Duration,
}

/// A rate that is taken from without a lock.
#[derive(Debug, Default)]
pub struct Rate {
    /// The instant at which the next one is due ([`Gcra`]), in nanoseconds of the clock that callers share.
    due: AtomicU64,
}

impl Rate {
    /// Takes one request from a limit of `per_second`, whose burst is a second's worth.
    ///
    /// # Errors
    /// The exhausted quota, with the time to wait.
    pub fn take(&self, per_second: u32, now: Duration) -> Result<Quota, Quota> {
        self.take_share(per_second, WHOLE, now)
    }

    /// Takes one request from a share of a limit of `per_second`, in millionths. The burst is a second's worth of the
    /// share, but at least one request.
    ///
    /// # Errors
    /// The exhausted quota, with the time to wait.
    fn take_share(&self, per_second: u32, share: u32, now: Duration) -> Result<Quota, Quota> {
        let per_second = per_second.max(1);
        let of_second = (u64::from(per_second) * u64::from(share.clamp(1, WHOLE))).max(1);
        let step = (1_000_000_000 * u64::from(WHOLE) / of_second).max(1);
        // The whole steps that fit in a second.
        let burst = (step * (of_second / u64::from(WHOLE))).min(1_000_000_000);
        let rate = Gcra::new(step, burst.max(step));
        let now = now.as_nanos() as u64;
        let mut due = self.due.load(Ordering::Relaxed);
        loop {
            let quota = |due: u64| Quota {
                limit: per_second,
                remaining: rate.remaining(due, now) as u32,
                reset: Duration::from_nanos(due.saturating_sub(now)),
                wait: Duration::from_nanos(rate.wait(due, now)),
            };
            let Ok(next) = rate.take(due, now) else { return Err(quota(due)) };
            match self.due.compare_exchange_weak(due, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(quota(next)),
                Err(other) => due = other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(1_000_000 + ms)
    }

    #[test]
    fn a_second_holds_what_it_may_and_no_more() {
        let rate = Rate::default();
        for left in (0..10).rev() {
            let quota = rate.take(10, ms(0)).unwrap();
            assert_eq!((quota.limit, quota.remaining), (10, left));
        }
        let none = rate.take(10, ms(0)).unwrap_err();
        assert_eq!((none.remaining, none.wait, none.reset), (0, Duration::from_millis(100), Duration::from_secs(1)));
        assert!(rate.take(10, ms(99)).is_err());
        assert_eq!(rate.take(10, ms(100)).unwrap().remaining, 0);
        assert!(rate.take(10, ms(150)).is_err());
        assert_eq!(rate.take(10, ms(5_000)).unwrap().remaining, 9, "what was not used is there, and no more");
        // A rate of one a second, and a rate that changes.
        let rate = Rate::default();
        assert!(rate.take(1, ms(0)).is_ok());
        assert!(rate.take(1, ms(999)).is_err());
        assert!(rate.take(1, ms(1_000)).is_ok());
        assert!(rate.take(u32::MAX, ms(1_000)).is_err());
        assert!(rate.take(u32::MAX, ms(2_000)).is_ok());
    }

    #[test]
    fn shares_add_up_to_the_whole() {
        for (demands, shares) in [
            (&[0, 0, 0][..], [333_333, 333_333, 333_333]),
            (&[9, 0, 0], [933_333, 33_333, 33_333]),
            (&[1, 1, 1], [333_333, 333_333, 333_333]),
        ] {
            let all = demands.iter().sum();
            let given: Vec<u32> = demands.iter().map(|own| share_of(*own, all, 3)).collect();
            assert_eq!(given, shares);
        }
        assert_eq!((share_of(0, 0, 0), share_of(5, 5, 1), share_of(u64::MAX, u64::MAX, 1)), (WHOLE, WHOLE, WHOLE));
        // A share of 0.05 a second: one at once, and the next after 20 seconds.
        let rate = Rate::default();
        assert!(rate.take_share(1, 50_000, ms(0)).is_ok());
        assert_eq!(rate.take_share(1, 50_000, ms(0)).unwrap_err().wait, Duration::from_secs(20));
        assert!(rate.take_share(1, 50_000, ms(20_000)).is_ok());
        let app = App::new(AppName::parse("shop").unwrap());
        app.set_share(share_of(1, 2, 2));
        let taken = (0..20).filter(|_| app.take_create(10, ms(0)).is_ok()).count();
        assert_eq!((taken, app.tried(), app.limited.load(Ordering::Relaxed)), (5, 20, 15));
    }

    proptest! {
        /// In any second, at most a burst plus what accrues meanwhile.
        #[test]
        fn no_second_holds_more_than_two(per_second in 1..50u32, waits in proptest::collection::vec(0..200u64, 1..300)) {
            let rate = Rate::default();
            let (mut now, mut taken) = (0, Vec::new());
            for wait in waits {
                now += wait;
                match rate.take(per_second, ms(now)) {
                    Ok(quota) => {
                        prop_assert!(quota.remaining < per_second);
                        prop_assert!(quota.wait <= Duration::from_secs(1));
                        taken.push(now);
                    }
                    Err(quota) => prop_assert!(quota.wait > Duration::ZERO && quota.remaining == 0),
                }
            }
            for (at, first) in taken.iter().enumerate() {
                let within = taken[at..].iter().filter(|&&then| then < first + 1_000).count();
                prop_assert!(within <= 2 * per_second as usize);
            }
        }
    }
}
