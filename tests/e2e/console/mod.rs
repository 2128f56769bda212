//! The admin console: its API, and its pages in a browser.

mod analytics;
mod browser;
mod expiry;
mod hosts;
mod imports;
mod links;
mod list;
mod looks;
mod pages;
mod palette;
mod phone;
mod rules;
mod server;
mod sessions;
mod tags;
mod usage;
mod visits;
