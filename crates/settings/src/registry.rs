//! The registry of settings: each with its names, default and description.
//!
//! Each table of the settings file is an array in a file of this folder. [`SETTINGS`] is all of them, in the order of
//! [`Key`].

mod api;
mod bypass;
mod events;
mod fleet;
mod geo;
mod hosts;
pub(super) mod key;
mod limits;
mod links;
mod operation;
mod pages;
pub(super) mod setting;
pub(super) mod shown;
mod tls;
mod top_level;
mod visits;

pub(super) use self::events::EVENTS;
use self::key::Key;
use self::setting::Setting;

/// All tables, in the order of the settings file.
const TABLES: &[&[Setting]] = &[
    &top_level::TOP_LEVEL,
    &links::LINKS,
    &hosts::ALLOW,
    &hosts::BLOCK,
    &hosts::DOMAINS,
    &fleet::FLEET,
    &tls::TLS,
    &limits::LIMITS,
    &operation::ADMIN,
    &pages::PAGES,
    &operation::DRAIN,
    &operation::LOG,
    &operation::ACCESS_LOG,
    &api::API,
    &bypass::BYPASS,
    &visits::VISITS,
    &EVENTS,
    &geo::GEO,
];

/// All settings. Those at the top of the file come first, then those of tables, table by table.
pub static SETTINGS: [Setting; Key::COUNT] = joined();

/// Returns the rows of all tables, one after another. The compiler runs it, and fails if [`SETTINGS`] has another
/// length.
const fn joined<const LEN: usize>() -> [Setting; LEN] {
    let mut all = [TABLES[0][0]; LEN];
    let (mut table, mut filled) = (0, 0);
    while table < TABLES.len() {
        let mut row = 0;
        while row < TABLES[table].len() {
            all[filled] = TABLES[table][row];
            (row, filled) = (row + 1, filled + 1);
        }
        table += 1;
    }
    assert!(filled == LEN, "the number of settings differs from the length of the registry");
    all
}
