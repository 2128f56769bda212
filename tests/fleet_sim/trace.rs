//! The steps of a schedule in words that fit on lines: states as kind, code, revision and claim.

use std::fmt::Debug;

/// Writes a line of the trace.
macro_rules! note {
    ($world:expr, $($arg:tt)*) => {
        if $world.trace {
            println!("{:>4} {}", $world.step, format_args!($($arg)*));
        }
    };
}
pub(crate) use note;

/// A value without what is the same in every schedule.
pub(crate) fn brief(what: &dyn Debug) -> String {
    let mut text = format!("{what:?}");
    for (kind, from, to) in [("link", "Link(Link { code: ", " } })"), ("link", "Link { code: ", " } }")] {
        while let Some(start) = text.find(from) {
            let Some(len) = text[start..].find(to) else { break };
            let (inside, end) = (&text[start + from.len()..start + len], start + len + to.len());
            let code = inside.split_once(", ").map_or("", |(code, _)| code);
            text = format!("{}<{kind} {code} {}>{}", &text[..start], version(inside), &text[end..]);
        }
    }
    while let Some(start) = text.find("Gone(Tombstone {") {
        let Some(len) = text[start..].find(" } })") else { break };
        let inside = &text[start..start + len];
        text = format!("{}<gone {}>{}", &text[..start], version(inside), &text[start + len + 5..]);
    }
    for (from, to) in [
        ("EntryId { ms: ", "id("),
        (", seq: ", "."),
        ("ticket: Ticket { core: CoreId(0), token: ", "request ("),
        ("Ticket { core: CoreId(0), token: ", "request ("),
        ("partition: Partition", "p"),
        (" }", ")"),
        (" { ", "("),
    ] {
        text = text.replace(from, to);
    }
    text
}

/// The revision and the claim at the end of a state.
fn version(inside: &str) -> String {
    let numbers = inside.rsplit_once("rev: ").map_or(inside, |(_, numbers)| numbers);
    numbers.replace(", claim: ", "/")
}
