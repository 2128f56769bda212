//! carom: a self-hosted URL shortener.
//!
//! `ARCHITECTURE.md` at the root of the repository explains how the parts work together.

pub mod api;
pub mod bridge;
pub mod commands;
pub mod core;
pub mod node;
pub mod pages;
pub mod services;
pub mod startup;
