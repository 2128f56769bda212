//! The mapping from errors of the fjall library to [`StoreError`].

use std::io;

use super::StoreError;

impl From<fjall::Error> for StoreError {
    fn from(error: fjall::Error) -> StoreError {
        use fjall::{Error, LsmError};
        let text = error.to_string();
        match error {
            Error::Io(error) | Error::Storage(LsmError::Io(error)) => from_io(&error, text),
            Error::Poisoned => StoreError::Halted,
            Error::Locked => StoreError::InUse,
            Error::InvalidVersion(_) | Error::Storage(LsmError::InvalidVersion(_)) => StoreError::OtherFormat(text),
            Error::Storage(_)
            | Error::JournalRecovery(_)
            | Error::Decompress(_)
            | Error::InvalidTrailer
            | Error::InvalidTag(_)
            | Error::Unrecoverable => StoreError::Damaged(text),
            _ => StoreError::Failed(text),
        }
    }
}

fn from_io(error: &io::Error, text: String) -> StoreError {
    match error.kind() {
        // A file shorter than its index says, an impossible offset, or the name of a missing file.
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::InvalidData
        | io::ErrorKind::InvalidInput
        | io::ErrorKind::NotFound => StoreError::Damaged(text),
        _ => StoreError::Failed(text),
    }
}
