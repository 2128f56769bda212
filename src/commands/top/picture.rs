//! Everything that the picture of a node is rendered from.

use std::time::Duration;

use ratatui::style::{Color, Modifier, Style};

use super::snapshot::Snapshot;
use super::state::ViewState;
use carom_telemetry::alarms::Severity;

/// A node that does not answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outage<'a> {
    pub(super) what: &'a str,
    pub(super) remedy: &'a str,
    /// Time since the first of the failures.
    pub(super) age: Duration,
}

/// Everything that the picture shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Picture<'a> {
    /// Address of the status.
    pub(super) url: &'a str,
    /// `None` before the first answer.
    pub(super) snapshot: Option<&'a Snapshot>,
    /// `None` while the node answers.
    pub(super) outage: Option<Outage<'a>>,
    pub(super) state: &'a ViewState,
    pub(super) look: PictureStyle,
}

/// Styles of the picture. Without colours, they differ by weight and inversion alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct PictureStyle {
    has_colours: bool,
}

impl PictureStyle {
    pub(super) const fn new(has_colours: bool) -> PictureStyle {
        PictureStyle { has_colours }
    }

    fn coloured(self, colour: Color, otherwise: Modifier) -> Style {
        if self.has_colours { Style::new().fg(colour) } else { Style::new().add_modifier(otherwise) }
    }

    pub(super) fn label(self) -> Style {
        self.coloured(Color::DarkGray, Modifier::empty())
    }

    pub(super) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(super) fn good(self) -> Style {
        self.coloured(Color::Green, Modifier::empty())
    }

    pub(super) fn notice(self) -> Style {
        self.coloured(Color::Cyan, Modifier::empty())
    }

    pub(super) fn warning(self) -> Style {
        self.coloured(Color::Yellow, Modifier::BOLD).add_modifier(Modifier::BOLD)
    }

    pub(super) fn bad(self) -> Style {
        self.coloured(Color::Red, Modifier::REVERSED).add_modifier(Modifier::BOLD)
    }

    pub(super) fn graph(self) -> Style {
        self.coloured(Color::Cyan, Modifier::empty())
    }

    pub(super) fn of(self, severity: Severity) -> Style {
        match severity {
            Severity::Critical => self.bad(),
            Severity::Warning => self.warning(),
            Severity::Notice => self.notice(),
        }
    }
}
