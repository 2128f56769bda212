//! Parsers of setting values, one for each kind.
//!
//! This file has the kinds that many settings share: texts, paths, booleans, numbers and lists. The others are in files
//! of this folder.

pub(crate) mod addresses;
pub mod apollo;
pub mod colour;
pub(crate) mod cpus;
pub(crate) mod domains;
pub(crate) mod hosts;
pub(crate) mod logs;
pub(crate) mod quantities;
pub(crate) mod redis_url;
pub(crate) mod secret;
pub(crate) mod urls;

use std::path::PathBuf;
use std::time::Duration;

use carom_shards::{CodeLength, CodeSecret};

use crate::problem::{InvalidValue, ValueSource, quoted};
use carom_limits::REDIS_TIME_MAX;
use carom_model::replication::round_trips::RedisTimeout;

/// A value as a source wrote it, not yet parsed.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Written {
    /// Text from the environment or a flag, which may also mean a number or a boolean.
    Word(String),
    /// A string in the file.
    Text(String),
    /// An integer in the file, in decimal.
    Integer(String),
    /// A boolean in the file.
    Bool(bool),
    /// A list in the file, or a repeated flag: each element has its own source.
    List(Vec<SourcedValue>),
    /// A TOML type that no setting accepts, by its name.
    Other(&'static str),
}

/// A value and its source.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct SourcedValue {
    pub(super) written: Written,
    pub(super) source: ValueSource,
}

impl Written {
    fn type_name(&self) -> &'static str {
        match self {
            Written::Word(_) | Written::Text(_) => "text",
            Written::Integer(_) => "a number",
            Written::Bool(_) => "a boolean",
            Written::List(_) => "a list",
            Written::Other(name) => name,
        }
    }
}

/// Reads a text that is not empty.
pub(super) fn text(written: &Written) -> Result<&str, InvalidValue> {
    const RIGHT: &str = "write text in quotes";
    match written {
        Written::Word(text) | Written::Text(text) if text.is_empty() => Err(InvalidValue::new("is empty", RIGHT)),
        Written::Word(text) | Written::Text(text) => Ok(text),
        other => Err(InvalidValue::new(format!("is {}", other.type_name()), RIGHT)),
    }
}

/// Reads the path of a file or directory.
pub(super) fn path(written: &Written) -> Result<PathBuf, InvalidValue> {
    let name = text(written)?;
    if name.contains('\0') {
        return Err(InvalidValue::new("contains a zero byte", "write a path without zero bytes"));
    }
    Ok(PathBuf::from(name))
}

/// Reads a boolean.
pub(super) fn boolean(written: &Written) -> Result<bool, InvalidValue> {
    match written {
        Written::Bool(truth) => Ok(*truth),
        Written::Word(word) => match word.trim().to_ascii_lowercase().as_str() {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err(InvalidValue::new(format!("{} is neither true nor false", quoted(word)), "write true or false")),
        },
        other => Err(InvalidValue::new(format!("is {}", other.type_name()), "write true or false")),
    }
}

/// Reads an integer from `least` to `most`.
pub(super) fn integer(written: &Written, least: u64, most: u64) -> Result<u64, InvalidValue> {
    let right = || format!("write a whole number from {least} to {most}");
    let digits = match written {
        Written::Integer(digits) => digits,
        Written::Word(word) => word.trim(),
        Written::Text(text) => {
            return Err(InvalidValue::new(
                format!("{} is text; expected a number", quoted(text)),
                right() + " without quotes",
            ));
        }
        other => return Err(InvalidValue::new(format!("is {}", other.type_name()), right())),
    };
    match digits.parse::<u64>() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        Ok(number) if number < least => Err(InvalidValue::new(format!("{number} is too small"), right())),
        Ok(number) => Err(InvalidValue::new(format!("{number} is too large"), right())),
        Err(_) if digits.parse::<i128>().is_ok() => {
            Err(InvalidValue::new(format!("{} is out of range", quoted(digits)), right()))
        }
        Err(_) => Err(InvalidValue::new(format!("{} is not a whole number", quoted(digits)), right())),
    }
}

/// Reads a timeout of Redis in milliseconds, or `auto` for one that follows from round trips and is at least `least`.
pub(super) fn redis_timeout(written: &Written, from: u64, least: Duration) -> Result<RedisTimeout, InvalidValue> {
    if matches!(written, Written::Word(word) | Written::Text(word) if word.trim() == "auto") {
        return Ok(RedisTimeout::Derived(least));
    }
    let millis = integer(written, from, REDIS_TIME_MAX.as_millis() as u64)?;
    Ok(RedisTimeout::Fixed(Duration::from_millis(millis)))
}

/// Reads the length of new codes. Shorter codes exist, but could be guessed.
pub(super) fn code_length(written: &Written) -> Result<CodeLength, InvalidValue> {
    let characters = integer(written, 6, CodeLength::MAX.get() as u64)?;
    CodeLength::new(characters as usize).ok_or_else(|| {
        InvalidValue::new(format!("{characters} is not a valid code length"), "write a number from 6 to 10")
    })
}

/// Reads the residency: true if only links in use are kept in memory.
pub(super) fn is_hot(written: &Written) -> Result<bool, InvalidValue> {
    match text(written)?.trim() {
        "all" => Ok(false),
        "hot" => Ok(true),
        other => {
            Err(InvalidValue::new(format!("{} is neither all nor hot", quoted(other)), "write \"all\" or \"hot\""))
        }
    }
}

/// Reads a code secret. Messages never quote it.
pub(super) fn space_key(written: &Written) -> Result<CodeSecret, InvalidValue> {
    let wrong =
        |reason: String| InvalidValue::new(reason, "write 64 hexadecimal digits, as printed by `carom key new`");
    let digits = text(written).map_err(|_| wrong("is not text".into()))?;
    CodeSecret::from_hex(digits).map_err(|error| wrong(error.to_string()))
}

/// Reads the name of one of several values.
pub(super) fn one_of<T: Copy>(
    written: &Written,
    right: &'static str,
    all: &[T],
    name_of: impl Fn(T) -> &'static str,
) -> Result<T, InvalidValue> {
    let name = text(written)?.trim();
    let known = all.iter().copied().find(|known| name_of(*known).eq_ignore_ascii_case(name));
    known.ok_or_else(|| InvalidValue::new(format!("{} is not a valid value", quoted(name)), format!("write {right}")))
}

/// Splits a list into its texts: the elements of an array or of a repeated flag, and the parts between commas in a
/// text.
pub(super) fn items(found: &SourcedValue) -> Vec<Result<(String, ValueSource), (InvalidValue, ValueSource)>> {
    match &found.written {
        Written::List(list) => list.iter().flat_map(items).collect(),
        written => match text(written) {
            Ok(text) => text.split(',').map(|item| Ok((item.trim().to_owned(), found.source.clone()))).collect(),
            Err(wrong) => vec![Err((wrong, found.source.clone()))],
        },
    }
}

/// Reads the path of a file in a list.
pub(super) fn file(text: &str) -> Result<PathBuf, InvalidValue> {
    if text.trim().is_empty() {
        return Err(InvalidValue::new("is empty", "write the path of a file"));
    }
    Ok(PathBuf::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str) -> Written {
        Written::Word(text.to_owned())
    }

    #[test]
    fn numbers_are_bounded_and_typed() {
        assert_eq!(integer(&word("7"), 6, 10), Ok(7));
        assert_eq!(integer(&Written::Integer("10".into()), 6, 10), Ok(10));
        for wrong in ["5", "11", "-1", "7.5", "", "99999999999999999999999", "seven"] {
            assert!(integer(&word(wrong), 6, 10).is_err(), "{wrong}");
        }
        assert!(integer(&Written::Text("7".into()), 6, 10).unwrap_err().right.ends_with("without quotes"));
        assert!(integer(&Written::Bool(true), 0, 1).is_err());
    }

    #[test]
    fn truths_are_few() {
        assert_eq!(boolean(&word("TRUE")), Ok(true));
        assert_eq!(boolean(&word("0")), Ok(false));
        assert!(boolean(&word("yes")).is_err());
        assert!(boolean(&Written::Text("true".into())).is_err());
    }

    #[test]
    fn a_secret_is_in_no_message() {
        let key = "0123456789abcdef".repeat(4);
        let read = space_key(&word(&format!("{key}\n"))).unwrap();
        assert_eq!(read.to_hex(), key);
        assert!(!format!("{read:?}").contains(&key));
        for wrong in [&key[1..], "geheim", ""] {
            let message = format!("{:?}", space_key(&word(wrong)).unwrap_err());
            assert!(wrong.is_empty() || !message.contains(wrong), "{message}");
        }
    }
}
