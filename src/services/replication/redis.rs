//! The requests of nodes to Redis, in the terms of the fleet.
//!
//! * `client`: the connection, its keys and scripts;
//! * `codes`: changes and states of codes;
//! * `eviction`: the eviction policies of the servers;
//! * `identity`: whether Redis has the data from before;
//! * `slots`: the distribution of slots over masters;
//! * `streams`: the streams of changes;
//! * `purges`: purged links, and what streams have of them;
//! * `space`: counters, leases and heartbeats;
//! * `allow`: visits of limited links;
//! * `sites`: what the relay between two sites keeps;
//! * `visits`: visit counts that nodes exchange;
//! * `visit_log`: single visits that nodes exchange.

mod allow;
mod client;
mod codes;
mod eviction;
mod identity;
mod purges;
mod sites;
mod slots;
mod space;
mod streams;
mod visit_log;
mod visits;

pub use carom_redis::{RedisError, RequestId, ServerAddress};

pub use self::allow::{Allowance, GrantAnswer, GrantAsker, GrantReport};
pub use self::client::{Redis, RedisSettings};
pub use self::codes::{Changed, CodeChange, KeptText, Recent, RedisReply, Scan};
pub use self::eviction::MasterPolicy;
pub use self::identity::DataIdentity;
pub use self::purges::{PurgeNote, VisitStreamEnd};
pub use self::sites::{OtherSpace, SiteNotes, SitePositions};
pub use self::slots::SlotLayout;
pub use self::space::{FieldUpdate, Heartbeat, HeartbeatReply, LeaseRequest, StateExpiry, repeat_until_stored};
pub use self::streams::READ_TOGETHER_MAX;
pub use self::visit_log::{DeletedVisits, VisitLogNotes};
pub use self::visits::{OriginEntries, VisitNotes};
