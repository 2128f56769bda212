//! The terminal of the view: its raw mode and its alternate screen, and the way back from both.

use std::io::{self, Stdout, Write};
use std::mem::ManuallyDrop;
use std::panic;

use ratatui::backend::TermionBackend;
use ratatui::layout::Rect;
use ratatui::{Frame, Terminal};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// Switches to the alternate screen, and hides the cursor.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";

/// Shows the cursor, and returns to the screen as it was before.
const LEAVE: &[u8] = b"\x1b[?25h\x1b[?1049l";

/// The terminal while the view has it. The previous state returns when this is dropped, or when any thread panics.
pub(super) struct Screen {
    /// The terminal. It is never dropped: a drop would report a lost terminal on standard error, which is lost too, and
    /// panic.
    terminal: ManuallyDrop<Terminal<TermionBackend<Stdout>>>,
    before: Termios,
}

impl Screen {
    /// Takes the terminal of standard input and output.
    ///
    /// # Errors
    /// The terminal does not tell its state or its size, or refuses another mode.
    pub(super) fn open() -> io::Result<Screen> {
        let before = tcgetattr(io::stdin())?;
        restore_on_panic(before.clone());
        let terminal = ManuallyDrop::new(Terminal::new(TermionBackend::new(io::stdout()))?);
        let screen = Screen { terminal, before };
        screen.enter()?;
        Ok(screen)
    }

    /// Takes the terminal again after the process was stopped, and draws everything with the next picture.
    ///
    /// # Errors
    /// As [`Screen::open`].
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        self.enter()?;
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::new(0, 0, size.width, size.height))
    }

    /// Draws a picture at the current size of the terminal.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(super) fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(render).map(|_| ())
    }

    /// Returns the width of the terminal, in columns.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(super) fn width(&self) -> io::Result<usize> {
        Ok(usize::from(self.terminal.size()?.width))
    }

    fn enter(&self) -> io::Result<()> {
        let mut raw = self.before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Flush, &raw)?;
        let mut out = io::stdout();
        out.write_all(ENTER)?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave(&self.before);
    }
}

/// Restores the terminal before a panic is reported, as a release ends without dropping anything.
fn restore_on_panic(before: Termios) {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        leave(&before);
        report(panic);
    }));
}

/// Restores the terminal. A terminal that is gone needs nothing.
fn leave(before: &Termios) {
    // Past the lock of standard output, which the thread that panics may not wait for.
    let _ = rustix::io::write(io::stdout(), LEAVE);
    let _ = tcsetattr(io::stdin(), OptionalActions::Flush, before);
}
