//! The commands that undo a delete, as a person can copy them into a shell.

use super::name::LinkName;
use crate::commands::cli::ApiPlace;

/// Returns the commands that bring back links whose deletion is scheduled. `online` are links that redirected before, and
/// `archived` are links that were archived already, and stay so.
pub(super) fn commands(online: &[&LinkName], archived: &[&LinkName], place: &ApiPlace) -> Vec<String> {
    // One command has one domain.
    let mut groups: Vec<(Option<&str>, Vec<&str>)> = Vec::new();
    for name in online {
        match groups.iter_mut().find(|(domain, _)| *domain == name.domain()) {
            Some((_, codes)) => codes.push(name.code()),
            None => groups.push((name.domain(), vec![name.code()])),
        }
    }
    let restored = groups.iter().map(|(domain, codes)| command("restore", *domain, codes, place));
    let kept = archived.iter().map(|name| command("edit --archived true", name.domain(), &[name.code()], place));
    restored.chain(kept).collect()
}

/// Returns a command for these links of one domain, on the node of the arguments.
fn command(verb: &str, domain: Option<&str>, codes: &[&str], place: &ApiPlace) -> String {
    let ApiPlace { url, key_file, plain_http } = place;
    let mut line = format!("carom link {verb}");
    let key_file = key_file.as_ref().map(|file| file.display().to_string());
    for (option, value) in [("--domain", domain), ("--url", url.as_deref()), ("--key-file", key_file.as_deref())] {
        if let Some(value) = value {
            line.push_str(&format!(" {option} {}", quoted(value)));
        }
    }
    if *plain_http {
        line.push_str(" --plain-http");
    }
    // A slug may begin like an option.
    if codes.iter().any(|code| code.starts_with('-')) {
        line.push_str(" --");
    }
    for code in codes {
        line.push_str(&format!(" {code}"));
    }
    line
}

/// Returns a text as one word of a shell.
fn quoted(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@%+=,".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::commands::node_api::NodeApi;
    use crate::commands::profile::NodeAccess;

    fn named(code: &str, domain: Option<&str>) -> LinkName {
        let api = NodeApi::new(NodeAccess { url: "http://127.0.0.1:9".to_owned(), key: None });
        // A slug needs no request.
        LinkName::find(&api, code, domain).unwrap()
    }

    #[test]
    fn undo_brings_back_what_was_deleted() {
        let (a, b, other) = (named("a", None), named("b", None), named("c", Some("go.example")));
        let place = ApiPlace::default();
        assert_eq!(commands(&[], &[], &place), Vec::<String>::new());
        let expected = ["carom link restore a b", "carom link restore --domain go.example c"];
        assert_eq!(commands(&[&a, &other, &b], &[], &place), expected);
        // An archived link stays offline.
        let expected = ["carom link restore a", "carom link edit --archived true --domain go.example c"];
        assert_eq!(commands(&[&a], &[&other], &place), expected);
        assert_eq!(commands(&[&named("-a", None)], &[], &place), ["carom link restore -- -a"]);
    }

    #[test]
    fn undo_asks_the_same_node() {
        let place = ApiPlace {
            url: Some("http://go.example:8080".to_owned()),
            key_file: Some(PathBuf::from("Anna's key")),
            plain_http: true,
        };
        let expected = r"carom link restore --url http://go.example:8080 --key-file 'Anna'\''s key' --plain-http a";
        assert_eq!(commands(&[&named("a", None)], &[], &place), [expected]);
    }
}
