//! The choices of a person in the view: the order of the cores, the first of them, a pause, and the help.

use super::columns::{Column, SortOrder};
use super::keys::Key;

/// The choices of a person.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ViewState {
    pub(super) sort: SortOrder,
    /// Index of the first core that is shown, in the order of the table.
    pub(super) first: usize,
    pub(super) is_paused: bool,
    pub(super) shows_help: bool,
}

impl Default for ViewState {
    fn default() -> ViewState {
        let sort = SortOrder { by: Column::Core, is_reversed: false };
        ViewState { sort, first: 0, is_paused: false, shows_help: false }
    }
}

impl ViewState {
    /// Handles a key, given the columns on the screen and the number of cores. Returns true if the view shall end.
    pub(super) fn press(&mut self, key: Key, shown: &[Column], cores: usize) -> bool {
        match key {
            Key::Interrupt | Key::Char('q' | 'Q') => return true,
            Key::Escape if self.shows_help => self.shows_help = false,
            Key::Escape => return true,
            Key::Char('h' | 'H' | '?') => self.shows_help = !self.shows_help,
            Key::Char('p' | 'P' | ' ') => self.is_paused = !self.is_paused,
            Key::Char('r' | 'R') => self.sort.is_reversed = !self.sort.is_reversed,
            Key::Char('s' | 'S') | Key::Right => self.sort_by(shown, 1),
            Key::Left => self.sort_by(shown, shown.len().saturating_sub(1)),
            Key::Up => self.first = self.first.saturating_sub(1),
            Key::Down => self.first = (self.first + 1).min(cores.saturating_sub(1)),
            Key::Char(_) => {}
        }
        false
    }

    /// Sorts by the column that is so many columns to the right, around the end.
    fn sort_by(&mut self, shown: &[Column], distance: usize) {
        let at = shown.iter().position(|column| *column == self.sort.by);
        // The terminal may have become too narrow for the column.
        let next = at.map_or(0, |at| (at + distance) % shown.len());
        if let Some(by) = shown.get(next) {
            self.sort = SortOrder { by: *by, is_reversed: false };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: [Column; 3] = [Column::Core, Column::Requests, Column::Links];

    #[test]
    fn keys_end_the_view() {
        let ends = |key| ViewState::default().press(key, &SHOWN, 1);
        assert!(ends(Key::Char('q')) && ends(Key::Escape) && ends(Key::Interrupt));
        assert!(!ends(Key::Char('x')) && !ends(Key::Up));
        let mut state = ViewState::default();
        assert!(!state.press(Key::Char('h'), &SHOWN, 1) && state.shows_help);
        assert!(!state.press(Key::Escape, &SHOWN, 1) && !state.shows_help, "Esc closes the help first");
    }

    #[test]
    fn keys_choose_the_order() {
        let mut state = ViewState::default();
        let mut by = |key| {
            state.press(key, &SHOWN, 1);
            state.sort.by
        };
        assert_eq!([Key::Char('s'), Key::Right, Key::Right].map(&mut by), [SHOWN[1], SHOWN[2], SHOWN[0]]);
        assert_eq!([Key::Left, Key::Left].map(&mut by), [SHOWN[2], SHOWN[1]]);
        state.press(Key::Char('r'), &SHOWN, 1);
        assert!(state.sort.is_reversed);
        state.press(Key::Right, &[], 0);
        state.press(Key::Right, &SHOWN[..1], 0);
        assert_eq!(state.sort, SortOrder { by: Column::Core, is_reversed: false });
    }

    #[test]
    fn cores_scroll_within_their_number() {
        let mut state = ViewState::default();
        let mut first = |key| {
            state.press(key, &SHOWN, 3);
            state.first
        };
        assert_eq!([Key::Up, Key::Down, Key::Down, Key::Down, Key::Up].map(&mut first), [0, 1, 2, 2, 1]);
        state.press(Key::Char('p'), &SHOWN, 3);
        assert!(state.is_paused);
    }
}
