//! The proofs that a code without a link on this node has none on any other node either.
//!
//! A node answers 404 only with a proof, and 503 otherwise. Which proof counts depends on the [`CodeForm`], because
//! nodes create links in two ways:
//!
//! * A link with a chosen slug exists only once Redis has accepted it. So Redis can deny it, as long as Redis has lost
//!   nothing that another node is yet to bring back ([`is_denied`]).
//! * A link with a generated code may exist on its node alone, while that node does not reach Redis. So Redis can deny a
//!   code whose counter value may be leased only once all other nodes have confirmed that it has their links. No node
//!   has leased a value beyond [`bound`].
//!
//! A chosen slug can look like a generated code. Its create is therefore acknowledged only once every node that still
//! reads its streams must have seen it. A node that has just read them denies the codes beyond the bound by itself
//! ([`is_absent`]).

use carom_limits::PRIVATE_CODE_LEN;
use carom_shards::code::CODE_LEN_MAX;
use carom_shards::{Code, CodeLength, CodeSpace, GeneratedCode};

use super::lease::margin;
use super::sites::{BLOCK, SITES};

/// Fewest characters of a generated code.
pub const GENERATED_LEN_MIN: usize = 6;

/// The ways in which a link can have got a code, as far as its characters tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CodeForm {
    /// Generated from this counter value, or chosen.
    Counted(CodeLength, u64),
    /// Drawn at random for a private link, or chosen.
    Random,
    /// Chosen.
    Chosen,
}

impl CodeForm {
    /// Returns the form of a code. Its domain does not matter. Takes the time of one decryption.
    pub fn of(code: &Code, space: &CodeSpace) -> CodeForm {
        if code.len() == PRIVATE_CODE_LEN && code.slug(&mut [0; CODE_LEN_MAX]).iter().all(u8::is_ascii_alphanumeric) {
            return CodeForm::Random;
        }
        let generated = GeneratedCode::from_code(&code.within(None)).filter(|code| code.len() >= GENERATED_LEN_MIN);
        match generated.and_then(|code| space.counter(code)) {
            Some((length, value)) => CodeForm::Counted(length, value.0),
            None => CodeForm::Chosen,
        }
    }
}

/// Returns the first counter value of a length that no node can have leased, if the fleet's counter was at `floor` a
/// few seconds ago.
///
/// In a few seconds, the fleet leases fewer values than are left out: four margins, or 8.4 million if that is more. For
/// codes of six characters, this covers three failovers, which skip a [`margin`] each, and five leases of the longest
/// segment. One guess in 7,000 falls among the values left out; with seven characters, one in 16,000.
pub fn bound(length: CodeLength, floor: u64) -> u64 {
    let left_out = (4 * margin(length)).max(8 << 20);
    floor.saturating_add(left_out).min(length.codes())
}

/// Returns the bound of [`bound`] for two sites, if their counters were at these values a few seconds ago. Leases skip the
/// blocks of the other site, so twice as much is left out, and two blocks.
pub fn bound_of_sites(length: CodeLength, ours: u64, theirs: u64) -> u64 {
    let floor = ours.max(theirs);
    let left_out = bound(length, floor).saturating_sub(floor);
    floor.saturating_add(2 * left_out + SITES * BLOCK).min(length.codes())
}

/// True if a code that this node does not have is certainly on no other node. `bound` is [`bound`], if it is known. The
/// node `has_followed` if it has read all streams to their ends so lately that any slug of this form that was
/// acknowledged before the question is in them.
pub fn is_absent(form: CodeForm, bound: Option<u64>, has_followed: bool) -> bool {
    is_never_generated(form, bound) && form != CodeForm::Chosen && has_followed
}

/// True if a code is certainly on no node, after Redis has said that it has no link. Redis `is_settled` if it has lost
/// nothing lately that another node may be about to bring back. Everything `is_delivered` if, before Redis was asked,
/// it had every link that was acknowledged before the question (see [`super::confirmations`]).
pub fn is_denied(form: CodeForm, bound: Option<u64>, is_settled: bool, is_delivered: bool) -> bool {
    (is_delivered || is_never_generated(form, bound)) && is_settled
}

/// True if no node can have generated the code.
pub fn is_never_generated(form: CodeForm, bound: Option<u64>) -> bool {
    match form {
        CodeForm::Counted(_, value) => bound.is_some_and(|bound| value >= bound),
        CodeForm::Random => false,
        CodeForm::Chosen => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_shards::{CodeSecret, CounterValue};

    fn code(text: &str) -> Code {
        Code::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_code_tells_how_it_can_have_been_made() {
        let space = CodeSpace::new(&CodeSecret::from_bytes([7; 32]));
        let length = CodeLength::DEFAULT;
        let generated = space.code(length, CounterValue(42)).to_code();
        assert_eq!(CodeForm::of(&generated, &space), CodeForm::Counted(length, 42));
        let elsewhere = generated.within(carom_shards::DomainId::from_bytes([1; 6]));
        assert_eq!(CodeForm::of(&elsewhere, &space), CodeForm::Counted(length, 42), "in any domain");
        for chosen in ["a", "short", "my-slug", "seven_7", "elevenchars", "seventeencharact1"] {
            assert_eq!(CodeForm::of(&code(chosen), &space), CodeForm::Chosen, "{chosen}");
        }
        assert_eq!(CodeForm::of(&code("0123456789abcdef"), &space), CodeForm::Random);
        assert_eq!(CodeForm::of(&code("0123456789abcde-"), &space), CodeForm::Chosen);
    }

    #[test]
    fn each_form_has_its_proof() {
        let length = CodeLength::DEFAULT;
        let (issued, beyond) = (CodeForm::Counted(length, 99), CodeForm::Counted(length, 100));
        for (form, unasked, denied) in [
            (issued, false, false),
            (beyond, true, true),
            (CodeForm::Random, false, false),
            (CodeForm::Chosen, false, true),
        ] {
            assert_eq!(is_absent(form, Some(100), true), unasked, "{form:?}");
            assert_eq!(is_denied(form, Some(100), true, false), denied, "{form:?}");
            assert!(is_denied(form, None, true, true), "{form:?}: all links are in Redis");
            assert!(!is_denied(form, Some(100), false, true), "{form:?}: Redis may have lost it");
            assert!(!is_absent(form, Some(100), false), "{form:?}");
            assert!(!is_denied(form, Some(100), false, false), "{form:?}");
            assert!(form == CodeForm::Chosen || !is_denied(form, None, true, false), "{form:?}: unknown counter");
            assert!(!is_absent(form, None, true), "{form:?}");
        }
    }

    #[test]
    fn the_bound_leaves_out_little() {
        for length in CodeLength::new(GENERATED_LEN_MIN).unwrap().and_longer() {
            let left_out = bound(length, 0);
            assert!(left_out >= 4 * margin(length), "{length}: {left_out}");
            assert!(left_out < length.codes() / 5_000, "{length}: {left_out}");
            assert_eq!(bound(length, length.codes() - 1), length.codes(), "all codes may be leased");
        }
    }

    #[test]
    fn the_bound_of_sites_leaves_out_little() {
        for length in CodeLength::new(GENERATED_LEN_MIN).unwrap().and_longer() {
            let left_out = bound_of_sites(length, 5, 3) - 5;
            assert!(left_out >= 2 * BLOCK, "{length}: {left_out}");
            assert!(left_out < length.codes() / 1_000, "{length}: {left_out}");
            assert_eq!(bound_of_sites(length, 3, 5), bound_of_sites(length, 5, 3));
        }
    }
}
