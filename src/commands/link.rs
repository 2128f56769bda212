//! `carom link`: the links of a node, through its REST API.

mod destination;
mod name;
mod stats;
mod text;
mod undo;

use serde_json::{Map, Value, json};

use self::destination::with_scheme;
use self::name::{LINKS, LinkName};
use super::cli::{
    ApiPlace, LinkCommand, LinkCreateArgs, LinkDeleteArgs, LinkEditArgs, LinkFields, LinkListArgs, LinkPlace,
    LinkPlaces, LinkRestoreArgs, LinkShowArgs,
};
use super::node_api::{Method, NodeApi, OTHER_NODE, escaped};
use super::output::print;
use super::profile::{access, can_ask};
use super::terminal::{confirms, has_colours, json_text, note, plain, say, width};
use crate::pages::qr;
use carom_settings::exit::{Exit, Reason};
use carom_telemetry::clock::unix_ms;
use carom_telemetry::readable;

/// Seconds for which a delete can be undone: enough to notice a mistake. A node keeps a deletion for at most an hour.
const UNDO_SECONDS: u64 = 600;

/// Runs a command on links.
///
/// # Errors
/// [`Reason::Usage`] for what is wrong with the arguments, the login or the key, and [`Reason::Incomplete`] if the node
/// does not answer, does not have the link, or cannot do it now.
pub fn run(command: &LinkCommand) -> Result<(), Exit> {
    match command {
        LinkCommand::Create(arguments) => create(arguments),
        LinkCommand::List(arguments) => list(arguments),
        LinkCommand::Show(arguments) => show(arguments),
        LinkCommand::Edit(arguments) => edit(arguments),
        LinkCommand::Delete(arguments) => delete(arguments),
        LinkCommand::Restore(arguments) => restore(arguments),
        LinkCommand::Stats(arguments) => {
            let api = api_of(&arguments.place)?;
            let name = named(&api, &arguments.link)?;
            stats::stats(&api, &name, arguments)
        }
    }
}

fn api_of(place: &ApiPlace) -> Result<NodeApi, Exit> {
    access(place).map(NodeApi::new)
}

fn named(api: &NodeApi, place: &LinkPlace) -> Result<LinkName, Exit> {
    LinkName::find(api, &place.link, place.domain.as_deref())
}

fn create(arguments: &LinkCreateArgs) -> Result<(), Exit> {
    let LinkCreateArgs { long_url, slug, domain, fields, private, find_if_exists, qr, json, place } = arguments;
    let api = api_of(place)?;
    let mut body = fields_of(fields);
    body.insert("longUrl".to_owned(), json!(with_scheme(long_url)));
    for (name, value) in [("customSlug", slug), ("domain", domain)] {
        body.extend(value.as_ref().map(|value| (name.to_owned(), json!(value))));
    }
    for (name, is_set) in [("private", *private), ("findIfExists", *find_if_exists)] {
        body.extend(is_set.then(|| (name.to_owned(), json!(true))));
    }
    let link = api.ask(&Method::POST, LINKS, Some(&Value::Object(body)))?;
    let Some(short_url) = link["shortUrl"].as_str().map(plain) else {
        return Err(api.foreign("the answer is not a link"));
    };
    if *json {
        print(&json_text(&link));
    } else if width().is_none() {
        // A script reads the short URL and nothing else.
        print(&format!("{short_url}\n"));
    } else {
        print(&text::line(&link));
    }
    if *qr {
        draw(&short_url)?;
    }
    Ok(())
}

/// Returns the fields of a create or change that the arguments set.
fn fields_of(fields: &LinkFields) -> Map<String, Value> {
    let LinkFields {
        title,
        tags,
        valid_since,
        valid_until,
        max_visits,
        status,
        cache_seconds,
        forward_query,
        crawlable,
    } = fields;
    let all = [
        ("title", json!(title)),
        ("tags", if tags.is_empty() { Value::Null } else { json!(tags) }),
        ("validSince", json!(valid_since)),
        ("validUntil", json!(valid_until)),
        ("maxVisits", json!(max_visits)),
        ("redirectStatus", json!(status)),
        ("cacheSeconds", json!(cache_seconds)),
        ("forwardQuery", json!(forward_query)),
        ("crawlable", json!(crawlable)),
    ];
    all.into_iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| (name.to_owned(), value)).collect()
}

fn list(arguments: &LinkListArgs) -> Result<(), Exit> {
    let api = api_of(&arguments.place)?;
    let page = api.get(&format!("{LINKS}?{}", list_query(arguments)))?;
    if arguments.json {
        print(&json_text(&page));
        return Ok(());
    }
    let page = &page["shortUrls"];
    let Some(links) = page["data"].as_array() else { return Err(api.foreign("the answer is not a list of links")) };
    print(&text::table(links, width(), unix_ms()));
    note(&list_end(page, links.len() as u64));
    Ok(())
}

fn list_query(arguments: &LinkListArgs) -> String {
    let LinkListArgs { search, tags, all_tags, domain, state, order, limit, page, cursor, .. } = arguments;
    let mut query = format!("itemsPerPage={limit}&orderBy={}", order.parameter());
    let mut add = |name: &str, value: &str| query.push_str(&format!("&{name}={}", escaped(value)));
    match cursor {
        Some(cursor) => add("cursor", cursor),
        None => add("page", &page.to_string()),
    }
    if let Some(search) = search {
        add("searchTerm", search);
    }
    for tag in tags {
        add("tags[]", tag);
    }
    if *all_tags {
        add("tagsMode", "all");
    }
    if let Some(domain) = domain {
        add("domain", domain);
    }
    if let Some(state) = state {
        add("state", state.parameter());
    }
    query
}

/// Says how many links there are, and how to see more.
fn list_end(page: &Value, shown: u64) -> String {
    let pagination = &page["pagination"];
    let number = |name: &str| pagination[name].as_u64().unwrap_or(0);
    let total = readable::count(number("totalItems"), "link");
    let cursor = pagination["cursor"].as_str().map(plain);
    if pagination["complete"] == false {
        let found = format!("{shown} shown; the search stopped early, with {total} so far");
        return match cursor {
            Some(cursor) => format!("{found}; --cursor {cursor} continues it"),
            None => found,
        };
    }
    let (current, pages) = (number("currentPage"), number("pagesCount"));
    match cursor {
        Some(_) if pages > current => format!("{total}, page {current} of {pages}; --page {} shows more", current + 1),
        _ if pages > 1 => format!("{total}, page {current} of {pages}"),
        _ => total,
    }
}

fn show(arguments: &LinkShowArgs) -> Result<(), Exit> {
    let LinkShowArgs { link, qr, json, place } = arguments;
    let api = api_of(place)?;
    let link = api.get(&named(&api, link)?.path())?;
    if *json {
        print(&json_text(&link));
    } else {
        print(&text::card(&link, unix_ms()));
    }
    if *qr {
        draw(&plain(link["shortUrl"].as_str().unwrap_or_default()))?;
    }
    Ok(())
}

fn edit(arguments: &LinkEditArgs) -> Result<(), Exit> {
    let body = changes_of(arguments)?;
    let api = api_of(&arguments.place)?;
    let link = api.ask(&Method::PATCH, &named(&api, &arguments.link)?.path(), Some(&body))?;
    print(&if arguments.json { json_text(&link) } else { text::card(&link, unix_ms()) });
    Ok(())
}

/// Returns the fields of a change.
fn changes_of(arguments: &LinkEditArgs) -> Result<Value, Exit> {
    let LinkEditArgs { destination, fields, archived, cleared, .. } = arguments;
    let mut body = fields_of(fields);
    body.extend(destination.as_ref().map(|destination| ("longUrl".to_owned(), json!(with_scheme(destination)))));
    body.extend(archived.map(|archived| ("archived".to_owned(), json!(archived))));
    for field in cleared.iter().map(|cleared| cleared.field()) {
        let nothing = if field == "tags" { json!([]) } else { Value::Null };
        if body.insert(field.to_owned(), nothing).is_some_and(|value| !value.is_null() && value != json!([])) {
            return Err(Exit::new(Reason::Usage, format!("{field} is set and cleared at once"))
                .with_remedy("leave out one of the two options"));
        }
    }
    if body.is_empty() {
        return Err(Exit::new(Reason::Usage, "nothing to change")
            .with_remedy("pass what to change, such as --destination URL or --clear expires; -h lists the options"));
    }
    Ok(Value::Object(body))
}

fn delete(arguments: &LinkDeleteArgs) -> Result<(), Exit> {
    let LinkDeleteArgs { links, yes, place } = arguments;
    let api = api_of(place)?;
    let names = all_named(&api, links)?;
    if *yes {
        return each(&names, "deleted", |name| api.ask(&Method::DELETE, &name.path(), None));
    }
    if !can_ask() {
        let what = "a delete needs a confirmation, and standard input is not a terminal";
        let remedy = "pass --yes to delete at once, without an undo; `edit --archived true` only takes a link offline";
        return Err(Exit::new(Reason::Usage, what).with_remedy(remedy));
    }
    // All of them are read first, so that nothing is deleted if one has a typing error.
    let mut archived = Vec::new();
    for name in &names {
        let link = api.get(&name.path())?;
        say(text::line(&link).trim_end());
        // An earlier delete may have archived a link that waits for its deletion, so the undo brings it back.
        if link["archived"] == true && link["deletesAt"].is_null() {
            archived.push(name);
        }
    }
    let count = readable::count(names.len() as u64, "link");
    let minutes = UNDO_SECONDS / 60;
    if !confirms(&format!("Delete {count}? You can undo this for {minutes} minutes.")) {
        say("nothing was deleted");
        return Ok(());
    }
    let after = format!("after={UNDO_SECONDS}");
    let mut gone = Vec::new();
    let deleted = each(&names, "deleted", |name| {
        let answer = api.ask(&Method::DELETE, &name.path_below("", &after), None).map_err(or_at_once)?;
        gone.push(name);
        Ok(answer)
    });
    let (archived, online): (Vec<&LinkName>, Vec<&LinkName>) =
        gone.into_iter().partition(|name| archived.contains(name));
    let commands = undo::commands(&online, &archived, place);
    if !commands.is_empty() {
        note(&format!("undo within {minutes} minutes: {}", commands.join("; ")));
    }
    deleted
}

/// Adds a remedy for a node that cannot delete later: it does not store all links, or is of an earlier version.
fn or_at_once(exit: Exit) -> Exit {
    let at_once = "pass --yes to delete at once, without an undo";
    if exit.remedy() == OTHER_NODE {
        return exit.with_remedy(format!("{OTHER_NODE}; or {at_once}"));
    }
    // An earlier version refuses the parameter by its name.
    if exit.what.starts_with("after ") { exit.with_remedy(at_once) } else { exit }
}

fn restore(arguments: &LinkRestoreArgs) -> Result<(), Exit> {
    let LinkRestoreArgs { links, place } = arguments;
    let api = api_of(place)?;
    let names = all_named(&api, links)?;
    // It also cancels a scheduled deletion.
    let body = json!({"archived": false});
    each(&names, "restored", |name| api.ask(&Method::PATCH, &name.path(), Some(&body)))
}

fn all_named(api: &NodeApi, places: &LinkPlaces) -> Result<Vec<LinkName>, Exit> {
    places.links.iter().map(|link| LinkName::find(api, link, places.domain.as_deref())).collect()
}

/// Sends a request for each link, and prints what was `done`. An error of one link does not stop the others.
fn each<'a>(
    names: &'a [LinkName],
    done: &str,
    mut request: impl FnMut(&'a LinkName) -> Result<Value, Exit>,
) -> Result<(), Exit> {
    let mut failed = 0;
    for name in names {
        match request(name) {
            Ok(_) => print(&format!("{done} {}\n", name.code())),
            Err(exit) if names.len() == 1 => return Err(exit),
            Err(exit) => {
                failed += 1;
                say(&format!("{}: {}", name.code(), exit.what));
            }
        }
    }
    if failed == 0 {
        return Ok(());
    }
    let what = format!("{} could not be {done}", readable::count(failed, "link"));
    let others = if failed == names.len() as u64 { String::new() } else { format!("; the others are {done}") };
    let remedy = format!("the messages above give the reasons{others}");
    Err(Exit::new(Reason::Incomplete, what).with_remedy(remedy))
}

/// Draws a short URL as a QR code.
fn draw(short_url: &str) -> Result<(), Exit> {
    let drawn = qr::terminal(short_url, has_colours());
    let drawn = drawn.ok_or_else(|| Exit::new(Reason::Incomplete, "the short URL is too long for a QR code"))?;
    print(&drawn);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::cli::ClearedField;

    fn edit_of(fields: LinkFields, cleared: Vec<ClearedField>) -> LinkEditArgs {
        let link = LinkPlace { link: "abc".to_owned(), domain: None };
        LinkEditArgs {
            link,
            destination: None,
            fields,
            archived: None,
            cleared,
            json: false,
            place: ApiPlace::default(),
        }
    }

    #[test]
    fn changes_set_and_clear_fields() {
        let titled = || LinkFields { title: Some("t".to_owned()), ..LinkFields::default() };
        let both = edit_of(titled(), vec![ClearedField::ValidUntil, ClearedField::Tags, ClearedField::Tags]);
        assert_eq!(changes_of(&both), Ok(json!({"title": "t", "validUntil": null, "tags": []})));
        let mut moved = edit_of(LinkFields::default(), vec![]);
        moved.destination = Some("example.com/new".to_owned());
        assert_eq!(changes_of(&moved), Ok(json!({"longUrl": "https://example.com/new"})));
        let twice = changes_of(&edit_of(titled(), vec![ClearedField::Title])).unwrap_err();
        assert!(twice.what.contains("title is set and cleared"), "{twice}");
        assert!(changes_of(&edit_of(LinkFields::default(), vec![])).unwrap_err().what.contains("nothing to change"));
    }

    #[test]
    fn nodes_without_an_undo_delete_at_once() {
        let remedy_after = |what: &str, remedy: &str| {
            let exit = Exit::new(Reason::Incomplete, what).with_remedy(remedy);
            or_at_once(exit).remedy().to_owned()
        };
        assert!(remedy_after("refused", OTHER_NODE).contains("--yes"));
        assert!(remedy_after("after is not a parameter of this request", "change it").contains("--yes"));
        assert_eq!(remedy_after("refused", "wait"), "wait");
    }

    #[test]
    fn ends_of_lists_say_how_to_go_on() {
        let page = |complete: bool, cursor: Value, current: u64| {
            let pagination = json!({"totalItems": 1_234, "currentPage": current, "pagesCount": 3, "complete": complete,
                "cursor": cursor});
            list_end(&json!({ "pagination": pagination }), 20)
        };
        assert_eq!(page(true, json!("c"), 1), "1,234 links, page 1 of 3; --page 2 shows more");
        assert_eq!(page(true, Value::Null, 3), "1,234 links, page 3 of 3");
        let early = page(false, json!("c\u{1b}"), 1);
        assert_eq!(early, "20 shown; the search stopped early, with 1,234 links so far; --cursor c continues it");
    }
}
