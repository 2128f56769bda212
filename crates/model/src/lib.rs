//! The domain of carom: links, access, destinations, domains, queries, visits and the rules of replication.
//!
//! Everything here is a value or a decision. The crate does no I/O, reads no clock and starts no thread. So each rule
//! is tested by itself, and the fleet simulator drives the same code as the server does. Time and randomness are passed
//! in, with two exceptions that ask the operating system for random bytes: private codes and new API keys.
//!
//! It depends on no HTTP library, and on neither the store, nor Redis, nor the cores. Of HTTP it has the values that
//! its rules need, such as the status of a response and the header fields that describe a client. Byte formats are
//! defined where they are used, except two that are shared: the stored record of a link ([`link::record`]) and the
//! state of a code in Redis ([`replication::State`]).
//!
//! Read first:
//!
//! 1. [`link::Link`], everything that is kept of a link;
//! 2. [`link::record`], its stored form;
//! 3. [`link::patch`], a change of it;
//! 4. [`access`], apps, API keys and what a key allows;
//! 5. [`destination::long_url`], the one form of a destination;
//! 6. [`domains`], which domain a host means;
//! 7. [`query`], lists and their cursors, and [`formats`], the forms of dates and of small files;
//! 8. [`clients`], the addresses of clients behind proxies, and what their requests tell of them;
//! 9. [`visits`], visits as cores record them, and [`visits::tally`], their counts;
//! 10. [`visits::allowance`], how many visits of a limited link are left;
//! 11. [`redirect`], the response that follows from a look-up;
//! 12. [`replication`], what the nodes of a fleet agree on;
//! 13. [`events`], what happened to links, for other programs;
//! 14. [`purge`], the links that leave every file of every node.

pub mod access;
pub mod clients;
pub mod destination;
pub mod domains;
pub mod events;
pub mod formats;
pub mod link;
pub mod purge;
pub mod query;
pub mod redirect;
pub mod replication;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod visits;
