//! SYN cookies: the state of a half-open connection in its sequence number and timestamp, for when the SYN cache is
//! full.
//!
//! The sequence number holds a counter of 64 seconds and an index of the segment size, under two keyed hashes
//! (Bernstein; RFC 4987, 3.6). The client's number is hashed, not added as in Linux. So a later segment of the
//! connection, in which both numbers have grown by as much, is no answer to the cookie. Window scale and selective
//! acknowledgement are in the low bits of the timestamp, as Linux does it, so a client without timestamps gets neither.

use crate::headers::address::Flow;
use crate::stack::keys::{KeyUse, StackKeys};

/// Sizes that a cookie can carry; a client gets the largest that is not above its own.
const SIZES: [u16; 8] = [88, 216, 536, 1024, 1220, 1300, 1440, 1460];
/// Seconds of one step of the counter.
const STEP_S: u64 = 64;
/// Steps during which a cookie is accepted, its own included.
const STEPS_VALID: u32 = 2;
/// Longest lifetime of a cookie, in milliseconds. The shortest is one step less.
pub(crate) const LIFETIME_MAX_MS: u32 = STEPS_VALID * STEP_S as u32 * 1_000;
/// Low bits of a sequence number under the second hash.
const LOW_BITS: u32 = 24;
const LOW_MASK: u32 = (1 << LOW_BITS) - 1;

/// Bits of a timestamp that carry options.
const OPTION_BITS: u32 = 5;
const OPTION_MASK: u32 = (1 << OPTION_BITS) - 1;
const SACK_BIT: u32 = 1 << 4;
/// Value of the scale bits without the option; shifts end at 14.
const NO_SCALE: u32 = 0xf;

fn step(now_us: u64) -> u32 {
    (now_us / 1_000_000 / STEP_S) as u32
}

/// Returns the initial sequence number that stands for a SYN with sequence number `irs`.
pub(crate) fn encode(keys: &StackKeys, flow: &Flow, irs: u32, mss: u16, now_us: u64) -> u32 {
    let index = SIZES.iter().rposition(|size| *size <= mss).unwrap_or(0) as u32;
    let step = step(now_us);
    let low = (keys.hash(KeyUse::CookieTime, flow, step) as u32).wrapping_add(index) & LOW_MASK;
    (keys.hash(KeyUse::Cookie, flow, irs) as u32).wrapping_add(step << LOW_BITS).wrapping_add(low)
}

/// Returns the segment size of a cookie, if it is one of ours and young enough.
pub(crate) fn decode(keys: &StackKeys, flow: &Flow, cookie: u32, irs: u32, now_us: u64) -> Option<u16> {
    let rest = cookie.wrapping_sub(keys.hash(KeyUse::Cookie, flow, irs) as u32);
    let age = (step(now_us).wrapping_sub(rest >> LOW_BITS)) & 0xff;
    if age >= STEPS_VALID {
        return None;
    }
    let step = step(now_us).wrapping_sub(age);
    let index = rest.wrapping_sub(keys.hash(KeyUse::CookieTime, flow, step) as u32) & LOW_MASK;
    SIZES.get(index as usize).copied()
}

/// Returns the latest timestamp up to `now` whose low bits carry the options.
pub(crate) fn encode_options(now: u32, scale: Option<u8>, is_sack_permitted: bool) -> u32 {
    let bits = scale.map_or(NO_SCALE, u32::from) | if is_sack_permitted { SACK_BIT } else { 0 };
    let stamped = now & !OPTION_MASK | bits;
    if stamped > now { stamped.wrapping_sub(1 << OPTION_BITS) } else { stamped }
}

/// Returns the window scale and whether selective acknowledgements were agreed, of a timestamp that came back.
pub(crate) fn decode_options(echo: u32) -> (Option<u8>, bool) {
    let scale = (echo & NO_SCALE != NO_SCALE).then_some((echo & NO_SCALE).min(14) as u8);
    (scale, echo & SACK_BIT != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_US: u64 = 1_000_000_000;

    #[test]
    fn cookie_carries_the_segment_size() {
        let keys = StackKeys::new(&[3; 16]);
        let flow = Flow::default();
        for (offered, kept) in [(1460, 1460), (9000, 1460), (1459, 1440), (536, 536), (1, 88)] {
            let cookie = encode(&keys, &flow, 77, offered, NOW_US);
            assert_eq!(decode(&keys, &flow, cookie, 77, NOW_US), Some(kept), "{offered}");
        }
    }

    #[test]
    fn cookie_ends_with_its_time() {
        let keys = StackKeys::new(&[3; 16]);
        let flow = Flow::default();
        let cookie = encode(&keys, &flow, 77, 1460, NOW_US);
        assert!(decode(&keys, &flow, cookie, 77, NOW_US + 60_000_000).is_some());
        assert_eq!(decode(&keys, &flow, cookie, 77, NOW_US + 130_000_000), None);
    }

    #[test]
    fn numbers_that_have_grown_alike_are_refused() {
        let keys = StackKeys::new(&[3; 16]);
        let flow = Flow::default();
        let cookie = encode(&keys, &flow, 77, 536, NOW_US);
        for grown in 1..10_000 {
            assert_eq!(decode(&keys, &flow, cookie.wrapping_add(grown), 77 + grown, NOW_US), None, "{grown}");
        }
    }

    #[test]
    fn guessed_cookies_are_refused() {
        let keys = StackKeys::new(&[3; 16]);
        let flow = Flow::default();
        let cookie = encode(&keys, &flow, 77, 1460, NOW_US);
        assert_eq!(decode(&keys, &flow, cookie, 78 + 8, NOW_US), None);
        let valid = (0..100_000_u32)
            .filter(|guess| decode(&keys, &flow, guess.wrapping_mul(0x9e37_79b9), 5, NOW_US).is_some())
            .count();
        assert!(valid <= 3, "{valid} of 100,000 guesses");
    }

    #[test]
    fn timestamp_carries_options_and_stays_in_the_past() {
        for now in [100, 12_345_678, u32::MAX] {
            for scale in [None, Some(0), Some(7), Some(14)] {
                for sack in [false, true] {
                    let stamp = encode_options(now, scale, sack);
                    assert!(now.wrapping_sub(stamp) < 64);
                    assert_eq!(decode_options(stamp), (scale, sack));
                }
            }
        }
    }
}
