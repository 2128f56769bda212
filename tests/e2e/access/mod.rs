//! Access: apps and their keys, domains, and the lists of allowed and blocked hosts, which can be saved at run time.

mod allow_list;
mod apps;
mod block_list;
mod domain_keys;
mod domain_redirects;
mod domains;
mod key_file;
mod keys;
mod roles;
mod saved_rules;
