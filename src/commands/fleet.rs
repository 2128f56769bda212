//! `carom fleet`: orders of an operator to a fleet, through the admin listener of one of its nodes.

use super::cli::{FleetCommand, NodeArgs};
use super::node_api::{Method, NodeApi};
use super::output::print;
use super::profile::NodeAccess;
use super::status::{admin_url, key_of};
use super::terminal::plain;
use carom_settings::exit::Exit;

/// Path of the order that declares a site complete.
const SITE_COMPLETE: &str = "/fleet/site/complete";

/// Runs a subcommand.
///
/// # Errors
/// [`carom_settings::exit::Reason::Usage`] for wrong settings or key files and for an order that does not fit, and
/// [`carom_settings::exit::Reason::Incomplete`] if the node does not answer or cannot carry the order out.
pub fn run(command: &FleetCommand) -> Result<(), Exit> {
    match command {
        FleetCommand::SiteComplete(node) => complete_site(node),
    }
}

fn complete_site(arguments: &NodeArgs) -> Result<(), Exit> {
    let api = NodeApi::new(NodeAccess { url: admin_url(&arguments.place)?, key: key_of(arguments)? });
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
