//! `carom fleet`: orders of an operator to a fleet, through the admin listener of one of its nodes.

use serde_json::Value;

use super::cli::{FleetCommand, GiveUpArgs, NodeArgs};
use super::node_api::{Method, NodeApi, escaped};
use super::output::print;
use super::profile::NodeAccess;
use super::status::{admin_url, key_of};
use super::terminal::plain;
use carom_settings::exit::Exit;

/// Path of the order that declares a site complete.
const SITE_COMPLETE: &str = "/fleet/site/complete";

/// Path of the order that gives up the other site.
const SITE_GIVE_UP: &str = "/fleet/site/give-up";

/// Runs a subcommand.
///
/// # Errors
/// [`carom_settings::exit::Reason::Usage`] for wrong settings or key files and for an order that does not fit, and
/// [`carom_settings::exit::Reason::Incomplete`] if the node does not answer or cannot carry the order out.
pub fn run(command: &FleetCommand) -> Result<(), Exit> {
    match command {
        FleetCommand::SiteComplete(node) => complete_site(node),
        FleetCommand::SiteGiveUp(arguments) => give_up_site(arguments),
    }
}

fn complete_site(arguments: &NodeArgs) -> Result<(), Exit> {
    let api = api_of(arguments)?;
    let answer = api.ask(&Method::POST, SITE_COMPLETE, None);
    let site = answer.and_then(|answer| match answer["site"].as_str() {
        Some(site) => Ok(plain(site)),
        None => Err(api.foreign("the answer does not name a site")),
    });
    let site = site.map_err(|exit| {
        exit.with_remedy(
            "check with `carom status --json` that fleet.site.mayLack is true on this site, and that --admin is the admin listener of one of its nodes; if it answers 401 or 403, pass an admin key with --key-file",
        )
    })?;
    print(&format!("the site {site} is declared complete; its nodes take it over within a second\n"));
    Ok(())
}

fn api_of(node: &NodeArgs) -> Result<NodeApi, Exit> {
    Ok(NodeApi::new(NodeAccess { url: admin_url(&node.place)?, key: key_of(node)? }))
}

fn give_up_site(arguments: &GiveUpArgs) -> Result<(), Exit> {
    let api = api_of(&arguments.node)?;
    let answer = api.ask(&Method::POST, &give_up_path(arguments), None);
    let text = answer.and_then(|answer| match given_up(&answer) {
        Some(text) => Ok(text),
        None => Err(api.foreign("the answer does not name two sites")),
    });
    let text = text.map_err(|exit| {
        exit.with_remedy(
            "run the command without --confirm to see what it would do; --admin must be the admin listener of a node of the site that stays, with fleet.site set; if it answers 401 or 403, pass an admin key with --key-file",
        )
    })?;
    print(&text);
    Ok(())
}

fn give_up_path(arguments: &GiveUpArgs) -> String {
    let Some(name) = &arguments.confirm else { return SITE_GIVE_UP.to_owned() };
    let accepted = if arguments.accept_loss { "&acceptLoss=true" } else { "" };
    format!("{SITE_GIVE_UP}?confirm={}{accepted}", escaped(name))
}

/// Returns what the node says of the other site, in words for the operator; `None` if the answer is malformed.
fn given_up(answer: &Value) -> Option<String> {
    let (site, other) = (plain(answer["site"].as_str()?), plain(answer["otherSite"].as_str()?));
    if answer["givenUp"] == true {
        return Some(format!(
            "the site {other} is given up; remove fleet.site, fleet.other_site and fleet.other_redis from the settings of the nodes of the site {site}, and restart them one by one\n"
        ));
    }
    let texts = |name: &str| -> Option<Vec<String>> {
        answer[name].as_array()?.iter().map(|text| text.as_str().map(plain)).collect()
    };
    let (alive, losses) = (texts("alive")?, texts("losses")?);
    let mut lines = vec![
        format!("dry run: nothing was changed. With --confirm {other}, the site {site} gives up the site {other}:"),
        format!("* nodes of the site {site} may use all short codes that the site {other} has not used"),
        format!("* the site {other} never works with this fleet again"),
    ];
    if !alive.is_empty() {
        lines.push(format!(
            "the command refuses that now, because these nodes are alive: {}; stop them first",
            alive.join(", ")
        ));
    }
    if losses.is_empty() {
        lines.push("no link or change is lost".to_owned());
    } else {
        lines.push("with --accept-loss only, because this may be lost:".to_owned());
        lines.extend(losses.iter().map(|loss| format!("* {loss}")));
    }
    Some(format!("{}\n", lines.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::cli::AdminPlace;
    use serde_json::json;

    #[test]
    fn orders_to_give_up_a_site_are_confirmed() {
        let arguments = |confirm: Option<&str>, accept_loss| GiveUpArgs {
            node: NodeArgs { place: AdminPlace { admin: None, config: None }, key_file: None },
            confirm: confirm.map(str::to_owned),
            accept_loss,
        };
        assert_eq!(give_up_path(&arguments(None, false)), "/fleet/site/give-up");
        assert_eq!(give_up_path(&arguments(Some("li&b"), false)), "/fleet/site/give-up?confirm=li%26b");
        assert!(give_up_path(&arguments(Some("lisbon"), true)).ends_with("?confirm=lisbon&acceptLoss=true"));
    }

    #[test]
    fn dry_run_names_nodes_and_losses() {
        let body = |alive: &[&str], losses: &[&str], is_done: bool| json!({"site": "berlin", "otherSite": "lisbon", "givenUp": is_done, "alive": alive, "losses": losses});
        let text = given_up(&body(&["n2", "n3"], &["links"], false)).unwrap();
        for part in ["dry run: nothing was changed", "--confirm lisbon", "n2, n3", "--accept-loss", "\n* links\n"] {
            assert!(text.contains(part), "{text}");
        }
        let text = given_up(&body(&[], &[], false)).unwrap();
        assert!(text.ends_with("no link or change is lost\n"), "{text}");
        assert!(!text.contains("refuses"), "{text}");
        let text = given_up(&body(&[], &[], true)).unwrap();
        assert!(text.starts_with("the site lisbon is given up"), "{text}");
        assert_eq!(given_up(&json!({"site": "berlin"})), None);
    }
}
