//! The snapshots of the admin listener: a new node of the fleet reads all links from one, piece by piece.

use std::sync::atomic::Ordering;

use hyper::{Method, StatusCode};

use crate::api::context::Context;
use crate::api::problem::Problem;
use crate::api::response::{ApiResponse, answer, empty, json};
use crate::bridge::{SnapshotProvider, SnapshotRefusal};

/// Returns the methods that a path below `/snapshots` allows; `None` if no such path exists.
pub(super) fn methods_at(segments: &[&str]) -> Option<&'static str> {
    match segments {
        [] => Some("POST"),
        [_] => Some("GET, DELETE"),
        [_, "pieces", _] => Some("GET"),
        _ => None,
    }
}

/// Answers a request for a path below `/snapshots` that [`methods_at`] knows, with a method that it allows.
pub(super) async fn serve(context: &Context, segments: &[&str], method: &Method) -> ApiResponse {
    let served = match *segments {
        [id, "pieces", number] => match (identity(id), number.parse()) {
            (Some(id), Ok(number)) => piece(context, id, number).await,
            _ => Err(Problem::no_snapshot()),
        },
        [id] => match identity(id) {
            Some(id) if *method == Method::DELETE => end(context, id).await,
            Some(id) => describe(context, id).await,
            None => Err(Problem::no_snapshot()),
        },
        _ => begin(context).await,
    };
    served.unwrap_or_else(Problem::into_answer)
}

async fn begin(context: &Context) -> Result<ApiResponse, Problem> {
    // A copy has the gap of this node, and would need a copy itself.
    if context.services.context().node.fleet.needs_copy.load(Ordering::Acquire) {
        return Err(Problem::needs_copy());
    }
    let begun = ask(context, |snapshots| snapshots.begin()).await?;
    Ok(json(StatusCode::CREATED, &begun.map_err(refused)?.to_json()))
}

async fn describe(context: &Context, id: u64) -> Result<ApiResponse, Problem> {
    let about = ask(context, move |snapshots| snapshots.describe(id)).await?;
    Ok(json(StatusCode::OK, &about.map_err(refused)?.to_json()))
}

async fn piece(context: &Context, id: u64, number: u32) -> Result<ApiResponse, Problem> {
    let piece = ask(context, move |snapshots| snapshots.piece(id, number)).await?;
    Ok(answer(StatusCode::OK, "application/octet-stream", piece.map_err(refused)?))
}

async fn end(context: &Context, id: u64) -> Result<ApiResponse, Problem> {
    let has_ended = ask(context, move |snapshots| snapshots.end(id)).await?;
    if has_ended { Ok(empty(StatusCode::NO_CONTENT)) } else { Err(Problem::no_snapshot()) }
}

/// Asks the thread that reads snapshots.
async fn ask<T: Send + 'static>(
    context: &Context,
    ask: impl FnOnce(&dyn SnapshotProvider) -> T + Send + 'static,
) -> Result<T, Problem> {
    let Some(queue) = &context.services.context().jobs.snapshots else {
        let stores_all_links = context.services.stores_all_links();
        return Err(if stores_all_links { Problem::no_fleet() } else { Problem::no_copy() });
    };
    context.services.ask_snapshots(queue, ask).await.map_err(|why| Problem::unavailable(format!("{why}.")))
}

fn refused(refusal: SnapshotRefusal) -> Problem {
    match refusal {
        SnapshotRefusal::TooMany => Problem::too_many_snapshots(),
        SnapshotRefusal::Gone | SnapshotRefusal::NoPiece => Problem::no_snapshot(),
        SnapshotRefusal::Failed(why) => Problem::unavailable(format!("The store cannot be read: {why}.")),
    }
}

/// Reads the identity of a snapshot from a path.
fn identity(text: &str) -> Option<u64> {
    let is_plain = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(text, 16).ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_snapshots_are_known() {
        assert_eq!(methods_at(&[]), Some("POST"));
        assert_eq!(methods_at(&["00000000000000ff"]), Some("GET, DELETE"));
        assert_eq!(methods_at(&["00000000000000ff", "pieces", "0"]), Some("GET"));
        assert_eq!(methods_at(&["00000000000000ff", "pieces"]), None);
        assert_eq!(identity("00000000000000ff"), Some(255));
        for wrong in ["ff", "", "00000000000000fg", "+0000000000000ff", "000000000000000ff"] {
            assert_eq!(identity(wrong), None, "{wrong}");
        }
    }
}
