//! The public pages: the form, notices, previews, and pictures of every page.

mod browser;
mod form;
mod screens;
