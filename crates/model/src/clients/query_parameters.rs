//! Parameters of a query, for redirect rules and the visit log. Everything is borrowed until it is decoded.

use carom_limits::RULE_QUERY_PARAMETERS_MAX;

/// Returns the value of the last parameter with this name, still encoded; empty if it has none. Reads at most
/// [`RULE_QUERY_PARAMETERS_MAX`] parameters.
pub fn query_value<'q>(query: &'q [u8], name: &str) -> Option<&'q [u8]> {
    let parameters = parameters(query).take(RULE_QUERY_PARAMETERS_MAX);
    let of = |parameter: &'q [u8]| match memchr::memchr(b'=', parameter) {
        Some(at) => (&parameter[..at], &parameter[at + 1..]),
        None => (parameter, &b""[..]),
    };
    parameters.map(of).filter(|(found, _)| is_decoded(found, name)).last().map(|(_, value)| value)
}

/// Splits a query into its parameters. Searches many bytes at once: a link may have a thousand conditions, and each reads
/// the whole query.
fn parameters(query: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(query);
    std::iter::from_fn(move || {
        let all = rest?;
        let (parameter, behind) = match memchr::memchr(b'&', all) {
            Some(at) => (&all[..at], Some(&all[at + 1..])),
            None => (all, None),
        };
        rest = behind;
        Some(parameter)
    })
}

/// True if an encoded name or value stands for a text.
pub(crate) fn is_decoded(encoded: &[u8], text: &str) -> bool {
    decoded(encoded).eq(text.bytes())
}

/// Returns the bytes that an encoded name or value stands for: a plus for a space, and escapes for bytes. A percent sign
/// without two digits behind it stands for itself.
pub fn decoded(encoded: &[u8]) -> impl Iterator<Item = u8> {
    let mut rest = encoded;
    std::iter::from_fn(move || {
        let (&first, behind) = rest.split_first()?;
        let (byte, behind) = match (first, behind) {
            (b'+', _) => (b' ', behind),
            (b'%', [high, low, after @ ..]) => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, after),
                _ => (first, behind),
            },
            _ => (first, behind),
        };
        rest = behind;
        Some(byte)
    })
}

/// Returns the value of a hexadecimal digit.
fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parameters_lie_between_ampersands(query in "[a&=]{0,20}") {
            let split: Vec<&[u8]> = query.as_bytes().split(|&byte| byte == b'&').collect();
            prop_assert_eq!(parameters(query.as_bytes()).collect::<Vec<_>>(), split);
        }

        #[test]
        fn any_query_can_be_read(query in any::<Vec<u8>>(), text in any::<String>()) {
            let _ = query_value(&query, &text).map(|value| is_decoded(value, &text));
            prop_assert!(decoded(&query).count() <= query.len());
        }

        #[test]
        fn what_is_encoded_is_found(name in "\\PC{1,20}", value in "\\PC{0,20}") {
            let query = url::form_urlencoded::Serializer::new(String::new()).append_pair(&name, &value).finish();
            let found = query_value(query.as_bytes(), &name);
            prop_assert!(found.is_some_and(|found| is_decoded(found, &value)), "{}", query);
            prop_assert_eq!(found.map(|found| decoded(found).collect()), Some(value.into_bytes()));
        }
    }
}
