//! The number by which the kernel names an operation: its kind, and the slot that it belongs to.

/// The slot that an operation belongs to, and which use of the slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag {
    /// The number of the slot that the connection is in.
    pub slot: u32,
    /// Counts the uses of the slot; 24 bits.
    pub generation: u32,
}

impl Tag {
    pub(crate) fn user_data(self, kind: Kind) -> u64 {
        (kind as u64) << 56 | u64::from(self.generation & 0x00ff_ffff) << 32 | u64::from(self.slot)
    }

    pub(crate) fn from_user_data(data: u64) -> Tag {
        Tag { slot: data as u32, generation: (data >> 32) as u32 & 0x00ff_ffff }
    }
}

/// The kind of operation that a completion belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    Accept = 1,
    Receive = 2,
    Send = 3,
    Timer = 4,
    /// The bell was rung by a thread.
    Bell = 5,
    Connect = 7,
    /// A doorbell rung by another ring.
    RungByRing = 8,
    Poll = 9,
    /// Cancels, shutdowns and doorbells that we rang: their outcome changes nothing.
    Ignored = 6,
}

impl Kind {
    pub(crate) fn from_user_data(data: u64) -> Kind {
        match data >> 56 {
            1 => Kind::Accept,
            2 => Kind::Receive,
            3 => Kind::Send,
            4 => Kind::Timer,
            5 => Kind::Bell,
            7 => Kind::Connect,
            8 => Kind::RungByRing,
            9 => Kind::Poll,
            _ => Kind::Ignored,
        }
    }
}
