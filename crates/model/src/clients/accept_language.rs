//! The language that a client wants most, from its `Accept-Language`.

/// Longest kept language tag, in bytes. The longest registered ones have half as many.
pub const LANGUAGE_LEN_MAX: usize = 35;

/// Returns the first language of `Accept-Language`, such as `de-CH`; empty if it has no language tag, or one that is too long.
pub fn first_language(header: &[u8]) -> &[u8] {
    let end = memchr::memchr2(b',', b';', header).unwrap_or(header.len());
    let tag = header[..end].trim_ascii();
    let is_tag = tag.first().is_some_and(u8::is_ascii_alphanumeric)
        && tag.len() <= LANGUAGE_LEN_MAX
        && tag.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    if is_tag { tag } else { &[] }
}

/// Returns the language of a tag without its region and script, in lower case.
pub fn primary_language(tag: &[u8]) -> String {
    let language = tag.split(|byte| matches!(byte, b'-' | b'_')).next().unwrap_or_default();
    String::from_utf8_lossy(language).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn first_language_is_the_wanted_one() {
        for (header, tag, language) in [
            ("de-CH,de;q=0.9,en;q=0.8", "de-CH", "de"),
            ("EN;q=0.5, fr", "EN", "en"),
            (" pt_BR ,en", "pt_BR", "pt"),
            ("zh-Hant-TW", "zh-Hant-TW", "zh"),
            ("*", "", ""),
            ("", "", ""),
            (",de", "", ""),
            ("d\u{e9},en", "", ""),
        ] {
            assert_eq!(first_language(header.as_bytes()), tag.as_bytes(), "{header}");
            assert_eq!(primary_language(tag.as_bytes()), language);
        }
        assert_eq!(first_language(&[b'a'; LANGUAGE_LEN_MAX + 1]), b"");
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_language_or_none(header in any::<Vec<u8>>()) {
            prop_assert!(first_language(&header).len() <= LANGUAGE_LEN_MAX);
        }
    }
}
