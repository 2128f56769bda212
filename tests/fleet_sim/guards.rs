//! Guards of the promises. The simulator shows that it sees the loss of each by leaving it out.

/// Something without which a promise breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Guard {
    /// Redis gives a code only if nobody has it.
    InsertIfAbsent,
    /// An entry of the outbox waits until it has come back through the stream.
    Echo,
    /// Delivers a change again that the stream has passed without showing it.
    Passed,
    /// A place in a stream that is gone is noticed.
    Gap,
    /// Another entry with the same name is noticed.
    Check,
    /// A comparison brings what only the node has.
    Upwards,
    /// A counter below the floor is raised.
    Floor,
    /// Another server leaves a margin.
    Margin,
    /// A lease counts only when a replica has it.
    Wait,
    /// Keeps an undelivered change of the node from being overwritten by one from Redis.
    Undelivered,
    /// An acknowledgement waits for the sync.
    Sync,
    /// A slug that Redis may have taken unheard is taken back.
    Withdraw,
    /// A link expires only as the node knows it that asks for that.
    Exact,
    /// The mark of a lease is on disk before its values are used.
    Mark,
    /// Redis cannot deny a code that another node may have created alone.
    Alone,
    /// Redis denies nothing that it may have lost a moment ago.
    Settled,
    /// Other nodes may have leased values that this node has not heard of.
    Bound,
    /// A node confirms delivery only while Redis has all its links.
    Empty,
    /// A node confirms only what it acknowledged before it heard of the other node.
    Heard,
    /// A node denies a slug that looks like a generated code only if it has read the streams.
    Followed,
    /// An entry that a node cannot decode holds its place.
    Place,
    /// The mark of a code is still there after a restart.
    Marked,
    /// A node reads marked codes again.
    Again,
    /// A node brings Redis the states of marked codes, once it can decode them.
    Kept,
    /// A node restores the texts of marked codes that Redis has lost.
    Restored,
    /// Nodes write what all of them read.
    Agreed,
    /// A state that a node cannot decode is not missing.
    Unread,
}
