//! The choices of a person in the view: the order of the cores, the first of them, a pause, and the help.

use super::columns::{Column, RowOrder};
use super::keys::ViewKey;

/// The choices of a person.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ViewState {
    pub(super) sort: RowOrder,
    /// Index of the first core that is shown, in the order of the table.
    pub(super) first: usize,
    pub(super) is_paused: bool,
    pub(super) shows_help: bool,
}

impl Default for ViewState {
    fn default() -> ViewState {
        let sort = RowOrder { by: Column::Core, is_reversed: false };
        ViewState { sort, first: 0, is_paused: false, shows_help: false }
    }
}

impl ViewState {
    /// Handles a key, given the columns on the screen and the number of cores. Returns true if the view shall end.
    pub(super) fn press(&mut self, key: ViewKey, shown: &[Column], cores: usize) -> bool {
        match key {
            ViewKey::Interrupt | ViewKey::Char('q' | 'Q') => return true,
            ViewKey::Escape if self.shows_help => self.shows_help = false,
            ViewKey::Escape => return true,
            ViewKey::Char('h' | 'H' | '?') => self.shows_help = !self.shows_help,
            ViewKey::Char('p' | 'P' | ' ') => self.is_paused = !self.is_paused,
            ViewKey::Char('r' | 'R') => self.sort.is_reversed = !self.sort.is_reversed,
            ViewKey::Char('s' | 'S') | ViewKey::Right => self.sort_by(shown, 1),
            ViewKey::Left => self.sort_by(shown, shown.len().saturating_sub(1)),
            ViewKey::Up => self.first = self.first.saturating_sub(1),
            ViewKey::Down => self.first = (self.first + 1).min(cores.saturating_sub(1)),
            ViewKey::Char(_) => {}
        }
        false
    }

    /// Sorts by the column that is so many columns to the right, around the end.
    fn sort_by(&mut self, shown: &[Column], distance: usize) {
        let at = shown.iter().position(|column| *column == self.sort.by);
        // The terminal may have become too narrow for the column.
        let next = at.map_or(0, |at| (at + distance) % shown.len());
        if let Some(by) = shown.get(next) {
            self.sort = RowOrder { by: *by, is_reversed: false };
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
        assert!(ends(ViewKey::Char('q')));
        assert!(ends(ViewKey::Escape));
        assert!(ends(ViewKey::Interrupt));
        assert!(!ends(ViewKey::Char('x')));
        assert!(!ends(ViewKey::Up));
        let mut state = ViewState::default();
        assert!(!state.press(ViewKey::Char('h'), &SHOWN, 1));
        assert!(state.shows_help);
        assert!(!state.press(ViewKey::Escape, &SHOWN, 1), "Esc closes the help first");
        assert!(!state.shows_help, "Esc closes the help first");
    }

    #[test]
    fn keys_choose_the_order() {
        let mut state = ViewState::default();
        let mut by = |key| {
            state.press(key, &SHOWN, 1);
            state.sort.by
        };
        assert_eq!([ViewKey::Char('s'), ViewKey::Right, ViewKey::Right].map(&mut by), [SHOWN[1], SHOWN[2], SHOWN[0]]);
        assert_eq!([ViewKey::Left, ViewKey::Left].map(&mut by), [SHOWN[2], SHOWN[1]]);
        state.press(ViewKey::Char('r'), &SHOWN, 1);
        assert!(state.sort.is_reversed);
        state.press(ViewKey::Right, &[], 0);
        state.press(ViewKey::Right, &SHOWN[..1], 0);
        assert_eq!(state.sort, RowOrder { by: Column::Core, is_reversed: false });
    }

    #[test]
    fn cores_scroll_within_their_number() {
        let mut state = ViewState::default();
        let mut first = |key| {
            state.press(key, &SHOWN, 3);
            state.first
        };
        assert_eq!(
            [ViewKey::Up, ViewKey::Down, ViewKey::Down, ViewKey::Down, ViewKey::Up].map(&mut first),
            [0, 1, 2, 2, 1]
        );
        state.press(ViewKey::Char('p'), &SHOWN, 3);
        assert!(state.is_paused);
    }
}
