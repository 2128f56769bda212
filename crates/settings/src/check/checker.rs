//! The parsing of settings one by one: each value from its strongest source, and the mistakes of all sources.

use crate::exit::Reason;
use crate::keys::Key;
use crate::problem::{InvalidValue, SettingsProblem, ValueSource, Warning};
use crate::sources::raw::Raw;
use crate::value::{self, SourcedValue, Written};

/// Parses the raw settings and collects their mistakes.
pub(crate) struct Checker<'a> {
    pub(super) raw: &'a Raw,
    pub(crate) problems: Vec<SettingsProblem>,
    pub(crate) warnings: Vec<Warning>,
    pub(super) sources: [ValueSource; Key::COUNT],
}

impl<'a> Checker<'a> {
    pub(crate) fn new(raw: &'a Raw, problems: Vec<SettingsProblem>, warnings: Vec<Warning>) -> Checker<'a> {
        Checker { raw, problems, warnings, sources: [const { ValueSource::Default }; Key::COUNT] }
    }

    /// Returns the source of the value that was read last.
    pub(super) fn source_of(&self, key: Key) -> ValueSource {
        self.sources[key as usize].clone()
    }

    /// True if any source sets the value.
    pub(super) fn is_set(&self, key: Key) -> bool {
        !self.raw.of(key).is_empty()
    }

    /// Returns the value of the strongest source, or the default. Values of weaker sources are parsed, too, so that
    /// their mistakes are reported although they have no effect today.
    pub(super) fn one<T>(&mut self, key: Key, read: impl Fn(&Written) -> Result<T, InvalidValue>) -> Option<T> {
        let mut best = None;
        for found in self.raw.of(key) {
            match read(&found.written) {
                Ok(value) if best.is_none() => best = Some((value, found.source.clone())),
                Ok(_) => {}
                Err(wrong) => self.problems.push(SettingsProblem::of(found.source.clone(), key, wrong)),
            }
        }
        if let Some((value, source)) = best {
            self.sources[key as usize] = source;
            return Some(value);
        }
        let default = Written::Word(key.setting().default?.to_owned());
        read(&default).ok()
    }

    /// Returns the items of a list from the strongest source, each with its source; `None` if no source sets it.
    /// `right` says what to write instead of an empty list.
    pub(super) fn list<T>(
        &mut self,
        key: Key,
        right: &str,
        read: impl Fn(&str) -> Result<T, InvalidValue>,
    ) -> Option<Vec<(T, ValueSource)>> {
        let mut best = None;
        for found in self.raw.of(key) {
            let values = read_items(key, found, right, &read, &mut self.problems);
            if best.is_none() {
                self.sources[key as usize] = found.source.clone();
                best = Some(values);
            }
        }
        best
    }
}

/// Returns the items of a list in one source, each with its place there. Adds the mistakes to `problems`. `right` says
/// what to write instead of an empty list.
pub(super) fn read_items<T>(
    key: Key,
    found: &SourcedValue,
    right: &str,
    read: impl Fn(&str) -> Result<T, InvalidValue>,
    problems: &mut Vec<SettingsProblem>,
) -> Vec<(T, ValueSource)> {
    let items = value::items(found);
    if items.is_empty() {
        let wrong = InvalidValue::new("is an empty list", right);
        problems.push(SettingsProblem::of(found.source.clone(), key, wrong));
    }
    let mut values = Vec::new();
    for item in items {
        let value = item.and_then(|(text, source)| match read(&text) {
            Ok(value) => Ok((value, source)),
            Err(wrong) => Err((wrong, source)),
        });
        match value {
            Ok(value) => values.push(value),
            Err((wrong, source)) => problems.push(SettingsProblem::of(source, key, wrong)),
        }
    }
    values
}

impl SettingsProblem {
    /// Returns the mistake of a setting. It stands here and not in `problem`, because the registry, which has the names
    /// of keys, depends on that module.
    pub(super) fn of(source: ValueSource, key: Key, wrong: InvalidValue) -> SettingsProblem {
        let key = Some(key.setting().name.to_owned());
        SettingsProblem { source, key, reason: wrong.reason, right: wrong.right, exit: Reason::Usage }
    }
}
