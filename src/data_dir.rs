//! What must hold before a data directory is used: the checks of the machine ([`preflight`]) and the code secret
//! ([`code_secret`]).

pub mod code_secret;
pub mod preflight;
