//! Errors of requests about a fleet: its snapshots for new nodes, and its sites.

use hyper::StatusCode;

use super::Problem;
use carom_limits::SNAPSHOTS_MAX;

impl Problem {
    /// 409: only a node of a fleet serves snapshots.
    pub(in crate::api) fn no_fleet() -> Problem {
        let detail = "This node is not in a fleet (its setting redis is not set), so no node can join from it.";
        Problem::own(StatusCode::CONFLICT, "not-in-fleet", "Not in a fleet", detail)
    }

    /// 409: the node does not store all links.
    pub(in crate::api) fn no_copy() -> Problem {
        let detail =
            "This node does not store all links (its setting links.home is \"shared\"), so no node can join from it.";
        Problem::own(StatusCode::CONFLICT, "no-copy", "Not available on this node", detail)
    }

    /// 409: the node has missed changes that Redis no longer has.
    pub(in crate::api) fn needs_copy() -> Problem {
        let detail = "This node has missed changes of the fleet (alarm fleet_behind), and a node that joins from it would lack them, too. Join from a node that is current.";
        Problem::own(StatusCode::CONFLICT, "fleet-behind", "Node is behind", detail)
    }

    /// 404: no such snapshot, or no such piece of it.
    pub(in crate::api) fn no_snapshot() -> Problem {
        let detail = "This node does not have the snapshot or the piece. It may have restarted, or closed the snapshot because nobody read it.";
        Problem::own(StatusCode::NOT_FOUND, "snapshot-gone", "Snapshot is gone", detail)
    }

    /// 503: as many snapshots are open as a node serves at once.
    pub(in crate::api) fn too_many_snapshots() -> Problem {
        let detail = format!(
            "{SNAPSHOTS_MAX} nodes are joining from this node already. Try again later, or join from another node."
        );
        Problem::unavailable(detail)
    }

    /// 409: the fleet has one site.
    pub(in crate::api) fn one_site() -> Problem {
        let detail =
            "This node has no other site (its setting fleet.site is not set), so no links of one can be missing.";
        Problem::own(StatusCode::CONFLICT, "one-site", "Not one of two sites", detail)
    }

    /// 409: the site is not marked as one that may lack links.
    pub(in crate::api) fn site_not_marked(site: &str) -> Problem {
        let detail =
            format!("The site {site} is not marked as one that may lack links of the other site; nothing was changed.");
        Problem::own(StatusCode::CONFLICT, "site-not-marked", "Site is not marked", detail).and("site", site)
    }

    /// 503: the mark of the site may have been removed. A client that repeated the request automatically could get 409
    /// although it has removed the mark.
    pub(in crate::api) fn site_unconfirmed(why: &str) -> Problem {
        let detail = format!(
            "The mark of the site may or may not have been removed: {why}. Read fleet.site.mayLack in the status before you try again."
        );
        Problem::in_doubt(detail)
    }

    /// 409: the fleet has no other site that could be given up.
    pub(in crate::api) fn no_site_to_give_up() -> Problem {
        let detail = "This node has no other site (its setting fleet.site is not set), so no site can be given up.";
        Problem::own(StatusCode::CONFLICT, "one-site", "Not one of two sites", detail)
    }

    /// 409: the request to give up the other site names another one.
    pub(in crate::api) fn other_site_name(other: &str) -> Problem {
        let detail = format!(
            "The other site of this node is {other}, but the request confirms another name; nothing was changed."
        );
        Problem::own(StatusCode::CONFLICT, "other-site-name", "Not the other site", detail).and("otherSite", other)
    }

    /// 409: nodes of the site that is to be given up are alive.
    pub(in crate::api) fn site_alive(other: &str, alive: &[String]) -> Problem {
        let nodes = alive.join(", ");
        let detail = format!(
            "Nodes of the site {other} are alive, or were killed less than 30 seconds ago: {nodes}. Stop them first; nothing was changed."
        );
        Problem::own(StatusCode::CONFLICT, "site-alive", "Site is alive", detail).and("alive", alive)
    }

    /// 409: this site may lack changes of the one that is to be given up.
    pub(in crate::api) fn site_loss(losses: &[String]) -> Problem {
        let lost = losses.join("; ");
        let detail = format!("This may lose {lost}. The request does not accept a loss, so nothing was changed.");
        Problem::own(StatusCode::CONFLICT, "site-loss", "Changes may be lost", detail).and("losses", losses)
    }

    /// 503: the other site may have been given up. A repeated request does no harm.
    pub(in crate::api) fn give_up_unconfirmed(why: &str) -> Problem {
        let detail = format!("The other site may or may not have been given up: {why}. Repeat the request.");
        Problem::in_doubt(detail)
    }
}
