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
        Problem::own(StatusCode::SERVICE_UNAVAILABLE, "unconfirmed", "Cannot be confirmed", detail)
    }
}
