//! Links in JSON files: NDJSON, an array, or the saved responses of an API one after the other.

use std::io::{BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::de::IoRead;
use serde_json::{Deserializer, StreamDeserializer, Value};

use super::shorteners::Shortener;
use super::source::{FoundLink, MovingSource};
use carom_limits::MOVED_DOCUMENT_MAX;

/// The links of a JSON file.
pub struct Documents<R: Read> {
    shortener: Shortener,
    values: StreamDeserializer<'static, IoRead<Bounded<BufReader<R>>>, Value>,
    /// Bytes that the current document may still have.
    left: Arc<AtomicU64>,
    number: u64,
}

/// Refuses documents that would not fit into memory.
struct Bounded<R> {
    inner: R,
    left: Arc<AtomicU64>,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let len = self.inner.read(out)?;
        let left = self.left.load(Ordering::Relaxed);
        let Some(left) = left.checked_sub(len as u64) else {
            let why = format!(
                "a JSON document is longer than {MOVED_DOCUMENT_MAX} bytes; split it, or use one link per line"
            );
            return Err(std::io::Error::other(why));
        };
        self.left.store(left, Ordering::Relaxed);
        Ok(len)
    }
}

impl<R: Read> Documents<R> {
    /// Reads the links of a shortener from a file.
    pub fn new(shortener: Shortener, input: R) -> Documents<R> {
        let left = Arc::new(AtomicU64::new(MOVED_DOCUMENT_MAX));
        let bounded = Bounded { inner: BufReader::new(input), left: Arc::clone(&left) };
        Documents { shortener, values: Deserializer::from_reader(bounded).into_iter(), left, number: 0 }
    }
}

impl<R: Read + Send> MovingSource for Documents<R> {
    fn next(&mut self) -> Result<Option<Vec<FoundLink>>, String> {
        let Some(document) = self.values.next() else { return Ok(None) };
        self.left.store(MOVED_DOCUMENT_MAX, Ordering::Relaxed);
        let document = document.map_err(|error| format!("the file cannot be read as JSON: {error}"))?;
        let items = self.shortener.items(document)?;
        Ok(Some(items.iter().flat_map(|item| self.shortener.links_of(item, &mut self.number)).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(shortener: Shortener, text: &str) -> (Vec<u64>, Option<String>) {
        let mut source = Documents::new(shortener, text.as_bytes());
        let mut numbers = Vec::new();
        loop {
            match source.next() {
                Ok(Some(links)) => numbers.extend(links.into_iter().map(|link| link.number)),
                Ok(None) => return (numbers, None),
                Err(why) => return (numbers, Some(why)),
            }
        }
    }

    #[test]
    fn files_of_all_forms_are_read() {
        let link = r#"{"shortCode":"a","longUrl":"https://example.org/"}"#;
        let page = format!(r#"{{"shortUrls":{{"data":[{link},{link}]}}}}"#);
        for (text, count) in [
            (format!("{link}\n{link}\n"), 2),
            (format!("[{link},\n{link},{link}]"), 3),
            (format!("{page}{page}\n"), 4),
            ("  \n".to_owned(), 0),
        ] {
            assert_eq!(numbers(Shortener::Shlink, &text), ((1..=count).collect(), None), "{text}");
        }
        let (before, why) = numbers(Shortener::Shlink, &format!("{link}\n{{\"shortCode\":"));
        assert!(before == [1]);
        assert!(why.unwrap().contains("EOF"));
    }
}
