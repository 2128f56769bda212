//! What an app has done, and how much it may do: counters and a rate limit that all cores share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::AppName;
use crate::rate::Gcra;

/// An app as cores know it. It outlives changes of its keys.
#[derive(Debug)]
pub struct App {
    /// Its name.
    pub name: AppName,
    /// Requests of it that were let in.
    pub requests: AtomicU64,
    /// Links that it has made.
    pub creates: AtomicU64,
    /// Links that it was not let make, because it made too many in too short a time.
    pub limited: AtomicU64,
    /// Requests that its keys do not allow.
    pub forbidden: AtomicU64,
    /// When the last request came, in milliseconds since 1970 UTC; 0 where none did.
    pub seen_ms: AtomicU64,
    /// What it last said of its own version.
    version: Mutex<Option<String>>,
    rate: Rate,
}

impl App {
    /// One that has done nothing.
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
        }
    }

    /// Notes a request, and what it says of the version of the app.
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

    /// What it last said of its own version.
    pub fn version(&self) -> Option<String> {
        self.version.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes leave to make a link, where so many a second are allowed.
    ///
    /// # Errors
    /// What is left, which is nothing.
    pub fn take_create(&self, per_second: u32, now: Duration) -> Result<Quota, Quota> {
        let taken = self.rate.take(per_second, now);
        if taken.is_err() {
            self.limited.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }
}

/// What is left of a rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quota {
    /// How much may be done at once, and in a second.
    pub limit: u32,
    /// How much of it is left now.
    pub remaining: u32,
    /// After how long all of it is there again.
    pub reset: Duration,
    /// After how long the next one is there; zero where one is.
    pub wait: Duration,
}

/// A rate that is taken from without a lock.
#[derive(Debug, Default)]
pub struct Rate {
    /// When the next one is due ([`Gcra`]), in nanoseconds of the clock that callers share.
    due: AtomicU64,
}

impl Rate {
    /// Takes one, where so many a second are allowed, a second's worth of them at once.
    ///
    /// # Errors
    /// How long to wait.
    pub fn take(&self, per_second: u32, now: Duration) -> Result<Quota, Quota> {
        let per_second = per_second.max(1);
        let step = (1_000_000_000 / u64::from(per_second)).max(1);
        // What a second holds in whole steps.
        let rate = Gcra::new(step, (step * u64::from(per_second)).min(1_000_000_000));
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
        // One in a second, and a rate that is changed on the way.
        let rate = Rate::default();
        assert!(rate.take(1, ms(0)).is_ok() && rate.take(1, ms(999)).is_err() && rate.take(1, ms(1_000)).is_ok());
        assert!(rate.take(u32::MAX, ms(1_000)).is_err() && rate.take(u32::MAX, ms(2_000)).is_ok());
    }

    proptest! {
        /// In any second, no more than a burst and what comes in meanwhile.
        #[test]
        fn no_second_holds_more_than_two(per_second in 1..50u32, waits in proptest::collection::vec(0..200u64, 1..300)) {
            let rate = Rate::default();
            let (mut now, mut taken) = (0, Vec::new());
            for wait in waits {
                now += wait;
                match rate.take(per_second, ms(now)) {
                    Ok(quota) => {
                        prop_assert!(quota.remaining < per_second && quota.wait <= Duration::from_secs(1));
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
