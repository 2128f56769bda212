//! `carom top`: a live view of a node, which reads its status every second.
//!
//! One thread asks the node, one reads keys, and one receives signals. The main thread gets all their events, keeps the
//! state of the view, and is the only one that draws. [`view`] renders that state and knows neither terminal nor clock.

mod columns;
mod keys;
mod latency;
mod picture;
mod screen;
mod snapshot;
mod state;
mod view;

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Instant;

use self::keys::ViewKey;
use self::picture::{Outage, Picture, PictureStyle};
use self::screen::Screen;
use self::snapshot::Snapshot;
use self::state::ViewState;
use super::cli::TopArgs;
use super::output::{has_failed, notice_lost_reader, print};
use super::status::{AdminEndpoint, EVERY, StatusSample};
use super::terminal::has_colours;
use crate::startup::signals::{self, ProcessSignal};
use carom_settings::exit::{Exit, Reason};

/// Query for a status with the latencies that the view needs.
const LATENCIES: &str = "?latencies=all";

/// Most events that wait for the main thread. Beyond it, the threads that send them wait.
const EVENTS_MAX: usize = 32;

/// An event for the main thread.
enum TopEvent {
    /// The node answered, or did not.
    Answer(Result<StatusSample, Exit>),
    /// A person pressed a key.
    Pressed(ViewKey),
    /// No more keys can come: the terminal is gone.
    KeysEnded,
    /// The process received a signal.
    Received(ProcessSignal),
}

/// Consequence of an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Draw,
    Quit,
}

/// The last failure to get a status.
struct StatusFailure {
    exit: Exit,
    since: Instant,
}

/// The view of one node.
struct NodeView {
    url: String,
    look: PictureStyle,
    state: ViewState,
    /// The last status, also while the view is paused.
    last: Option<StatusSample>,
    snapshot: Option<Snapshot>,
    failure: Option<StatusFailure>,
}

/// Shows the state of a node until a key or a signal ends the view. With `--json`, prints a line each second instead.
///
/// # Errors
/// [`Reason::Usage`] for wrong settings or key files, and without a terminal. [`Reason::Incomplete`] if the terminal
/// cannot be used and, with `--json`, if the node does not answer the first time.
pub fn run(arguments: &TopArgs) -> Result<(), Exit> {
    if arguments.json {
        return print_lines(&mut AdminEndpoint::new(&arguments.node, "")?);
    }
    require_terminal()?;
    let mut node = AdminEndpoint::new(&arguments.node, LATENCIES)?;
    let (sender, inbox) = sync_channel(EVENTS_MAX);
    let mut live = NodeView::new(node.url());
    // Before the terminal changes: the default action of a signal would leave it so.
    watch_signals(sender.clone()).map_err(|error| unusable(&error))?;
    let mut screen = Screen::open().map_err(|error| unusable(&error))?;
    start("keys", sender.clone(), |sender| send_keys(&sender)).map_err(|error| unusable(&error))?;
    start("status", sender, move |sender| ask(&mut node, &sender)).map_err(|error| unusable(&error))?;
    live.follow(&mut screen, &inbox).map_err(|error| unusable(&error))
}

/// Prints the status every second as one line of JSON, until standard output takes no more.
fn print_lines(node: &mut AdminEndpoint) -> Result<(), Exit> {
    let mut has_answered = false;
    loop {
        let begun = Instant::now();
        match node.ask() {
            Ok(now) => {
                has_answered = true;
                print(&format!("{}\n", now.status));
            }
            Err(exit) if !has_answered => return Err(exit),
            // A node that restarts will answer again.
            Err(exit) => {
                let _ = writeln!(io::stderr(), "{}", exit.what);
                notice_lost_reader();
            }
        }
        if has_failed() {
            return Ok(());
        }
        thread::sleep(EVERY.saturating_sub(begun.elapsed()));
    }
}

fn require_terminal() -> Result<(), Exit> {
    let what = if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        "`carom top` needs a terminal for its input and its output"
    } else if std::env::var_os("TERM").is_some_and(|term| term == "dumb") {
        "`carom top` needs a terminal that can draw in place, and TERM is dumb"
    } else {
        return Ok(());
    };
    let remedy = "use `carom status`, which prints once, or `carom top --json`, which prints a line each second";
    Err(Exit::new(Reason::Usage, what).with_remedy(remedy))
}

fn unusable(error: &io::Error) -> Exit {
    Exit::new(Reason::Incomplete, format!("the terminal cannot be used for a live view: {error}"))
        .with_remedy("use `carom status`, which prints once")
}

/// Starts a thread that sends events.
fn start(
    name: &str,
    sender: SyncSender<TopEvent>,
    work: impl FnOnce(SyncSender<TopEvent>) + Send + 'static,
) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(move || work(sender)).map(|_| ())
}

/// Asks the node every second until nothing receives the answers any more.
fn ask(node: &mut AdminEndpoint, sender: &SyncSender<TopEvent>) {
    loop {
        let begun = Instant::now();
        if sender.send(TopEvent::Answer(node.ask())).is_err() {
            return;
        }
        thread::sleep(EVERY.saturating_sub(begun.elapsed()));
    }
}

/// Sends the keys of the terminal until it is gone.
fn send_keys(sender: &SyncSender<TopEvent>) {
    keys::read_all(|key| sender.send(TopEvent::Pressed(key)).is_ok());
    let _ = sender.send(TopEvent::KeysEnded);
}

fn watch_signals(sender: SyncSender<TopEvent>) -> io::Result<()> {
    let wanted = [
        ProcessSignal::Terminate,
        ProcessSignal::Interrupt,
        ProcessSignal::HangUp,
        ProcessSignal::WindowChange,
        ProcessSignal::Continue,
    ];
    signals::watch(&wanted, move |signal| sender.send(TopEvent::Received(signal)).is_ok())
}

impl NodeView {
    fn new(url: &str) -> NodeView {
        NodeView {
            url: url.to_owned(),
            look: PictureStyle::new(has_colours()),
            state: ViewState::default(),
            last: None,
            snapshot: None,
            failure: None,
        }
    }

    /// Draws after each event, and at least every second, until an event ends the view.
    fn follow(&mut self, screen: &mut Screen, inbox: &Receiver<TopEvent>) -> io::Result<()> {
        loop {
            screen.draw(|frame| view::draw(frame, &self.picture()))?;
            let event = match inbox.recv_timeout(EVERY) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            if let TopEvent::Received(ProcessSignal::Continue) = event {
                // The shell has changed the terminal meanwhile.
                screen.reopen()?;
            }
            if self.handle(event, screen.width()?) == Next::Quit {
                return Ok(());
            }
        }
    }

    fn handle(&mut self, event: TopEvent, width: usize) -> Next {
        match event {
            TopEvent::Answer(Ok(sample)) => self.take(sample),
            TopEvent::Answer(Err(exit)) => {
                let since = self.failure.as_ref().map_or_else(Instant::now, |failure| failure.since);
                self.failure = Some(StatusFailure { exit, since });
            }
            TopEvent::Pressed(key) => {
                let cores = self.snapshot.as_ref().map(|snapshot| snapshot.cores.as_slice()).unwrap_or_default();
                let shown = columns::shown(cores, self.state.sort, width);
                if self.state.press(key, &shown, cores.len()) {
                    return Next::Quit;
                }
            }
            TopEvent::Received(ProcessSignal::WindowChange | ProcessSignal::Continue) => {}
            TopEvent::Received(_) | TopEvent::KeysEnded => return Next::Quit,
        }
        Next::Draw
    }

    fn take(&mut self, sample: StatusSample) {
        self.failure = None;
        if !self.state.is_paused || self.snapshot.is_none() {
            let before = self.last.as_ref().map(|last| (&last.status, sample.at - last.at));
            self.snapshot = Some(Snapshot::new(before, &sample.status));
        }
        self.last = Some(sample);
    }

    fn picture(&self) -> Picture<'_> {
        let outage = self.failure.as_ref().map(|failure| Outage {
            what: &failure.exit.what,
            remedy: failure.exit.remedy(),
            age: failure.since.elapsed(),
        });
        Picture { url: &self.url, snapshot: self.snapshot.as_ref(), outage, state: &self.state, look: self.look }
    }
}
