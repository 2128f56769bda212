//! Merges the query string of a request into the destination of a link that forwards it.
//!
//! Both are taken as they are, without decoding or encoding, so that both sides' own conventions survive. As in Shlink,
//! a parameter of the request replaces the parameters of that name in the destination.

use memchr::memchr;

/// Parameters of a request that replace others. Those behind them are only added, which bounds the work.
const NAMES_MAX: usize = 16;

/// Appends the destination with the query: `https://a/?x=1&y=2#top` and `y=3` are `https://a/?x=1&y=3#top`.
pub fn push(out: &mut Vec<u8>, target: &[u8], query: &[u8]) {
    if query.is_empty() {
        return out.extend_from_slice(target);
    }
    let (target, fragment) = target.split_at(memchr(b'#', target).unwrap_or(target.len()));
    match memchr(b'?', target) {
        None => {
            out.extend_from_slice(target);
            out.push(b'?');
        }
        Some(at) => {
            out.extend_from_slice(&target[..=at]);
            push_others(out, &target[at + 1..], query);
        }
    }
    out.extend_from_slice(query);
    out.extend_from_slice(fragment);
}

/// Appends the parameters of the destination that the request does not set itself.
fn push_others(out: &mut Vec<u8>, own: &[u8], query: &[u8]) {
    let mut names: [&[u8]; NAMES_MAX] = [&[]; NAMES_MAX];
    let mut count = 0;
    for (place, pair) in names.iter_mut().zip(pairs(query)) {
        *place = name(pair);
        count += 1;
    }
    for pair in pairs(own).filter(|pair| !names[..count].contains(&name(pair))) {
        out.extend_from_slice(pair);
        out.push(b'&');
    }
}

fn pairs(query: &[u8]) -> impl Iterator<Item = &[u8]> {
    query.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty())
}

fn name(pair: &[u8]) -> &[u8] {
    &pair[..memchr(b'=', pair).unwrap_or(pair.len())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn merged(target: &str, query: &str) -> String {
        let mut out = Vec::new();
        push(&mut out, target.as_bytes(), query.as_bytes());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn queries_are_merged() {
        for (target, query, whole) in [
            ("https://a/", "", "https://a/"),
            ("https://a/", "x=1", "https://a/?x=1"),
            ("https://a/?", "x=1", "https://a/?x=1"),
            ("https://a/?x=1", "y=2", "https://a/?x=1&y=2"),
            ("https://a/?x=1&y=2&x=3", "x=9", "https://a/?y=2&x=9"),
            ("https://a/?x=1#top", "y=2", "https://a/?x=1&y=2#top"),
            ("https://a/#top?no=query", "y=2", "https://a/?y=2#top?no=query"),
            ("https://a/?x", "x", "https://a/?x"),
            ("https://a/?x=1", "X=2&x2=3", "https://a/?x=1&X=2&x2=3"),
            ("https://a/?q=a%20b&u=http://b/?c=d", "q=%2B+%2b", "https://a/?u=http://b/?c=d&q=%2B+%2b"),
            ("https://a/?x=1", "&&", "https://a/?x=1&&&"),
        ] {
            assert_eq!(merged(target, query), whole, "{target} and {query}");
        }
    }

    #[test]
    fn the_work_is_bounded() {
        let query: Vec<String> = (0..200).map(|number| format!("n{number}=1")).collect();
        let whole = merged("https://a/?n0=0&n199=0", &query.join("&"));
        assert!(!whole.contains("n0=0"), "{whole}");
        assert!(whole.contains("n199=0&"), "{whole}");
    }

    proptest! {
        #[test]
        fn nothing_is_lost_or_invented(own in "[a-c=&%]{0,20}", query in "[a-c=&%]{1,20}", fragment in "(#[a-c?&]{0,5})?") {
            let whole = merged(&format!("https://h/?{own}{fragment}"), &query);
            let rest = whole.strip_prefix("https://h/?").unwrap().strip_suffix(&*fragment).unwrap();
            let kept = rest.strip_suffix(&*query).unwrap();
            let others = |pair: &&[u8]| !pairs(query.as_bytes()).any(|said| name(said) == name(pair));
            let expected: Vec<&[u8]> = pairs(own.as_bytes()).filter(others).collect();
            prop_assert_eq!(pairs(kept.as_bytes()).collect::<Vec<_>>(), expected);
        }
    }
}
