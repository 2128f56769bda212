//! Requests for many links, with one JSON object per line in both directions, which run while their lines arrive.
//!
//! `creates`, `changes` and `import` have the paths that take one link per line, `matching` the one for all links that match a
//! filter. `body` reads the `lines` of a request in batches, and `report` writes its results. `work` drives a request that
//! carries out one batch after the other; creates read ahead instead. `edit` is a change and how a batch of links gets it,
//! `import_line` the form of a line of an import. `dry_run` checks creates, with the `tried_slugs` of earlier lines.

pub(super) mod body;
mod changes;
mod creates;
mod dry_run;
pub(super) mod edit;
mod import;
mod import_line;
mod lines;
pub(super) mod matching;
mod report;
mod tried_slugs;
mod work;
