//! The UTM parameters of a visit, which say what campaign it came from.

use crate::clients::query_parameters::{decoded, query_value};

/// The UTM parameters of a query, decoded. Those that the query lacks are empty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Campaign {
    /// `utm_source`: the site or newsletter.
    pub source: String,
    /// `utm_medium`: the kind of channel.
    pub medium: String,
    /// `utm_campaign`: the name of the campaign.
    pub name: String,
    /// `utm_term`: the paid search terms.
    pub term: String,
    /// `utm_content`: the variant of the advertisement.
    pub content: String,
}

impl Campaign {
    /// Reads the parameters of a query, which may be cut off at its end.
    pub fn of(query: &[u8]) -> Campaign {
        if memchr::memmem::find(query, b"utm").is_none() && !query.contains(&b'%') {
            return Campaign::default();
        }
        let value = |name| {
            let bytes: Vec<u8> = query_value(query, name).map_or_else(Vec::new, |value| decoded(value).collect());
            String::from_utf8_lossy(&bytes).trim().to_owned()
        };
        Campaign {
            source: value("utm_source"),
            medium: value("utm_medium"),
            name: value("utm_campaign"),
            term: value("utm_term"),
            content: value("utm_content"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn utm_parameters_are_decoded() {
        let campaign =
            Campaign::of(b"a=b&utm_source=news+letter&utm_campaign=f%C3%BCr%20alle&utm_term&utm%5Fmedium=e-mail");
        let text = str::to_owned;
        let expected = Campaign {
            source: text("news letter"),
            medium: text("e-mail"),
            name: text("für alle"),
            ..Campaign::default()
        };
        assert_eq!(campaign, expected);
        assert_eq!(
            Campaign::of(b"utm_content=%FF%zz"),
            Campaign { content: text("\u{fffd}%zz"), ..Campaign::default() }
        );
        assert_eq!(Campaign::of(b""), Campaign::default());
    }

    proptest! {
        #[test]
        fn any_query_has_a_campaign(query in any::<Vec<u8>>(), value in any::<Vec<u8>>()) {
            let _ = (Campaign::of(&query), Campaign::of(&[b"utm_source=", &value[..]].concat()));
        }
    }
}
