//! The search for the edges of an unreadable range, among all possible keys.
//!
//! A key counts as a number, formed by its first 16 bytes. This module reads nothing itself: the caller passes a
//! function that tests a position.

/// Returns the position of a key among all keys, by its first 16 bytes.
pub(super) fn position(key: &[u8]) -> u128 {
    let mut first = [0; 16];
    let len = key.len().min(16);
    first[..len].copy_from_slice(&key[..len]);
    u128::from_be_bytes(first)
}

/// Returns the smallest key at a position.
pub(super) fn from_position(position: u128) -> Vec<u8> {
    let bytes = position.to_be_bytes();
    let len = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    bytes[..len].to_vec()
}

/// Doubles the step from `start` until `reached`, or until the end. Returns the last position before, and the first
/// after it.
pub(super) fn gallop(start: u128, end: u128, reached: impl Fn(u128) -> bool) -> (u128, u128) {
    let (mut before, mut step) = (start, 1u128);
    loop {
        let at = start.saturating_add(step).min(end);
        if at == end || reached(at) {
            return (before, at);
        }
        before = at;
        step = step.saturating_mul(2);
    }
}

/// Returns the largest position in `before..behind` that is not `reached`.
pub(super) fn bisect(mut before: u128, mut behind: u128, reached: impl Fn(u128) -> bool) -> u128 {
    while behind - before > 1 {
        let middle = before + (behind - before) / 2;
        if reached(middle) {
            behind = middle;
        } else {
            before = middle;
        }
    }
    before
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_edge_is_found(start in any::<u128>(), before in 0..u64::MAX, behind in 1..u64::MAX) {
            let edge = start.saturating_add(u128::from(before));
            let end = edge.saturating_add(u128::from(behind));
            prop_assume!(edge < end);
            let reached = |at: u128| at > edge;
            let (low, high) = gallop(start, end, reached);
            prop_assert!(low <= edge);
            prop_assert!(edge < high);
            prop_assert!(high <= end);
            prop_assert_eq!(bisect(low, high, reached), edge);
        }

        #[test]
        fn positions_keep_the_order(a in "[0-9A-Za-z_-]{1,16}", b in "[0-9A-Za-z_-]{1,16}") {
            prop_assert_eq!(position(a.as_bytes()).cmp(&position(b.as_bytes())), a.cmp(&b));
            prop_assert_eq!(from_position(position(a.as_bytes())), a.as_bytes());
        }
    }
}
