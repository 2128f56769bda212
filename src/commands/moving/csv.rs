//! A reader of CSV (RFC 4180) with commas, semicolons or tabs. It takes any bytes, reads record by record, and holds one
//! record in memory.

use std::io::{self, BufRead, BufReader, Read};

use carom_limits::IMPORT_LINE_MAX;

/// Separators that spreadsheets write.
const SEPARATORS: [u8; 3] = [b',', b';', b'\t'];

/// A record, and the number of its first line, counted from 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CsvRecord {
    /// The line on which the record begins.
    pub line: u64,
    /// The cells, or the reason why the record cannot be read.
    pub cells: Result<Vec<String>, String>,
}

/// Reads records from a file.
pub struct CsvReader<R> {
    input: BufReader<R>,
    separator: Option<u8>,
    line: u64,
}

/// The state of a record while its bytes arrive.
#[derive(Default)]
struct PartialRecord {
    cells: Vec<Vec<u8>>,
    cell: Vec<u8>,
    bytes: usize,
    in_quotes: bool,
    /// True after a quote inside a quoted cell: a second one stands for itself, anything else ends the quotes.
    after_quote: bool,
    /// True if text follows the closing quote of a cell.
    is_malformed: bool,
}

impl<R: Read> CsvReader<R> {
    /// Reads from a file that starts with the names of its columns. The first line decides the separator.
    pub fn new(input: R) -> CsvReader<R> {
        CsvReader { input: BufReader::new(input), separator: None, line: 0 }
    }

    /// Returns the next record that is not blank; `None` at the end.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(&mut self) -> io::Result<Option<CsvRecord>> {
        let separator = match self.separator {
            Some(separator) => separator,
            None => {
                let begin = self.input.fill_buf()?;
                if begin.starts_with(b"\xef\xbb\xbf") {
                    self.input.consume(3);
                }
                let separator = separator_of(self.input.fill_buf()?);
                *self.separator.insert(separator)
            }
        };
        loop {
            let first_line = self.line + 1;
            let mut record = PartialRecord::default();
            let is_ended = self.read_record(separator, &mut record)?;
            let is_blank = record.bytes == 0;
            if is_blank && is_ended {
                return Ok(None);
            }
            if !is_blank {
                return Ok(Some(CsvRecord { line: first_line, cells: record.finish() }));
            }
        }
    }

    /// Reads up to the end of a record. Returns true at the end of the file.
    fn read_record(&mut self, separator: u8, record: &mut PartialRecord) -> io::Result<bool> {
        loop {
            let buffer = self.input.fill_buf()?;
            if buffer.is_empty() {
                self.line += u64::from(record.bytes > 0);
                return Ok(true);
            }
            let mut used = 0;
            let mut is_whole = false;
            for &byte in buffer {
                used += 1;
                self.line += u64::from(byte == b'\n');
                is_whole = record.push(byte, separator);
                if is_whole {
                    break;
                }
            }
            self.input.consume(used);
            if is_whole {
                return Ok(false);
            }
        }
    }
}

impl PartialRecord {
    /// Takes a byte. Returns true if it ends the record.
    fn push(&mut self, byte: u8, separator: u8) -> bool {
        let is_quoted = self.in_quotes && !self.after_quote;
        if byte == b'\n' && !is_quoted {
            return true;
        }
        if byte == b'\r' && !is_quoted {
            return false;
        }
        self.bytes += 1;
        match byte {
            b'"' if is_quoted => self.after_quote = true,
            b'"' if self.in_quotes => {
                self.after_quote = false;
                self.keep(b'"');
            }
            b'"' if self.cell.is_empty() => self.in_quotes = true,
            _ if byte == separator && !is_quoted => {
                self.cells.push(std::mem::take(&mut self.cell));
                (self.in_quotes, self.after_quote) = (false, false);
            }
            _ => {
                self.is_malformed |= self.after_quote;
                self.keep(byte);
            }
        }
        false
    }

    fn keep(&mut self, byte: u8) {
        // A longer record is refused as a whole.
        if self.bytes <= IMPORT_LINE_MAX {
            self.cell.push(byte);
        }
    }

    fn finish(mut self) -> Result<Vec<String>, String> {
        if self.bytes > IMPORT_LINE_MAX {
            return Err(format!("is longer than {IMPORT_LINE_MAX} bytes"));
        }
        if self.in_quotes && !self.after_quote {
            return Err("has a quoted cell without an end".to_owned());
        }
        if self.is_malformed {
            return Err("has text after the closing quote of a cell".to_owned());
        }
        self.cells.push(self.cell);
        let cells = self.cells.into_iter().map(String::from_utf8).collect::<Result<_, _>>();
        cells.map_err(|_| "is not UTF-8".to_owned())
    }
}

/// Returns the separator that occurs most often in the first line, outside of quotes.
fn separator_of(begin: &[u8]) -> u8 {
    let mut counts = [0; SEPARATORS.len()];
    let mut in_quotes = false;
    for &byte in begin {
        match byte {
            b'"' => in_quotes = !in_quotes,
            b'\n' if !in_quotes => break,
            _ if in_quotes => {}
            _ => {
                if let Some(at) = SEPARATORS.iter().position(|&separator| separator == byte) {
                    counts[at] += 1;
                }
            }
        }
    }
    let most = counts.iter().max().copied().unwrap_or_default();
    SEPARATORS[counts.iter().position(|&count| count == most).unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> Vec<CsvRecord> {
        let mut reader = CsvReader::new(bytes);
        std::iter::from_fn(|| reader.read().unwrap()).collect()
    }

    fn cells(bytes: &[u8]) -> Vec<Vec<String>> {
        read(bytes).into_iter().map(|record| record.cells.unwrap()).collect()
    }

    #[test]
    fn quotes_lines_and_separators_are_read() {
        let text = b"\xef\xbb\xbfa;b;\"c;d\"\r\n1;\"two\r\nlines\";\"say \"\"hi\"\"\"\r\n\r\n;;\n4";
        let records = read(text);
        let lines: Vec<u64> = records.iter().map(|record| record.line).collect();
        assert_eq!(lines, [1, 2, 5, 6]);
        assert_eq!(cells(text)[..2], [["a", "b", "c;d"], ["1", "two\r\nlines", "say \"hi\""]]);
        assert_eq!(cells(text)[2], ["", "", ""]);
        assert_eq!(cells(text)[3], ["4"]);
        assert_eq!(cells(b"a\tb,c\td\n"), [["a", "b,c", "d"]]);
        assert_eq!(cells(b""), Vec::<Vec<String>>::new());
    }

    #[test]
    fn malformed_records_are_refused_alone() {
        let long = "x".repeat(IMPORT_LINE_MAX + 1);
        let text = [b"a,b\n\xff,1\n\"x\"y,2\n".as_slice(), long.as_bytes(), b"\n3,4\n\"open,5\n"].concat();
        let records = read(&text);
        let reasons: Vec<_> = records.iter().filter_map(|record| record.cells.as_ref().err()).collect();
        assert_eq!(reasons.len(), 4, "{reasons:?}");
        assert!(reasons[0].contains("UTF-8"));
        assert!(reasons[1].contains("closing quote"));
        assert!(reasons[2].contains("longer than"));
        assert!(reasons[3].contains("without an end"));
        assert_eq!((records[4].line, records[4].cells.as_deref()), (5, Ok(&["3".to_owned(), "4".to_owned()][..])));
    }

    proptest! {
        #[test]
        fn written_cells_are_read_back(
            rows in proptest::collection::vec(proptest::collection::vec("[ab,;\t\"\n\r\u{e9}]{0,6}", 2..4), 1..5),
        ) {
            let quoted = |cell: &String| format!("\"{}\"", cell.replace('"', "\"\""));
            let line = |row: &Vec<String>| row.iter().map(quoted).collect::<Vec<_>>().join(",") + "\r\n";
            let text: String = std::iter::once("x,y\n".to_owned()).chain(rows.iter().map(line)).collect();
            prop_assert_eq!(&cells(text.as_bytes())[1..], &rows[..]);
        }

        #[test]
        fn any_bytes_are_taken(bytes in any::<Vec<u8>>(), near in "[a,\"\n\r;]{0,40}") {
            let _ = (read(&bytes), read(near.as_bytes()));
        }
    }
}
