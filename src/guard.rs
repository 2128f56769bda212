//! Who asks too often for what is not there: guesses of codes and of keys, counted by the address that they come from.
//!
//! Each core counts for itself. Memory is bounded whatever the number of addresses is: a place belongs to the address that
//! it was last given to, and is taken by another when it is the one of its set that has rested longest. So an address that
//! is not forgotten is never taken for another, and whoever has more addresses than there are places gains what so many
//! addresses would have had anyway. Of IPv6 the first 64 bits count: who has one address there has them all.
//!
//! Where codes are guessed, answering what is found would leave guessing as fast as before. So an address that has no
//! misses left is answered nothing but 429 until it has one again. An address of a private network may be a balancer that
//! stands for everybody: of those only the misses are refused.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::rate::Gcra;

/// Sets of places. A power of two.
const SETS: usize = 4_096;

/// Places of a set. 512 KiB in all, on a core that has seen a miss.
const WAYS: usize = 8;

/// For how long after a refusal each request is looked at.
const ALERT: Duration = Duration::from_secs(10);

/// How many keys an address may try that are none: so many a second, and a minute's worth of them at once.
const FAILED_KEYS_PER_MINUTE: u32 = 30;

/// Where a request came from, as the handlers of requests are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Source {
    /// Its address.
    pub address: IpAddr,
    /// Whether no field of the request may say more.
    pub is_final: bool,
}

/// An address, as far as it counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    hash: u64,
    /// Whether it may stand for many.
    is_private: bool,
}

impl Place {
    /// Whether the address is one of loopback or of a private network.
    pub fn is_private(self) -> bool {
        self.is_private
    }

    /// A number that hardly any other address has.
    pub fn hash(self) -> u64 {
        self.hash
    }
}

/// A place of the table: whose it is, and when the next one would be due if they came evenly, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    hash: u64,
    due: u64,
}

/// A rate that is kept for each address, in microseconds.
#[derive(Debug)]
struct Limiter {
    /// Nothing where there is no limit.
    rate: Option<Gcra>,
    slots: RefCell<Vec<[Slot; WAYS]>>,
}

impl Limiter {
    /// One that admits an event each `step` microseconds, and `burst` of them at once; a step of 0: any number.
    fn new(step: u64, burst: u64) -> Limiter {
        Limiter { rate: (step > 0).then(|| Gcra::new(step, step * burst)), slots: RefCell::default() }
    }

    /// Takes one.
    ///
    /// # Errors
    /// After how long there is one.
    fn take(&self, hash: u64, now: u64) -> Result<(), Duration> {
        let Some(rate) = self.rate else { return Ok(()) };
        let mut slots = self.slots.borrow_mut();
        if slots.is_empty() {
            slots.resize(SETS, [Slot::default(); WAYS]);
        }
        let set = &mut slots[hash as usize % SETS];
        let way = (0..WAYS).find(|&way| set[way].hash == hash);
        let way = way.or_else(|| (0..WAYS).min_by_key(|&way| set[way].due)).expect("there are ways");
        if set[way].hash != hash {
            set[way] = Slot { hash, due: 0 };
        }
        set[way].due = rate.take(set[way].due, now).map_err(Duration::from_micros)?;
        Ok(())
    }

    /// After how long there is one again, where there is none.
    fn wait_of(&self, hash: u64, now: u64) -> Option<Duration> {
        let slots = self.slots.borrow();
        let set = slots.get(hash as usize % SETS)?;
        let slot = set.iter().find(|slot| slot.hash == hash)?;
        let wait = self.rate?.wait(slot.due, now);
        (wait > 0).then(|| Duration::from_micros(wait))
    }
}

/// What a core knows of those who guess.
#[derive(Debug)]
pub struct Guard {
    begin: Instant,
    seed: u64,
    misses: Limiter,
    keys: Limiter,
    /// Until when each request is looked at, in microseconds since the beginning.
    alert_until: Cell<u64>,
    is_alert: Cell<bool>,
}

impl Guard {
    /// One that lets each address miss so often a second, ten seconds' worth of them at once; 0: any number. `seed` keeps
    /// people from choosing addresses that share a set.
    pub fn new(misses_per_second: u32, seed: u64) -> Guard {
        let step = if misses_per_second == 0 { 0 } else { (1_000_000 / u64::from(misses_per_second)).max(1) };
        Guard {
            begin: Instant::now(),
            seed,
            misses: Limiter::new(step, 10 * u64::from(misses_per_second)),
            keys: Limiter::new(60_000_000 / u64::from(FAILED_KEYS_PER_MINUTE), u64::from(FAILED_KEYS_PER_MINUTE)),
            alert_until: Cell::new(0),
            is_alert: Cell::new(false),
        }
    }

    /// Whether misses are counted at all.
    #[inline]
    pub fn counts_misses(&self) -> bool {
        self.misses.rate.is_some()
    }

    /// What counts of an address.
    pub fn place(&self, address: IpAddr) -> Place {
        let address = address.to_canonical();
        let hash = match address {
            IpAddr::V4(address) => xxh3_64_with_seed(&address.octets(), self.seed),
            IpAddr::V6(address) => xxh3_64_with_seed(&address.octets()[..8], self.seed),
        };
        // Zero is of a place that nobody has.
        Place { hash: hash.max(1), is_private: is_private(address) }
    }

    /// Whether somebody was refused lately, so that requests must be looked at before they are answered. One look, for the
    /// hot path.
    #[inline]
    pub fn is_alert(&self) -> bool {
        self.is_alert.get()
    }

    /// Whether nothing is to be answered to that address now; and after how long something is.
    pub fn bars(&self, place: Place) -> Option<Duration> {
        let now = self.now();
        if now > self.alert_until.get() {
            self.is_alert.set(false);
            return None;
        }
        if place.is_private { None } else { self.misses.wait_of(place.hash, now) }
    }

    /// Counts a code that was asked for and is not there.
    ///
    /// # Errors
    /// If there were too many: after how long there may be another.
    pub fn miss(&self, place: Place) -> Result<(), Duration> {
        let now = self.now();
        let taken = self.misses.take(place.hash, now);
        if taken.is_err() {
            self.alert_until.set(now + ALERT.as_micros() as u64);
            self.is_alert.set(true);
        }
        taken
    }

    /// Counts a key that is none.
    ///
    /// # Errors
    /// If there were too many: after how long there may be another.
    pub fn key_failed(&self, address: IpAddr) -> Result<(), Duration> {
        self.keys.take(self.place(address).hash, self.now())
    }

    fn now(&self) -> u64 {
        self.begin.elapsed().as_micros() as u64
    }
}

/// Whether an address belongs to this machine or to a private network (RFC 1918, 4193, 6598, 3927 and 4291).
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [a, b, ..] = address.octets();
            address.is_loopback()
                || address.is_private()
                || address.is_link_local()
                || a == 100 && (64..128).contains(&b)
        }
        IpAddr::V6(address) => {
            address == Ipv6Addr::LOCALHOST || address.is_unique_local() || address.is_unicast_link_local()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const SECOND: u64 = 1_000_000;

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(0x0800_0000 + number))
    }

    #[test]
    fn an_address_has_a_rate_and_a_burst() {
        let limiter = Limiter::new(SECOND / 10, 100);
        for _ in 0..100 {
            assert_eq!(limiter.take(7, 5), Ok(()));
        }
        assert_eq!(limiter.take(7, 5), Err(Duration::from_millis(100)));
        assert_eq!(limiter.wait_of(7, 5), Some(Duration::from_millis(100)));
        assert_eq!((limiter.wait_of(8, 5), limiter.take(8, 5)), (None, Ok(())), "another one is another one");
        assert_eq!(limiter.wait_of(7, 5 + SECOND / 10), None);
        assert_eq!((limiter.take(7, 5 + SECOND / 10), limiter.take(7, 5 + SECOND / 10).is_err()), (Ok(()), true));
        assert_eq!(Limiter::new(0, 0).take(7, 5), Ok(()));
    }

    #[test]
    fn memory_is_bounded_and_nobody_is_taken_for_another() {
        let guard = Guard::new(1, 42);
        let place = |number| guard.place(address(number));
        for number in 0..200_000 {
            assert_eq!(guard.misses.take(place(number).hash, 1), Ok(()), "{number}");
        }
        assert_eq!(guard.misses.slots.borrow().len(), SETS);
        // Whoever goes on is remembered, whatever others do.
        let busy = place(1_000_000).hash;
        let mut taken = 0;
        for number in 0..200_000 {
            taken += u32::from(guard.misses.take(busy, 1).is_ok());
            guard.misses.take(place(number).hash, 1).unwrap();
        }
        assert!(taken <= 20, "{taken}");
    }

    #[test]
    fn who_guesses_is_answered_nothing_unless_it_may_stand_for_many() {
        let guard = Guard::new(1, 42);
        let (guesser, balancer) = (guard.place(address(1)), guard.place("10.0.0.1".parse().unwrap()));
        assert!(!guard.is_alert() && guard.bars(guesser).is_none());
        for place in [guesser, balancer] {
            let refused = (0..20).filter(|_| guard.miss(place).is_err()).count();
            assert!(refused >= 9, "{refused}");
        }
        assert!(guard.is_alert() && guard.bars(guesser).is_some());
        assert_eq!((guard.bars(balancer), guard.bars(guard.place(address(2)))), (None, None));
        guard.alert_until.set(0);
        std::thread::sleep(Duration::from_millis(2));
        assert!(guard.bars(guesser).is_none() && !guard.is_alert());
        let off = Guard::new(0, 42);
        assert!((0..10_000).all(|_| off.miss(guesser).is_ok()));
    }

    #[test]
    fn failed_keys_are_counted_apart() {
        let guard = Guard::new(0, 42);
        assert!((0..FAILED_KEYS_PER_MINUTE).all(|_| guard.key_failed(address(1)).is_ok()));
        assert!(guard.key_failed(address(1)).is_err() && guard.key_failed(address(2)).is_ok());
    }

    #[test]
    fn addresses_are_what_people_have() {
        let guard = Guard::new(1, 42);
        let place = |text: &str| guard.place(text.parse().unwrap());
        assert_eq!(place("2001:db8::1"), place("2001:db8::ffff:1"));
        assert_ne!(place("2001:db8::1"), place("2001:db8:0:1::1"));
        assert_eq!(place("::ffff:192.0.2.1"), place("192.0.2.1"));
        for private in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "169.254.0.1",
            "::1",
            "fd00::1",
            "fe80::1",
        ] {
            assert!(place(private).is_private, "{private}");
        }
        for public in ["8.8.8.8", "100.128.0.1", "172.32.0.1", "2001:db8::1"] {
            assert!(!place(public).is_private, "{public}");
        }
    }
}
