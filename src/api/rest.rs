//! The REST API, in the shape of Shlink's REST API v3: one file for each kind of request, and `bulk/` for those with many
//! links.
//!
//! [`parameters`] is the table of query parameters, and [`openapi`] the description that a node
//! serves. [`create`] and [`patch`] check the fields of a link; [`short_urls`] asks the store for it and answers.

pub(in crate::api) mod apps;
mod bulk;
pub(in crate::api) mod create;
mod deletes;
pub(in crate::api) mod describe;
pub(in crate::api) mod domains;
pub(in crate::api) mod events;
pub(in crate::api) mod export;
pub(in crate::api) mod list;
pub(in crate::api) mod openapi;
mod own_key;
pub(in crate::api) mod parameters;
pub(in crate::api) mod patch;
mod purges;
mod rules;
pub(in crate::api) mod short_urls;
pub(in crate::api) mod single_step;
pub(in crate::api) mod streaming;
pub(in crate::api) mod tag_changes;
pub(in crate::api) mod tags;
mod visit_filters;
pub(in crate::api) mod visit_lists;
mod visit_stats;
pub(in crate::api) mod visits;
mod visits_by_day;
