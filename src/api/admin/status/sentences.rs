//! Texts of alarms as sentences. An alarm of the status is a clause that begins small and may have its cause in
//! parentheses, as in a log line: `the file cannot be read (permission denied); the last list stays in use`.

/// Least length of a cause, in characters, that is a sentence of its own. Shorter parentheses stay in the text.
const CAUSE_LEN_MIN: usize = 30;

/// Returns the text of an alarm as a sentence, and its cause as another one.
pub(super) fn sentences(said: &str) -> (String, Option<String>) {
    match split(said) {
        Some((problem, cause)) => (ended(&sentence(&problem)), Some(ended(&sentence(&without_parentheses(cause))))),
        None => (ended(&sentence(said)), None),
    }
}

/// Splits a text at a cause in parentheses, which may have parentheses itself.
fn split(said: &str) -> Option<(String, &str)> {
    let (before, rest) = said.split_once(" (")?;
    let (cause, after) = rest.rsplit_once(')')?;
    let is_end = after.is_empty() || (after.starts_with("; ") && !after.contains('('));
    let is_long = cause.chars().count() >= CAUSE_LEN_MIN;
    (is_end && is_long && is_balanced(cause)).then(|| (format!("{before}{after}"), cause))
}

/// True if each parenthesis that closes has one before it that opens, and the other way round.
fn is_balanced(text: &str) -> bool {
    let mut depth = 0_i32;
    let never_below = text.chars().all(|sign| {
        depth += i32::from(sign == '(') - i32::from(sign == ')');
        depth >= 0
    });
    never_below && depth == 0
}

/// Writes a reason in parentheses at the end of a cause behind a colon.
fn without_parentheses(cause: &str) -> String {
    match cause.split_once(" (") {
        Some((what, why)) => match why.strip_suffix(')') {
            Some(why) if is_balanced(why) => format!("{what}: {}", without_parentheses(why)),
            _ => cause.to_owned(),
        },
        None => cause.to_owned(),
    }
}

/// Begins a text with a capital letter, unless its first word is a name, such as that of a setting.
pub(in crate::api) fn sentence(text: &str) -> String {
    let word = text.split([' ', ',', ';']).next().unwrap_or_default();
    let is_name = word == "carom" || !word.bytes().all(|byte| byte.is_ascii_lowercase());
    if is_name || word.is_empty() { text.to_owned() } else { text[..1].to_ascii_uppercase() + &text[1..] }
}

/// Ends a text with a full stop.
fn ended(text: &str) -> String {
    if text.is_empty() || text.ends_with(['.', '?', '!', '…']) { text.to_owned() } else { format!("{text}.") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarm_texts_begin_with_a_capital() {
        assert_eq!(sentence("the disk is full"), "The disk is full");
        assert_eq!(sentence("fleet.node is missing"), "fleet.node is missing");
        assert_eq!(sentence("carom is old"), "carom is old");
        assert_eq!(sentence("nothing; lines are dropped"), "Nothing; lines are dropped");
        assert_eq!(sentence(""), "");
    }

    #[test]
    fn causes_are_sentences_of_their_own() {
        let said = "the keys cannot be read (the file is not a JSON object (EOF at line 1 column 1)); the known keys stay valid";
        let cause = "The file is not a JSON object: EOF at line 1 column 1.";
        assert_eq!(
            sentences(said),
            ("The keys cannot be read; the known keys stay valid.".to_owned(), Some(cause.to_owned()))
        );
        let whole = |said: &str| assert_eq!(sentences(said), (format!("{}.", sentence(said)), None));
        whole("the disk is full (2 MiB left); free some space");
        whole("a text (with parentheses that are long enough) and words after them");
        whole("the first (which is long enough to be a cause) and the second (which is long as well, and ends it)");
        assert_eq!(sentences(""), (String::new(), None));
    }
}
