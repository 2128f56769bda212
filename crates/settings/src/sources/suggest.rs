//! "Did you mean": the known name that is nearest to a mistyped one.

/// Returns the nearest of `known`, if it is near enough to be the intended name.
pub(crate) fn nearest<'a>(typed: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // At most a third of the letters may differ; a more distant suggestion would mislead.
    let far = (typed.chars().count() / 3).max(1);
    known
        .map(|name| (distance(typed, name), name))
        .filter(|&(distance, _)| distance <= far)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, name)| name)
}

/// Returns the number of letters to insert, remove, replace or swap with their neighbour to turn one word into the
/// other (optimal string alignment). Ignores case.
fn distance(a: &str, b: &str) -> usize {
    // A name in a file can be as long as the file, but a typo never has that length.
    const LONGEST: usize = 64;
    if [a, b].iter().any(|word| word.chars().nth(LONGEST).is_some()) {
        return usize::MAX;
    }
    strsim::osa_distance(&a.to_ascii_lowercase(), &b.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_a_slipped_hand() {
        for (a, b, expected) in [
            ("listen", "listen", 0),
            ("lisen", "listen", 1),
            ("lsiten", "listen", 1),
            ("", "abc", 3),
            ("Open", "open", 0),
        ] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }

    #[test]
    fn suggests_the_nearest_and_nothing_when_all_are_far() {
        let known = || ["listen", "admin_listen", "cores"].into_iter();
        assert_eq!(nearest("lisen", known()), Some("listen"));
        assert_eq!(nearest("admin-listen", known()), Some("admin_listen"));
        assert_eq!(nearest("core", known()), Some("cores"));
        assert_eq!(nearest("redis", known()), None);
        assert_eq!(nearest(&"x".repeat(100_000), known()), None);
    }
}
