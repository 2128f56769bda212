//! Tests of codes.

use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn parse_is_total_and_round_trips(text in proptest::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(code) = Code::parse(&text) {
            prop_assert_eq!(code.slug(&mut [0; CODE_LEN_MAX]).to_vec(), text.clone());
            prop_assert_eq!(code.key(&mut [0; CODE_KEY_LEN_MAX]).to_vec(), text);
            prop_assert_eq!(Code::from_packed(code.sextets(), code.packed()), Some(code));
            prop_assert_eq!(Code::from_slug(code.slug(&mut [0; CODE_LEN_MAX])), Ok(code));
        }
    }

    #[test]
    fn slugs_with_slashes_round_trip(
        text in "[0-9A-Za-z_-]{1,30}(/[0-9A-Za-z_-]{1,7}){1,4}|[0a](/[0_]){1,31}",
        domain in any::<[u8; DOMAIN_ID_LEN]>(),
    ) {
        let parsed = Code::from_slug(text.as_bytes());
        if text.len() > PATH_SLUG_LEN_MAX {
            prop_assert_eq!(parsed, Err(CodeError::PathTooLong { len: text.len() }));
            return Ok(());
        }
        let plain = parsed.unwrap();
        let code = plain.within(DomainId::from_bytes(domain));
        prop_assert!(code.has_slashes());
        prop_assert!(code.len() == text.len());
        prop_assert_eq!(&code.as_slug().to_string(), &text);
        prop_assert_eq!(Code::from_packed(code.sextets(), code.packed()), Some(plain));
        prop_assert_eq!(Code::from_key(code.to_string().as_bytes()), Ok(code));
        prop_assert_eq!(GeneratedCode::from_code(&plain), None);
        let lower = text.to_ascii_lowercase();
        prop_assert_eq!(code.in_lower_case().map(|code| code.as_slug().to_string()), (lower != text).then_some(lower));
        // The same units without the ones are another code, if they are one.
        let mut other = plain;
        other.packed[packed_len(plain.sextets()) - 1] &= !unused_bits(plain.sextets());
        prop_assert!(Code::from_packed(other.sextets(), other.packed()) == Some(other));
        prop_assert!(!other.has_slashes());
        prop_assert_ne!(CodeHasher::new(7).hash(&other), CodeHasher::new(7).hash(&plain));
    }

    #[test]
    fn no_two_slugs_have_one_packed_form(one in "[01]{0,3}(/?[01]){1,6}", other in "[01]{0,3}(/?[01]){1,6}") {
        if let (Ok(a), Ok(b)) = (Code::from_slug(one.as_bytes()), Code::from_slug(other.as_bytes())) {
            prop_assert_eq!((a.sextets(), a.packed()) == (b.sextets(), b.packed()), one == other);
        }
    }

    #[test]
    fn packed_forms_are_checked(packed in proptest::collection::vec(any::<u8>(), 1..=48), ones in any::<bool>()) {
        for sextets in packed.len() * 8 / 6..=(packed.len() * 8).div_ceil(6) {
            let mut packed = packed.clone();
            // The first length is often one that fits.
            packed[0] &= 0x1f;
            if let Some(last) = packed.last_mut().filter(|_| ones && (1..=CODE_LEN_MAX).contains(&sextets)) {
                *last |= unused_bits(sextets.max(1));
            }
            if let Some(code) = Code::from_packed(sextets, &packed) {
                prop_assert_eq!(Code::from_slug(code.slug(&mut [0; CODE_LEN_MAX])), Ok(code));
            }
        }
    }

    #[test]
    fn every_slug_round_trips(text in "[0-9A-Za-z_-]{1,64}|[0-9A-Za-z]{1,12}|[0-9A-Za-z_]{1,12}") {
        let code = Code::parse(text.as_bytes()).expect("a slug of the alphabet");
        let generated = GeneratedCode::from_code(&code);
        let could_be = text.len() <= GeneratedCode::LEN_MAX && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        prop_assert_eq!(generated.map(GeneratedCode::to_code), could_be.then_some(code));
        prop_assert_eq!(code.to_string(), text);
        prop_assert_eq!(code.packed().len(), (code.len() * 6).div_ceil(8));
        prop_assert!(!code.has_slashes());
    }

    #[test]
    fn keys_tell_domains_apart(text in "[0-9A-Za-z_-]{1,64}", domain in any::<[u8; DOMAIN_ID_LEN]>()) {
        let plain = Code::parse(text.as_bytes()).unwrap();
        let code = plain.within(DomainId::from_bytes(domain));
        prop_assert_eq!(&code.as_slug().to_string(), &text);
        prop_assert_eq!(code.domain().map(DomainId::to_bytes).unwrap_or_default(), domain);
        prop_assert_eq!(code.within(None), plain);
        prop_assert!(GeneratedCode::from_code(&code).is_none() || code == plain);
        let key = code.to_string();
        prop_assert_eq!(Code::from_key(key.as_bytes()), Ok(code));
        prop_assert_eq!(key == plain.to_string(), code == plain);
        let hasher = CodeHasher::new(7);
        prop_assert_eq!(hasher.hash(&code) == hasher.hash(&plain), code == plain);
    }

    #[test]
    fn reading_keys_is_total(key in proptest::collection::vec(any::<u8>(), 0..80), text in "[0-9A-Za-z_./-]{0,76}") {
        for key in [&key[..], text.as_bytes()] {
            if let Ok(code) = Code::from_key(key) {
                prop_assert_eq!(code.key(&mut [0; CODE_KEY_LEN_MAX]).to_vec(), key);
            }
        }
    }

    #[test]
    fn generated_bits_are_checked(bits in any::<u64>()) {
        if let Some(code) = GeneratedCode::from_bits(bits) {
            prop_assert_eq!(code.to_bits(), bits);
            prop_assert!(code.to_code().len() <= GeneratedCode::LEN_MAX);
            prop_assert_eq!(GeneratedCode::from_code(&code.to_code()), Some(code));
        }
    }

    #[test]
    fn generated_digits_round_trip(digits in proptest::collection::vec(0u8..62, 1..=10)) {
        let code = GeneratedCode::from_digits(&digits);
        prop_assert_eq!(GeneratedCode::from_bits(code.to_bits()), Some(code));
        let text: Vec<u8> = digits.iter().map(|&d| ALPHABET[usize::from(d)]).collect();
        prop_assert_eq!(code.to_code(), Code::parse(&text).expect("digits are of the alphabet"));
    }
}

#[test]
fn no_digit_of_a_generated_code_exceeds_61() {
    for len in 1..=GeneratedCode::LEN_MAX {
        for (place, digit) in (0..len).flat_map(|place| (0..64u64).map(move |digit| (place, digit))) {
            for others in [0, 31, 61] {
                let digits = (0..len).map(|at| if at == place { digit } else { others });
                let bits = (len as u64) << 60 | digits.fold(0u64, |bits, digit| bits << 6 | digit);
                assert_eq!(GeneratedCode::from_bits(bits).is_some(), digit < 62, "{bits:#o}");
            }
        }
    }
}

#[test]
fn errors_say_what_is_wrong() {
    assert_eq!(Code::parse(b""), Err(CodeError::Empty));
    assert_eq!(Code::parse(&[b'a'; 65]), Err(CodeError::TooLong { len: 65 }));
    assert_eq!(Code::parse(b"abcde/g"), Err(CodeError::BadByte { at: 5 }));
    assert_eq!(Code::parse("é".as_bytes()), Err(CodeError::BadByte { at: 0 }));
    for (text, at) in [("/a", 0), ("a/", 2), ("a//b", 2), ("/", 0)] {
        assert_eq!(Code::from_slug(text.as_bytes()), Err(CodeError::EmptySegment { at }), "{text}");
    }
    for (text, at) in [("a/.", 2), ("a/../b", 2), ("a b/c", 1)] {
        assert_eq!(Code::from_slug(text.as_bytes()), Err(CodeError::BadByte { at }), "{text}");
    }
    assert!(Code::from_slug(format!("{}/b", "a".repeat(60)).as_bytes()).is_ok());
    assert_eq!(Code::from_slug(&[b'/'; 63]), Err(CodeError::PathTooLong { len: 63 }));
}

#[test]
fn zeros_of_different_lengths_are_different_codes() {
    let hasher = CodeHasher::new(7);
    let (three, four) = (Code::parse(b"000").unwrap(), Code::parse(b"0000").unwrap());
    assert_ne!(three, four);
    assert_ne!(hasher.hash(&three), hasher.hash(&four));
}

#[test]
fn reserved_names_are_refused_in_any_case() {
    for name in ["rest", "REST", "metrics", "shorturl_status"] {
        assert!(Code::parse(name.as_bytes()).unwrap().is_reserved(), "{name}");
    }
    assert!(!Code::parse(b"restful").unwrap().is_reserved());
    for slug in ["rest/a", "Admin/a/b", "-/links/a", "a/track", "a/b/QR-code", "v4/shorten"] {
        assert!(Code::from_slug(slug.as_bytes()).unwrap().is_reserved(), "{slug}");
    }
    for slug in ["a/rest", "track/a", "-a/b", "a/-", "docs/2026/start", "restful/a"] {
        assert!(!Code::from_slug(slug.as_bytes()).unwrap().is_reserved(), "{slug}");
    }
}
