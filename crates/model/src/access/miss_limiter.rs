//! Rate limits for addresses that guess codes or keys.
//!
//! The cores of a node share the counts, without locks: only a miss touches them, and a hit reads one flag. Memory is
//! bounded for any number of addresses: the table is set-associative, and a new address replaces the one of its set
//! that has been idle longest. Two addresses never share a slot. A client with more addresses than slots gains no more
//! than that many separate clients would. Of an IPv6 address only the first 64 bits count, because one client usually
//! has all addresses below them.
//!
//! If hits were still answered, a limit on misses would not slow down guessing. So an address over its limit gets 429
//! for every request until it may miss again. An address of a private network may be a load balancer for all clients:
//! there, only misses are refused.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::access::rate::Gcra;

/// Number of sets, a power of two.
const SETS: usize = 4_096;

/// Slots of a set. In total 512 KiB.
const WAYS: usize = 8;

/// Time by which [`ALERT`] is extended at once, in microseconds, so that cores seldom write where others read.
const ALERT_STEP: u64 = 1_000_000;

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
///
/// The two are written one after the other. If two cores meet in a slot, an address may get one miss too many, or lose
/// one to an address that shared the slot for that moment.
#[derive(Debug, Default)]
struct LimiterSlot {
    hash: AtomicU64,
    due: AtomicU64,
}

/// A rate that is kept for each address, in microseconds.
#[derive(Debug)]
struct Limiter {
    /// The rate; `None` without a limit.
    rate: Option<Gcra>,
    slots: Box<[[LimiterSlot; WAYS]]>,
}

impl Limiter {
    /// Returns a limiter that admits an event each `step` microseconds, and `burst` of them at once; a step of 0 admits
    /// any number.
    fn new(step: u64, burst: u64) -> Limiter {
        let rate = (step > 0).then(|| Gcra::new(step, step * burst));
        let sets = if rate.is_some() { SETS } else { 0 };
        Limiter { rate, slots: std::iter::repeat_with(<[LimiterSlot; WAYS]>::default).take(sets).collect() }
    }

    /// Returns the slot of an address. An address without one takes over the slot of its set that was idle longest.
    fn slot(&self, hash: u64) -> &LimiterSlot {
        let set = &self.slots[hash as usize % SETS];
        loop {
            if let Some(slot) = set.iter().find(|slot| slot.hash.load(Ordering::Relaxed) == hash) {
                return slot;
            }
            let idle = set.iter().min_by_key(|slot| slot.due.load(Ordering::Relaxed)).expect("there are ways");
            let before = idle.hash.load(Ordering::Relaxed);
            if idle.hash.compare_exchange(before, hash, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                idle.due.store(0, Ordering::Relaxed);
                return idle;
            }
        }
    }

    /// Takes one request from the limit. A refusal writes nothing.
    ///
    /// # Errors
    /// The time until the next one is allowed, if the limit is reached.
    fn take(&self, hash: u64, now: u64) -> Result<(), Duration> {
        let Some(rate) = self.rate else { return Ok(()) };
        loop {
            let slot = self.slot(hash);
            let due = slot.due.load(Ordering::Relaxed);
            let next = rate.take(due, now).map_err(Duration::from_micros)?;
            if slot.due.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return Ok(());
            }
        }
    }

    /// Returns the time until the next request is allowed, if the limit is reached.
    fn wait_of(&self, hash: u64, now: u64) -> Option<Duration> {
        let rate = self.rate?;
        let set = &self.slots[hash as usize % SETS];
        let slot = set.iter().find(|slot| slot.hash.load(Ordering::Relaxed) == hash)?;
        let wait = rate.wait(slot.due.load(Ordering::Relaxed), now);
        (wait > 0).then(|| Duration::from_micros(wait))
    }
}

/// The rate limits of a node, which its cores share.
#[derive(Debug)]
pub struct MissLimiter {
    alert: Alert,
    /// The clock, in microseconds since a fixed instant.
    clock: fn() -> u64,
    seed: u64,
    misses_per_second: u32,
    misses: Limiter,
    keys: Limiter,
}

/// The flag that every request reads. It is on a cache line of its own, and written at most once a second.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Alert {
    is_throttling: AtomicBool,
    /// End of the time in which each request is checked, in microseconds of the clock.
    until: AtomicU64,
}

impl MissLimiter {
    /// Creates limits that allow each address this many misses a second, and ten seconds' worth of them at once; 0 for
    /// no limit. A random `seed` keeps clients from choosing addresses that share a set. `clock` returns microseconds
    /// since a fixed instant and never goes back.
    pub fn new(misses_per_second: u32, seed: u64, clock: fn() -> u64) -> MissLimiter {
        let step = if misses_per_second == 0 { 0 } else { (1_000_000 / u64::from(misses_per_second)).max(1) };
        MissLimiter {
            alert: Alert::default(),
            clock,
            seed,
            misses_per_second,
            misses: Limiter::new(step, 10 * u64::from(misses_per_second)),
            keys: Limiter::new(60_000_000 / u64::from(FAILED_KEYS_PER_MINUTE), u64::from(FAILED_KEYS_PER_MINUTE)),
        }
    }

    /// Returns the misses per second that an address may cause; 0 for no limit.
    pub fn misses_per_second(&self) -> u32 {
        self.misses_per_second
    }

    /// Returns true if misses are limited.
    #[inline]
    pub fn counts_misses(&self) -> bool {
        self.misses.rate.is_some()
    }

    /// Returns the part of an address that the limits count by.
    pub fn client_key(&self, address: IpAddr) -> ClientKey {
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
        self.alert.is_throttling.load(Ordering::Relaxed)
    }

    /// Returns the time until requests of that address are answered again; `None` if they are answered now.
    pub fn retry_after(&self, client_key: ClientKey) -> Option<Duration> {
        let now = self.now();
        if now > self.alert.until.load(Ordering::Relaxed) {
            self.alert.is_throttling.store(false, Ordering::Relaxed);
            return None;
        }
        if client_key.is_private { None } else { self.misses.wait_of(client_key.hash, now) }
    }

    /// Counts a request for a code that does not exist.
    ///
    /// # Errors
    /// The time until the next miss is allowed, if the limit is reached.
    pub fn miss(&self, client_key: ClientKey) -> Result<(), Duration> {
        let now = self.now();
        let taken = self.misses.take(client_key.hash, now);
        if taken.is_err() {
            self.raise_alert(now);
        }
        taken
    }

    /// Has all requests checked for a while.
    fn raise_alert(&self, now: u64) {
        let until = now + ALERT.as_micros() as u64 + ALERT_STEP;
        if self.alert.until.load(Ordering::Relaxed) + ALERT_STEP < until {
            self.alert.until.store(until, Ordering::Relaxed);
        }
        if !self.is_throttling() {
            self.alert.is_throttling.store(true, Ordering::Relaxed);
        }
    }

    /// Counts a failed attempt with an API key.
    ///
    /// # Errors
    /// The time until the next attempt is allowed, if the limit is reached.
    pub fn key_failed(&self, address: IpAddr) -> Result<(), Duration> {
        self.keys.take(self.client_key(address).hash, self.now())
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
        let limiter = MissLimiter::new(1, 42, || 1);
        let client_key = |number| limiter.client_key(address(number));
        for number in 0..200_000 {
            assert_eq!(limiter.misses.take(client_key(number).hash, 1), Ok(()), "{number}");
        }
        assert_eq!(limiter.misses.slots.len(), SETS);
        // A busy address stays in the table, whatever the others do.
        let busy = client_key(1_000_000).hash;
        let mut taken = 0;
        for number in 0..200_000 {
            taken += u32::from(limiter.misses.take(busy, 1).is_ok());
            limiter.misses.take(client_key(number).hash, 1).unwrap();
        }
        assert!(taken <= 20, "{taken}");
    }

    #[test]
    fn a_guesser_gets_429_for_everything_unless_its_address_is_private() {
        let limiter = MissLimiter::new(1, 42, || 1);
        let (guesser, balancer) = (limiter.client_key(address(1)), limiter.client_key("10.0.0.1".parse().unwrap()));
        assert!(!limiter.is_throttling());
        assert!(limiter.retry_after(guesser).is_none());
        for client_key in [guesser, balancer] {
            let refused = (0..20).filter(|_| limiter.miss(client_key).is_err()).count();
            assert!(refused >= 9, "{refused}");
        }
        assert!(limiter.is_throttling());
        assert!(limiter.retry_after(guesser).is_some());
        assert_eq!((limiter.retry_after(balancer), limiter.retry_after(limiter.client_key(address(2)))), (None, None));
        limiter.alert.until.store(0, Ordering::Relaxed);
        assert!(limiter.retry_after(guesser).is_none());
        assert!(!limiter.is_throttling());
        let off = MissLimiter::new(0, 42, || 1);
        assert!((0..10_000).all(|_| off.miss(guesser).is_ok()));
    }

    #[test]
    fn threads_together_are_held_to_one_limit() {
        let limiter = MissLimiter::new(10, 42, || 1);
        let taken: usize = std::thread::scope(|scope| {
            let miss = |number: usize| {
                (0..1_000).filter(|_| limiter.miss(limiter.client_key(address(number as u32))).is_ok()).count()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(move || miss(7))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(taken, 100);
        assert!(limiter.is_throttling());
    }

    #[test]
    fn failed_keys_are_counted_apart() {
        let limiter = MissLimiter::new(0, 42, || 1);
        assert!((0..FAILED_KEYS_PER_MINUTE).all(|_| limiter.key_failed(address(1)).is_ok()));
        assert!(limiter.key_failed(address(1)).is_err());
        assert!(limiter.key_failed(address(2)).is_ok());
    }

    #[test]
    fn an_ipv6_prefix_counts_as_one_address_and_private_addresses_are_known() {
        let limiter = MissLimiter::new(1, 42, || 1);
        let client_key = |text: &str| limiter.client_key(text.parse().unwrap());
        assert_eq!(client_key("2001:db8::1"), client_key("2001:db8::ffff:1"));
        assert_ne!(client_key("2001:db8::1"), client_key("2001:db8:0:1::1"));
        assert_eq!(client_key("::ffff:192.0.2.1"), client_key("192.0.2.1"));
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
            assert!(client_key(private).is_private, "{private}");
        }
        for public in ["8.8.8.8", "100.128.0.1", "172.32.0.1", "2001:db8::1"] {
            assert!(!client_key(public).is_private, "{public}");
        }
    }
}
