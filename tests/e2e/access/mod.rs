//! Access: apps and their keys, domains, and the lists of allowed and blocked hosts.

mod allow_list;
mod apps;
mod block_list;
mod domain_keys;
mod domain_redirects;
mod domains;
mod key_file;
mod keys;
mod roles;
