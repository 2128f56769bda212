//! `carom purge`: deletes links of a node and takes everything else about them out of all nodes, through the REST API.

use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::cli::PurgeArgs;
use super::node_api::{Method, NodeApi, escaped};
use super::output::print;
use super::profile::{access, can_ask};
use super::terminal::{confirms, note, plain, say};
use carom_settings::exit::{Exit, Reason};
use carom_telemetry::readable;

/// Path of purges.
const PURGES: &str = "/rest/v3/purges";

/// Interval between two looks at the progress of a purge.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Time within which every node of a fleet knows a purge. A balancer may send a question to another node.
const KNOWN_WITHIN: Duration = Duration::from_secs(60);

/// The beginning of the error of a node that does not know a purge. The tests of the API compare it.
const UNKNOWN: &str = "No purge";

/// The result of the requests of a command.
#[derive(Debug, Default)]
struct Purged {
    ids: Vec<String>,
    deleted: u64,
    failed: u64,
    /// Links that were deleted before the command, and that its first request takes.
    before: u64,
}

/// Runs the command.
///
/// # Errors
/// [`Reason::Usage`] for what is wrong with the arguments, the login or the key, and [`Reason::Incomplete`] if the node
/// does not answer, or some links could not be deleted.
pub fn run(arguments: &PurgeArgs) -> Result<(), Exit> {
    let api = NodeApi::new(access(&arguments.place)?);
    let fields = selector_of(arguments);
    let counted = api.ask(&Method::POST, PURGES, Some(&Value::Object(fields.clone())))?;
    if counted.get("purge").is_some() {
        return purge_in_home(&api, fields, arguments, &counted);
    }
    let (count, before) = (number(&api, &counted, "count")?, deleted_before(&counted));
    if arguments.dry_run {
        print_counts(count, before);
        return Ok(());
    }
    if !may_purge(arguments, &counted, (count, before))? {
        return Ok(());
    }
    let purged = purge_all(&api, fields.clone(), count)?;
    note(&format!("deleted {} of {}", purged.deleted, readable::count(count, "link")));
    if arguments.no_wait {
        purged.ids.iter().for_each(|id| print(&format!("{id}\n")));
        if before > purged.before {
            note("links that were deleted before may be left; run the command again once these are purged");
        }
    } else {
        purged.ids.iter().try_for_each(|id| wait_for(&api, id).map(drop))?;
        let rest = if before > 0 { purge_rest(&api, fields)? } else { 0 };
        let all = purged.deleted + before.max(purged.before + rest);
        print(&format!("purged {}\n", readable::count(all, "link")));
    }
    if purged.failed == 0 {
        return Ok(());
    }
    let what = format!("{} could not be deleted", readable::count(purged.failed, "link"));
    Err(Exit::new(Reason::Incomplete, what)
        .with_remedy("run the command again; the log of the node says why, and the others are purged"))
}

/// Purges links that Redis stores. The node reads all links, first to count those that match. `counting` is the answer to the
/// request that has begun the count.
fn purge_in_home(
    api: &NodeApi,
    mut fields: Map<String, Value>,
    arguments: &PurgeArgs,
    counting: &Value,
) -> Result<(), Exit> {
    let counted = match counting["purge"]["id"].as_str() {
        Some(id) => wait_for(api, id)?["selection"].clone(),
        // The request selects a domain that no link can have.
        None => json!({"matched": 0}),
    };
    let (count, before) = (number(api, &counted, "matched")?, deleted_before(&counted));
    if arguments.dry_run {
        print_counts(count, before);
        return end_of_count(&counted);
    }
    if count + before == 0 {
        end_of_count(&counted)?;
    }
    if !may_purge(arguments, counting, (count, before))? {
        return Ok(());
    }
    fields.insert("confirm".to_owned(), json!(count));
    let begun = api.ask(&Method::POST, PURGES, Some(&Value::Object(fields)))?;
    let id = begun["purge"]["id"].as_str().ok_or_else(|| api.foreign("the answer is not about purges"))?;
    if arguments.no_wait {
        note("the node looks for the links, deletes them and purges them");
        print(&format!("{id}\n"));
        return Ok(());
    }
    let purged = wait_for(api, id)?;
    let selection = &purged["selection"];
    let all = number(api, selection, "matched")? + deleted_before(selection);
    print(&format!("purged {}\n", readable::count(all, "link")));
    match incomplete(selection) {
        None => Ok(()),
        Some(what) => Err(Exit::new(Reason::Incomplete, what)
            .with_remedy("run the command again; the links that it has deleted are purged")),
    }
}

/// Prints how many links a purge would take: those that it would delete, and those that were deleted before.
fn print_counts(count: u64, before: u64) {
    print(&format!("{} would be deleted and purged\n", readable::count(count, "link")));
    if before > 0 {
        print(&format!("{} would be purged\n", earlier(before)));
    }
}

/// Returns the text for a number of links that were deleted before.
fn earlier(before: u64) -> String {
    readable::count(before, "link") + " deleted before"
}

/// Returns the result of a command that has counted the links of a selection, and purges none.
fn end_of_count(selection: &Value) -> Result<(), Exit> {
    let Some(what) = incomplete(selection) else { return Ok(()) };
    Err(Exit::new(Reason::Incomplete, what)
        .with_remedy("links that match may be left; upgrade the node, and run the command again"))
}

/// Returns why a selection may have left links; `None` if it has purged all of them.
fn incomplete(selection: &Value) -> Option<String> {
    if let Some(why) = selection["stopped"].as_str() {
        return Some(format!("the node has not read all links: {}", plain(why)));
    }
    let unreadable = selection["unreadable"].as_u64().filter(|unreadable| *unreadable > 0)?;
    Some(format!("the node cannot read {} of a later version of carom", readable::count(unreadable, "link")))
}

/// Returns the fields of a request that select the links.
fn selector_of(arguments: &PurgeArgs) -> Map<String, Value> {
    let PurgeArgs { domain, app, tag, destination, .. } = arguments;
    let all = [("domain", domain), ("app", app), ("tag", tag), ("destination", destination)];
    all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value.as_ref()?)))).collect()
}

/// True if links match, and the arguments or the answer to a question confirm their purge. Otherwise says that nothing was
/// purged. `numbers` are those of the links to delete, and of the links that were deleted before.
fn may_purge(arguments: &PurgeArgs, counted: &Value, numbers: (u64, u64)) -> Result<bool, Exit> {
    let (count, before) = numbers;
    if count + before == 0 {
        say("no link matches; nothing was purged");
        return Ok(false);
    }
    let links = readable::count(count, "link");
    let all = if before > 0 { format!("{links} and {}", earlier(before)) } else { links };
    let is_wanted = arguments.yes || is_confirmed(counted, &all)?;
    if !is_wanted {
        say("nothing was purged");
    }
    Ok(is_wanted)
}

/// Shows some of the links, and asks whether to purge them.
fn is_confirmed(counted: &Value, links: &str) -> Result<bool, Exit> {
    if !can_ask() {
        return Err(Exit::new(Reason::Usage, "a purge cannot be undone, and standard input is not a terminal")
            .with_remedy("pass --yes to purge without a question, or --dry-run to count the links"));
    }
    let sample = counted["sample"].as_array().into_iter().flatten();
    for link in sample {
        let text = |name: &str| plain(link[name].as_str().unwrap_or_default());
        say(&format!("{}  {}", text("shortUrl"), text("longUrl")));
    }
    Ok(confirms(&format!("Delete and purge {links}, with their visits and history? This cannot be undone.")))
}

/// Begins purges until all of the counted links are deleted. A node takes a bounded number of links at once.
fn purge_all(api: &NodeApi, mut fields: Map<String, Value>, count: u64) -> Result<Purged, Exit> {
    let mut purged = Purged::default();
    let mut left = count;
    loop {
        fields.insert("confirm".to_owned(), json!(left));
        let begun = api.ask(&Method::POST, PURGES, Some(&Value::Object(fields.clone())))?;
        let deleted = number(api, &begun, "deleted")?;
        purged.failed = number(api, &begun, "failed")?;
        purged.deleted += deleted;
        if purged.ids.is_empty() {
            // Later requests also find the links that this command has just deleted.
            purged.before = deleted_before(&begun);
        }
        purged.ids.extend(begun["purge"]["id"].as_str().map(str::to_owned));
        left = number(api, &begun, "left")? + purged.failed;
        if deleted == 0 || left == 0 {
            return Ok(purged);
        }
        note(&format!("deleted {} of {}", purged.deleted, readable::count(count, "link")));
    }
}

/// Purges the links that were deleted before, and for which the requests so far had no room. Returns their number. Requests
/// find a link again until it is purged, so this waits for each purge.
fn purge_rest(api: &NodeApi, mut fields: Map<String, Value>) -> Result<u64, Exit> {
    let mut rest = 0;
    loop {
        fields.remove("confirm");
        let counted = api.ask(&Method::POST, PURGES, Some(&Value::Object(fields.clone())))?;
        if deleted_before(&counted) == 0 {
            return Ok(rest);
        }
        if number(api, &counted, "count")? > 0 {
            note("links that were deleted before are left, because other links match, too; run the command again");
            return Ok(rest);
        }
        fields.insert("confirm".to_owned(), json!(0));
        let begun = api.ask(&Method::POST, PURGES, Some(&Value::Object(fields.clone())))?;
        let Some(id) = begun["purge"]["id"].as_str() else { return Ok(rest) };
        rest += deleted_before(&begun);
        wait_for(api, id)?;
    }
}

/// Waits until all nodes have carried out a purge, and shows the nodes or the site that it waits for. Returns the purge.
fn wait_for(api: &NodeApi, id: &str) -> Result<Value, Exit> {
    let path = format!("{PURGES}/{}", escaped(id));
    let (begun, mut shown) = (Instant::now(), String::new());
    loop {
        match api.get(&path) {
            Ok(purge) if purge["complete"] == true => return Ok(purge),
            Ok(purge) => {
                let waits = waits_for(&purge);
                if waits != shown {
                    note(&waits);
                    shown = waits;
                }
            }
            Err(exit) if exit.what.starts_with(UNKNOWN) && begun.elapsed() < KNOWN_WITHIN => {}
            Err(exit) => {
                let remedy = format!("the nodes continue; GET {path} shows the progress");
                return Err(exit.with_remedy(remedy));
            }
        }
        sleep(LOOK_EVERY);
    }
}

/// Says what a purge waits for.
fn waits_for(purge: &Value) -> String {
    if let Some(error) = purge["error"].as_str() {
        return format!("the node tries again, because {}", plain(error));
    }
    let selection = &purge["selection"];
    if selection["ended"] == false {
        let of = |name: &str| readable::count(rounded(selection[name].as_u64().unwrap_or_default()), "link");
        return match purge["step"]["what"].as_str() {
            // The node may still search for the links of another request.
            Some(what) if selection["examined"] == 0 => format!("the node is {}", plain(what)),
            _ => format!("reading all links in Redis: at least {} read, {} found", of("examined"), of("matched")),
        };
    }
    let nodes = purge["nodes"].as_array().into_iter().flatten();
    let shown = |node: &Value| {
        let name = plain(node["node"].as_str()?);
        let silent = node["silentSince"].as_str().map(|since| format!(" (no heartbeat since {})", plain(since)));
        Some(name + &silent.unwrap_or_default())
    };
    let mut waiting: Vec<String> = nodes.filter(|node| node["complete"] != true).filter_map(shown).collect();
    if waiting.is_empty() {
        let sites = purge["sites"].as_array().into_iter().flatten().filter(|site| site["complete"] != true);
        waiting.extend(sites.filter_map(|site| Some(format!("the site {}", plain(site["site"].as_str()?)))));
    }
    match (&waiting[..], purge["step"]["what"].as_str()) {
        ([], Some(what)) => format!("the node is {}", plain(what)),
        ([], None) => "removing the rest from the files of the node".to_owned(),
        _ => format!("waiting for {}", waiting.join(", ")),
    }
}

/// Rounds a number down to its first digit, so that a search of hours prints few lines.
fn rounded(number: u64) -> u64 {
    let unit = 10_u64.pow(number.checked_ilog10().unwrap_or(0));
    number / unit * unit
}

/// Returns the number of links that were deleted before. Nodes of earlier versions do not look for them.
fn deleted_before(answer: &Value) -> u64 {
    answer["deletedBefore"].as_u64().unwrap_or_default()
}

fn number(api: &NodeApi, answer: &Value, name: &str) -> Result<u64, Exit> {
    answer[name].as_u64().ok_or_else(|| api.foreign("the answer is not about purges"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selector_has_the_given_field_alone() {
        let arguments = PurgeArgs { tag: Some("a b".to_owned()), yes: true, ..PurgeArgs::default() };
        assert_eq!(Value::Object(selector_of(&arguments)), json!({"tag": "a b"}));
        let arguments = PurgeArgs { destination: Some("https://a.example/".to_owned()), ..PurgeArgs::default() };
        assert_eq!(Value::Object(selector_of(&arguments)), json!({"destination": "https://a.example/"}));
    }

    #[test]
    fn progress_names_the_nodes_that_are_waited_for() {
        let purge =
            json!({"error": null, "nodes": [{"node": "a", "complete": true}, {"node": "b", "complete": false}]});
        assert_eq!(waits_for(&purge), "waiting for b");
        let silent = json!([
            {"node": "a", "complete": false, "silentSince": null},
            {"node": "b", "complete": false, "silentSince": "2026-01-02T03:04:05Z"},
        ]);
        let text = "waiting for a, b (no heartbeat since 2026-01-02T03:04:05Z)";
        assert_eq!(waits_for(&json!({"nodes": silent, "step": {"what": "compacting"}})), text);
        let sites = json!([{"site": "berlin", "complete": true}, {"site": "lisbon", "complete": false}]);
        assert_eq!(waits_for(&json!({"nodes": silent, "sites": sites})), text, "the own site first");
        let done = json!([{"node": "a", "complete": true}]);
        assert_eq!(waits_for(&json!({"nodes": done, "sites": sites})), "waiting for the site lisbon");
        let alone = json!({"nodes": [], "step": {"what": "compacting the store"}});
        assert_eq!(waits_for(&alone), "the node is compacting the store");
        assert_eq!(waits_for(&json!({"nodes": []})), "removing the rest from the files of the node");
        assert_eq!(waits_for(&json!({"error": "x"})), "the node tries again, because x");
    }

    #[test]
    fn search_is_shown_in_few_lines() {
        assert_eq!([0, 9, 10, 99, 12_345].map(rounded), [0, 9, 10, 90, 10_000]);
        let shown = |examined: u64| {
            let selection = json!({"ended": false, "examined": examined, "matched": 17});
            waits_for(&json!({"error": null, "nodes": [], "step": {"what": "x"}, "selection": selection}))
        };
        assert!(shown(12_345).contains("at least 10,000 links read, 10 links found"), "{}", shown(12_345));
        assert_eq!(shown(12_345), shown(19_999));
        assert_eq!(shown(0), "the node is x", "it may search for other links");
        let ended = json!({"error": null, "nodes": [{"node": "a", "complete": false}], "selection": {"ended": true}});
        assert_eq!(waits_for(&ended), "waiting for a");
    }

    #[test]
    fn links_that_a_search_may_have_left_are_named() {
        let selection = |stopped: Option<&str>, unreadable: u64| json!({"stopped": stopped, "unreadable": unreadable});
        assert_eq!(incomplete(&selection(None, 0)), None);
        let stopped = incomplete(&selection(Some("too many"), 0)).unwrap();
        assert!(stopped.contains("too many"), "{stopped}");
        let unreadable = incomplete(&selection(None, 2)).unwrap();
        assert!(unreadable.contains("2 links of a later version"), "{unreadable}");
        assert!(end_of_count(&selection(None, 0)).is_ok());
        assert!(end_of_count(&json!({"matched": 0})).is_ok(), "no link can match");
        let exit = end_of_count(&selection(None, 2)).unwrap_err();
        assert_eq!(exit.what, unreadable, "one of them may match");
    }
}
