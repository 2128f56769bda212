//! Texts of alarms as sentences. The text of an alarm is a clause that begins small, as in a log line, and may have its cause in
//! parentheses and a remedy at its end: `the file cannot be written (permission denied); lines are dropped; free some space`.

/// Least length of a cause, in characters, that is a sentence of its own. Shorter parentheses stay in the text.
const CAUSE_LEN_MIN: usize = 30;

/// Verbs with which texts of alarms begin a remedy.
const REMEDY_VERBS: [&str; 15] = [
    "add", "check", "fill", "free", "make", "move", "replace", "restart", "restore", "run", "see", "set", "start",
    "stop", "upgrade",
];

/// The text of an alarm as sentences.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct AlarmSentences {
    /// The problem and its effect.
    pub(super) message: String,
    /// The cause, if the text names one.
    pub(super) cause: Option<String>,
    /// The remedy, if the text has one. The runbook always has.
    pub(super) remedy: Option<String>,
}

impl AlarmSentences {
    /// Splits the text of an alarm.
    pub(super) fn of(said: &str) -> AlarmSentences {
        let (said, remedy) = split_remedy(said);
        let remedy = remedy.map(|remedy| ended(&sentence(remedy)));
        match split_cause(said) {
            Some((problem, cause)) => {
                let cause = ended(&sentence(&without_parentheses(cause)));
                AlarmSentences { message: ended(&sentence(&problem)), cause: Some(cause), remedy }
            }
            None => AlarmSentences { message: ended(&sentence(said)), cause: None, remedy },
        }
    }
}

/// Splits a text before its first clause that is a remedy.
fn split_remedy(said: &str) -> (&str, Option<&str>) {
    let is_remedy = |(at, _): &(usize, &str)| {
        let verb = said[at + 2..].split([' ', ',', ':']).next().unwrap_or_default();
        REMEDY_VERBS.contains(&verb) && is_balanced(&said[..*at])
    };
    match said.match_indices("; ").find(is_remedy) {
        Some((at, _)) => (&said[..at], Some(&said[at + 2..])),
        None => (said, None),
    }
}

/// Splits a text at a cause in parentheses, which may have parentheses itself.
fn split_cause(said: &str) -> Option<(String, &str)> {
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
    let word = text.split([' ', ',', ';', ':']).next().unwrap_or_default();
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

    /// Asserts the parts of a text: message, cause and remedy. A part that is absent is empty.
    fn assert_parts(said: &str, parts: [&str; 3]) {
        let AlarmSentences { message, cause, remedy } = AlarmSentences::of(said);
        assert_eq!([message, cause.unwrap_or_default(), remedy.unwrap_or_default()], parts);
    }

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
        assert_parts(
            "the keys cannot be read (the file is not a JSON object (EOF at line 1 column 1)); the known keys stay valid",
            [
                "The keys cannot be read; the known keys stay valid.",
                "The file is not a JSON object: EOF at line 1 column 1.",
                "",
            ],
        );
        let whole = |said: &str| assert_parts(said, [&format!("{}.", sentence(said)), "", ""]);
        whole("the disk is full (2 MiB left); writes are refused");
        whole("a text (with parentheses that are long enough) and words after them");
        whole("the first (which is long enough to be a cause) and the second (which is long as well, and ends it)");
        assert_parts("", ["", "", ""]);
    }

    #[test]
    fn remedies_are_sentences_of_their_own() {
        assert_parts(
            "visits cannot be stored (the disk has reported an error, 5); these are lost; check the disk, then restart",
            [
                "Visits cannot be stored; these are lost.",
                "The disk has reported an error, 5.",
                "Check the disk, then restart.",
            ],
        );
        assert_parts(
            "a core is slow (ring of frames full: 2, no frame: 3; see below); add cores and queues",
            ["A core is slow.", "Ring of frames full: 2, no frame: 3; see below.", "Add cores and queues."],
        );
        assert_parts(
            "counts are missing; start the nodes that are silent: n1; upgrade this node: n2",
            ["Counts are missing.", "", "Start the nodes that are silent: n1; upgrade this node: n2."],
        );
        assert_parts("it is full; checks go on", ["It is full; checks go on.", "", ""]);
    }
}
