//! One server as one thread speaks to it: what it was asked and has yet to answer.
//!
//! A question whose time is over is forgotten, and its reply dropped when it comes: replies come in order, so none is taken
//! for another. A server that says nothing is asked nothing more until it speaks, and after a while its connection is made
//! anew.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use redis::Value;
use rustix::event::{PollFd, PollFlags};

use super::connection::Connection;
use super::dial::Dialer;
use super::topology::{Told, told_of_cluster, told_of_one};
use super::{Address, Asked, Trouble, script};

/// How long a server that did not answer is left alone.
const REST: Duration = Duration::from_millis(250);

/// A server that was silent for less than this is not blamed when a question ends: it may have been put late.
const FAIR: Duration = Duration::from_millis(10);

/// How long a server may be silent before its connection is no longer trusted.
const SILENT_MAX: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Server {
    link: Link,
}

enum Link {
    /// It is connected to when it is needed, but not before that instant; and why.
    Down(Option<(Instant, Trouble)>),
    /// A connection is being made. Nobody waits for it any more after one has done so in vain.
    Dialing {
        attempt: u64,
        is_slow: bool,
    },
    Up(Box<Talk>),
}

impl Default for Link {
    fn default() -> Link {
        Link::Down(None)
    }
}

/// What is under way on a connection.
struct Talk {
    connection: Connection,
    in_cluster: bool,
    /// What it has yet to answer, the oldest first.
    awaited: VecDeque<Awaited>,
    /// When it last said something.
    heard: Instant,
    /// Since when it has been silent although somebody waited for it.
    silent_since: Option<Instant>,
    /// It is left alone until then.
    rests_until: Option<Instant>,
}

/// Commands that were sent in one piece.
struct Awaited {
    what: What,
    sent: Instant,
    /// Replies that belong to it.
    replies: usize,
    /// Whether every second of them only says that an exception was made.
    moving: bool,
    values: Vec<Value>,
}

enum What {
    Asked(Asked),
    Map,
    /// Nobody waits for it.
    Nothing,
}

/// What a server has said.
pub(super) enum Said {
    Answer(Asked, Vec<Value>),
    Map(Result<Told, Trouble>),
}

/// What somebody has waited for in vain.
pub(super) enum Unsaid {
    Asked(Asked),
    Map,
}

/// Whether a question can go to a server now.
pub(super) enum Approach {
    Ready,
    /// As soon as there is a connection.
    Soon,
}

impl Server {
    /// Whether it is connected.
    pub(super) fn is_up(&self) -> bool {
        matches!(self.link, Link::Up(_))
    }

    pub(super) fn is_dialing(&self) -> bool {
        matches!(self.link, Link::Dialing { .. })
    }

    /// Whether it is connected and speaks.
    pub(super) fn can_be_asked(&self) -> bool {
        matches!(&self.link, Link::Up(talk) if !talk.is_left_alone())
    }

    /// Whether anything is under way.
    pub(super) fn is_busy(&self) -> bool {
        match &self.link {
            Link::Down(_) => false,
            Link::Dialing { .. } => true,
            Link::Up(talk) => talk.awaited.iter().any(|awaited| !matches!(awaited.what, What::Nothing)),
        }
    }

    /// Makes sure that there is a connection or will be, as far as it makes sense to wait for it.
    pub(super) fn approach(&mut self, address: &Address, dialer: &mut Dialer) -> Result<Approach, Trouble> {
        let silent = || Trouble::Away { what: format!("{address} did not answer the last request"), asked: false };
        if matches!(&self.link, Link::Up(talk) if talk.is_lost()) {
            self.link = Link::Down(None);
            let _ = self.approach(address, dialer);
            // It will take its time.
            self.give_up_waiting();
            return Err(silent());
        }
        match &self.link {
            Link::Up(talk) if talk.is_left_alone() => Err(silent()),
            Link::Up(_) => Ok(Approach::Ready),
            Link::Dialing { is_slow: false, .. } => Ok(Approach::Soon),
            Link::Dialing { .. } => Err(silent()),
            Link::Down(Some((until, why))) if Instant::now() < *until => Err(why.clone()),
            Link::Down(_) => {
                let attempt = dialer.start(address).map_err(|error| Trouble::away(address, &error, false))?;
                self.link = Link::Dialing { attempt, is_slow: false };
                Ok(Approach::Soon)
            }
        }
    }

    /// Nobody is to wait for a connection that takes so long.
    pub(super) fn give_up_waiting(&mut self) {
        if let Link::Dialing { is_slow, .. } = &mut self.link {
            *is_slow = true;
        }
    }

    /// Takes what has become of an attempt; `false` if it is no longer of interest.
    pub(super) fn dialed(&mut self, attempt: u64, result: Result<(Connection, bool), &Trouble>) -> bool {
        if !matches!(self.link, Link::Dialing { attempt: current, .. } if current == attempt) {
            return false;
        }
        self.link = match result {
            Ok((connection, in_cluster)) => Link::Up(Box::new(Talk::new(connection, in_cluster))),
            Err(why) => Link::Down(Some((Instant::now() + REST, why.clone()))),
        };
        true
    }

    /// Gives up the connection. Returns what nobody will answer. With a reason it is also left alone for a moment.
    pub(super) fn lose(&mut self, why: Option<&Trouble>) -> Vec<Unsaid> {
        let rest = why.map(|why| (Instant::now() + REST, why.clone()));
        let Link::Up(talk) = std::mem::replace(&mut self.link, Link::Down(rest)) else { return Vec::new() };
        talk.awaited.into_iter().filter_map(|awaited| awaited.what.unsaid()).collect()
    }

    /// Puts a question. Only where the last word was [`Approach::Ready`].
    pub(super) fn ask(&mut self, asked: Asked) {
        let Link::Up(talk) = &mut self.link else { unreachable!("it is ready") };
        let moving = asked.at.is_some();
        let mut replies = 0;
        for question in &asked.questions {
            if moving {
                talk.connection.put(&redis::cmd("ASKING"));
            }
            talk.connection.put(&question.to_command());
            replies += 1 + usize::from(moving);
        }
        talk.awaits(What::Asked(asked), replies, moving);
    }

    /// Asks it what it is, unless it is going to say that anyway with its first words.
    pub(super) fn ask_for_map(&mut self) {
        let Link::Up(talk) = &mut self.link else { return };
        if talk.in_cluster {
            talk.connection.put(redis::cmd("CLUSTER").arg("SLOTS"));
        } else {
            talk.connection.put(&redis::cmd("ROLE"));
        }
        talk.awaits(What::Map, 1, false);
    }

    /// Loads all scripts, before anything that is asked from now on.
    pub(super) fn load(&mut self) {
        let Link::Up(talk) = &mut self.link else { return };
        script::loads().for_each(|load| talk.connection.put(&load));
        talk.awaits(What::Nothing, script::COUNT, false);
    }

    /// Writes what was put to it.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if let Link::Up(talk) = &mut self.link { talk.connection.flush() } else { Ok(()) }
    }

    /// What it has said meanwhile. After an error the connection is lost, but what came before that counts.
    pub(super) fn listen(&mut self, address: &Address) -> (Vec<Said>, io::Result<()>) {
        let mut said = Vec::new();
        let Link::Up(talk) = &mut self.link else { return (said, Ok(())) };
        let pumped = talk.connection.pump();
        let heard = talk.take(address, &mut said);
        (said, heard.and(pumped))
    }

    /// Forgets the questions whose time is over, and returns them.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Unsaid> {
        let Link::Up(talk) = &mut self.link else { return Vec::new() };
        let Some(oldest) = talk.awaited.front() else { return Vec::new() };
        // Since it spoke last, or since it was asked after that.
        let silent = now.saturating_duration_since(oldest.sent.max(talk.heard));
        let over = |awaited: &&mut Awaited| awaited.deadline().is_some_and(|deadline| deadline <= now);
        let over = talk.awaited.iter_mut().filter(over);
        let unsaid: Vec<Unsaid> =
            over.filter_map(|awaited| std::mem::replace(&mut awaited.what, What::Nothing).unsaid()).collect();
        if !unsaid.is_empty() && silent >= FAIR {
            talk.silent_since.get_or_insert(now);
            talk.rests_until = Some(now + REST);
        }
        unsaid
    }

    /// When somebody has waited long enough for it.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let Link::Up(talk) = &self.link else { return None };
        talk.awaited.iter().filter_map(Awaited::deadline).min()
    }

    /// What to wait for.
    pub(super) fn awaits(&self) -> Option<PollFd<'_>> {
        let Link::Up(talk) = &self.link else { return None };
        let flags = talk.connection.awaits();
        let waits = !talk.awaited.is_empty() || flags != PollFlags::IN;
        waits.then(|| PollFd::new(&talk.connection, flags))
    }
}

impl Talk {
    fn new(connection: Connection, in_cluster: bool) -> Talk {
        let awaited = VecDeque::new();
        Talk { connection, in_cluster, awaited, heard: Instant::now(), silent_since: None, rests_until: None }
    }

    fn is_left_alone(&self) -> bool {
        self.silent_since.is_some() || self.rests_until.is_some_and(|until| Instant::now() < until)
    }

    fn is_lost(&self) -> bool {
        self.silent_since.is_some_and(|since| since.elapsed() >= SILENT_MAX)
    }

    fn awaits(&mut self, what: What, replies: usize, moving: bool) {
        self.awaited.push_back(Awaited { what, sent: Instant::now(), replies, moving, values: Vec::new() });
    }

    /// Takes the replies that have come.
    fn take(&mut self, address: &Address, said: &mut Vec<Said>) -> io::Result<()> {
        while let Some(value) = self.connection.next()? {
            (self.heard, self.silent_since) = (Instant::now(), None);
            let unasked = || io::Error::new(io::ErrorKind::InvalidData, "the server sent a response without a request");
            let awaited = self.awaited.front_mut().ok_or_else(unasked)?;
            awaited.values.push(value);
            if awaited.values.len() == awaited.replies {
                said.extend(self.awaited.pop_front().and_then(|awaited| awaited.said(address, self.in_cluster)));
            }
        }
        Ok(())
    }
}

impl Awaited {
    fn deadline(&self) -> Option<Instant> {
        match &self.what {
            What::Asked(asked) => Some(asked.deadline),
            What::Map => Some(self.sent + SILENT_MAX),
            What::Nothing => None,
        }
    }

    fn said(self, address: &Address, in_cluster: bool) -> Option<Said> {
        let mut values = self.values;
        if self.moving {
            values = values.into_iter().skip(1).step_by(2).collect();
        }
        match self.what {
            What::Asked(asked) => Some(Said::Answer(asked, values)),
            What::Map => {
                let value = values.into_iter().next().unwrap_or(Value::Nil);
                let told = if in_cluster { told_of_cluster } else { told_of_one };
                Some(Said::Map(told(address, &value)))
            }
            What::Nothing => None,
        }
    }
}

impl What {
    fn unsaid(self) -> Option<Unsaid> {
        match self {
            What::Asked(asked) => Some(Unsaid::Asked(asked)),
            What::Map => Some(Unsaid::Map),
            What::Nothing => None,
        }
    }
}
