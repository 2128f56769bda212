//! Rate limits for addresses that guess codes or keys.
//!
//! Each core counts for itself. Memory is bounded for any number of addresses: the table is set-associative, and a new
//! address replaces the one of its set that has been idle longest. So no address is ever mistaken for another in the
//! table. A client with more addresses than slots gains no more than that many separate clients would. Of an IPv6
//! address only the first 64 bits count, because one client usually has all addresses below them.
//!
//! If hits were still answered, a limit on misses would not slow down guessing. So an address over its limit gets 429
//! for every request until it may miss again. An address of a private network may be a load balancer for all clients:
//! there, only misses are refused.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::access::rate::Gcra;

/// Number of sets, a power of two.
const SETS: usize = 4_096;

/// Slots of a set. In total 512 KiB, on a core that has seen a miss.
const WAYS: usize = 8;

/// Time after a refusal in which each request is checked.
const ALERT: Duration = Duration::from_secs(10);

/// Failed keys that an address may try: this many a minute, of which a minute's worth at once.
const FAILED_KEYS_PER_MINUTE: u32 = 30;

/// The origin of a request, as its handler sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestOrigin {
    /// The address of the client, or of the last proxy.
    pub address: IpAddr,
    /// True if no field of the request may name another address.
    pub is_final: bool,
}

/// The part of an address that the limits count by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientKey {
    hash: u64,
    /// True if the address may be shared by many clients.
    is_private: bool,
}

impl ClientKey {
    /// Returns true for an address of loopback or of a private network.
    pub fn is_private(self) -> bool {
        self.is_private
    }

    /// Returns a hash that is practically unique to the address.
    pub fn hash(self) -> u64 {
        self.hash
    }
}

/// A slot of the table: a hash, and the theoretical arrival time of the next request, in microseconds.
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

    /// Takes one request from the limit.
    ///
    /// # Errors
    /// The time until the next one is allowed, if the limit is reached.
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

    /// Returns the time until the next request is allowed, if the limit is reached.
    fn wait_of(&self, hash: u64, now: u64) -> Option<Duration> {
        let slots = self.slots.borrow();
        let set = slots.get(hash as usize % SETS)?;
        let slot = set.iter().find(|slot| slot.hash == hash)?;
        let wait = self.rate?.wait(slot.due, now);
        (wait > 0).then(|| Duration::from_micros(wait))
    }
}

/// The rate limits of a core.
#[derive(Debug)]
pub struct MissLimiter {
    /// The clock, in microseconds since a fixed instant.
    clock: fn() -> u64,
    seed: u64,
    misses: Limiter,
    keys: Limiter,
    /// End of the time in which each request is checked, in microseconds of the clock.
    alert_until: Cell<u64>,
    is_throttling: Cell<bool>,
}

impl MissLimiter {
    /// Creates limits that allow each address this many misses a second, and ten seconds' worth of them at once; 0 for
    /// no limit. A random `seed` keeps clients from choosing addresses that share a set. `clock` returns microseconds since
    /// a fixed instant and never goes back.
    pub fn new(misses_per_second: u32, seed: u64, clock: fn() -> u64) -> MissLimiter {
        let step = if misses_per_second == 0 { 0 } else { (1_000_000 / u64::from(misses_per_second)).max(1) };
        MissLimiter {
            clock,
            seed,
            misses: Limiter::new(step, 10 * u64::from(misses_per_second)),
            keys: Limiter::new(60_000_000 / u64::from(FAILED_KEYS_PER_MINUTE), u64::from(FAILED_KEYS_PER_MINUTE)),
            alert_until: Cell::new(0),
            is_throttling: Cell::new(false),
        }
    }

    /// Returns true if misses are limited.
    #[inline]
    pub fn counts_misses(&self) -> bool {
        self.misses.rate.is_some()
    }

    /// Returns the part of an address that the limits count by.
    pub fn place(&self, address: IpAddr) -> ClientKey {
        let address = address.to_canonical();
        let hash = match address {
            IpAddr::V4(address) => xxh3_64_with_seed(&address.octets(), self.seed),
            IpAddr::V6(address) => xxh3_64_with_seed(&address.octets()[..8], self.seed),
        };
        // Zero marks an empty slot.
        ClientKey { hash: hash.max(1), is_private: is_private(address) }
    }

    /// Returns true shortly after a refusal, when requests must be checked before they are answered. A single load, for
    /// the hot path.
    #[inline]
    pub fn is_throttling(&self) -> bool {
        self.is_throttling.get()
    }

    /// Returns the time until requests of that address are answered again; `None` if they are answered now.
    pub fn retry_after(&self, place: ClientKey) -> Option<Duration> {
        let now = self.now();
        if now > self.alert_until.get() {
            self.is_throttling.set(false);
            return None;
        }
        if place.is_private { None } else { self.misses.wait_of(place.hash, now) }
    }

    /// Counts a request for a code that does not exist.
    ///
    /// # Errors
    /// The time until the next miss is allowed, if the limit is reached.
    pub fn miss(&self, place: ClientKey) -> Result<(), Duration> {
        let now = self.now();
        let taken = self.misses.take(place.hash, now);
        if taken.is_err() {
            self.alert_until.set(now + ALERT.as_micros() as u64);
            self.is_throttling.set(true);
        }
        taken
    }

    /// Counts a failed attempt with an API key.
    ///
    /// # Errors
    /// The time until the next attempt is allowed, if the limit is reached.
    pub fn key_failed(&self, address: IpAddr) -> Result<(), Duration> {
        self.keys.take(self.place(address).hash, self.now())
    }

    fn now(&self) -> u64 {
        (self.clock)()
    }
}

/// Returns true for an address of this machine or of a private network (RFC 1918, 4193, 6598, 3927 and 4291).
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
        let guard = MissLimiter::new(1, 42, || 1);
        let place = |number| guard.place(address(number));
        for number in 0..200_000 {
            assert_eq!(guard.misses.take(place(number).hash, 1), Ok(()), "{number}");
        }
        assert_eq!(guard.misses.slots.borrow().len(), SETS);
        // A busy address stays in the table, whatever the others do.
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
        let guard = MissLimiter::new(1, 42, || 1);
        let (guesser, balancer) = (guard.place(address(1)), guard.place("10.0.0.1".parse().unwrap()));
        assert!(!guard.is_throttling() && guard.retry_after(guesser).is_none());
        for place in [guesser, balancer] {
            let refused = (0..20).filter(|_| guard.miss(place).is_err()).count();
            assert!(refused >= 9, "{refused}");
        }
        assert!(guard.is_throttling() && guard.retry_after(guesser).is_some());
        assert_eq!((guard.retry_after(balancer), guard.retry_after(guard.place(address(2)))), (None, None));
        guard.alert_until.set(0);
        std::thread::sleep(Duration::from_millis(2));
        assert!(guard.retry_after(guesser).is_none() && !guard.is_throttling());
        let off = MissLimiter::new(0, 42, || 1);
        assert!((0..10_000).all(|_| off.miss(guesser).is_ok()));
    }

    #[test]
    fn failed_keys_are_counted_apart() {
        let guard = MissLimiter::new(0, 42, || 1);
        assert!((0..FAILED_KEYS_PER_MINUTE).all(|_| guard.key_failed(address(1)).is_ok()));
        assert!(guard.key_failed(address(1)).is_err() && guard.key_failed(address(2)).is_ok());
    }

    #[test]
    fn addresses_are_what_people_have() {
        let guard = MissLimiter::new(1, 42, || 1);
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
