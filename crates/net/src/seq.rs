//! Arithmetic of sequence numbers, which wrap (RFC 9293, 3.4).

/// Returns true if `a` comes before `b`.
pub(crate) const fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// Returns true if `a` comes after `b`.
pub(crate) const fn is_after(a: u32, b: u32) -> bool {
    is_before(b, a)
}

/// Returns the later of two.
pub(crate) const fn later(a: u32, b: u32) -> u32 {
    if is_before(a, b) { b } else { a }
}

/// Returns the earlier of two.
pub(crate) const fn earlier(a: u32, b: u32) -> u32 {
    if is_before(a, b) { a } else { b }
}

/// Returns the distance from `from` up to `to`, or 0 if `to` is not after `from`.
pub(crate) const fn distance(from: u32, to: u32) -> u32 {
    if is_before(from, to) { to.wrapping_sub(from) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_the_wrap() {
        assert!(is_before(u32::MAX, 0));
        assert!(is_after(5, u32::MAX - 5));
        assert!(!is_before(7, 7));
        assert_eq!(later(u32::MAX, 3), 3);
        assert_eq!(earlier(u32::MAX, 3), u32::MAX);
        assert_eq!(distance(u32::MAX, 3), 4);
        assert_eq!(distance(3, u32::MAX), 0);
    }
}
