//! Writes the links of a source as the lines of an import. The number of a line is that of its link in the source.

use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::moved_link::MovedDomains;
use super::source::MovingSource;
use crate::commands::data::import_report::ImportFinding;

/// Results of the reading, which the thread of the import collects.
#[derive(Debug, Default)]
pub struct MovingProgress {
    /// Links read so far.
    pub links: AtomicU64,
    findings: Mutex<Vec<ImportFinding>>,
    failure: Mutex<Option<String>>,
    remark: Mutex<Option<String>>,
}

impl MovingProgress {
    /// Returns the links that carom cannot take, or not as a whole, since the last call.
    pub fn take_findings(&self) -> Vec<ImportFinding> {
        std::mem::take(&mut self.findings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the reason for which the source ended early.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the remark of the source.
    pub fn remark(&self) -> Option<String> {
        self.remark.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, line: u64, name: &str, reason: impl Into<String>, is_taken: bool) {
        let finding = ImportFinding { line, name: name.to_owned(), reason: reason.into(), is_taken };
        self.findings.lock().unwrap_or_else(PoisonError::into_inner).push(finding);
    }
}

/// The lines of a source. After a failure of the source, the lines end, so that all links before it are imported.
pub struct MovingLines {
    source: Box<dyn MovingSource>,
    domains: MovedDomains,
    progress: Arc<MovingProgress>,
    pending: Vec<u8>,
    taken: usize,
    /// Lines written so far.
    lines: u64,
    is_ended: bool,
}

impl MovingLines {
    /// Returns the lines of a source, and the place for its results.
    pub fn new(source: Box<dyn MovingSource>, domains: MovedDomains) -> (MovingLines, Arc<MovingProgress>) {
        let progress = Arc::new(MovingProgress::default());
        let (pending, shared) = (Vec::new(), Arc::clone(&progress));
        (MovingLines { source, domains, progress: shared, pending, taken: 0, lines: 0, is_ended: false }, progress)
    }

    /// Fills the buffer with the lines of the next links.
    fn fill(&mut self) {
        self.pending.clear();
        self.taken = 0;
        let links = match self.source.next() {
            Ok(Some(links)) => links,
            ended => {
                let of =
                    |place: &Mutex<Option<String>>, text| *place.lock().unwrap_or_else(PoisonError::into_inner) = text;
                of(&self.progress.failure, ended.err());
                of(&self.progress.remark, self.source.remark());
                self.is_ended = true;
                return;
            }
        };
        self.progress.links.fetch_add(links.len() as u64, Ordering::Relaxed);
        for found in links {
            let number = found.number.max(self.lines + 1);
            let line = found.link.and_then(|link| link.to_line(&self.domains).map(|line| (line, link.lost)));
            match line {
                Ok((line, lost)) => {
                    let blank = (number - 1 - self.lines) as usize;
                    self.pending.resize(self.pending.len() + blank, b'\n');
                    self.pending.extend_from_slice(line.as_bytes());
                    self.pending.push(b'\n');
                    self.lines = number;
                    lost.into_iter().for_each(|lost| self.progress.note(number, &found.name, lost, true));
                }
                Err(reason) => self.progress.note(number, &found.name, reason, false),
            }
        }
    }
}

impl Read for MovingLines {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.pending.len() && !self.is_ended {
            self.fill();
        }
        let len = out.len().min(self.pending.len() - self.taken);
        out[..len].copy_from_slice(&self.pending[self.taken..self.taken + len]);
        self.taken += len;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::moving::documents::Documents;
    use crate::commands::moving::shorteners::Shortener;
    use carom_model::domains::{Domains, UnknownHost};

    #[test]
    fn lines_have_the_numbers_of_their_links() {
        let text = r#"[{"shortCode":"a","longUrl":"x"},{"shortCode":"b"},{"shortCode":"c","longUrl":"y","domain":"no.test"},
            {"shortCode":"d","longUrl":"z","hasRedirectRules":true}] {"#;
        let own = Domains::new("https://s.test", &[], false, UnknownHost::NotFound);
        let source = Documents::new(Shortener::Shlink, text.as_bytes());
        let (mut lines, progress) = MovingLines::new(Box::new(source), MovedDomains::new(own, &[]).unwrap());
        let mut out = String::new();
        lines.read_to_string(&mut out).unwrap();
        let lines: Vec<&str> = out.lines().collect();
        assert!(lines.len() == 4, "{out}");
        assert!(lines[0].contains("\"a\""), "{out}");
        assert!(lines[3].contains("\"d\""), "{out}");
        assert!(lines[1].is_empty());
        assert!(lines[2].is_empty());
        let findings = progress.take_findings();
        let seen: Vec<_> = findings.iter().map(|one| (one.line, &*one.name, one.is_taken)).collect();
        assert_eq!(seen, [(2, "b", false), (3, "no.test/c", false), (4, "d", true)]);
        assert!(progress.failure().unwrap().contains("EOF"));
        assert!(progress.take_findings().is_empty());
    }
}
