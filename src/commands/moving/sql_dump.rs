//! Links in an SQL dump of YOURLS, as mysqldump and phpMyAdmin write it: the rows that are inserted into its table of
//! links. All other statements are skipped.

use std::io::{self, BufRead, BufReader, Read};

use serde_json::{Map, Value};

use super::shorteners::Shortener;
use super::source::{FoundLink, MovingSource};
use carom_limits::IMPORT_LINE_MAX;

/// Columns of the table, in the order in which YOURLS creates them.
const COLUMNS: [&str; 6] = ["keyword", "url", "title", "timestamp", "ip", "clicks"];

/// Rows that are read at once.
const ROWS_AT_ONCE: usize = 256;

/// A part of SQL text.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Token {
    /// A name, a keyword or a number.
    Word(String),
    /// A quoted text, or a quoted name.
    Quoted(String),
    /// A single sign.
    Sign(u8),
}

/// The links of a dump.
pub struct SqlDump<R> {
    input: BufReader<R>,
    /// A token that was read too early.
    ahead: Option<Token>,
    /// The columns of the current statement; `None` between statements.
    columns: Option<Vec<String>>,
    number: u64,
}

impl<R: Read> SqlDump<R> {
    /// Reads links from a dump.
    pub fn new(input: R) -> SqlDump<R> {
        SqlDump { input: BufReader::new(input), ahead: None, columns: None, number: 0 }
    }

    fn peek(&mut self) -> io::Result<Option<u8>> {
        Ok(self.input.fill_buf()?.first().copied())
    }

    fn byte(&mut self) -> io::Result<Option<u8>> {
        let byte = self.peek()?;
        self.input.consume(usize::from(byte.is_some()));
        Ok(byte)
    }

    fn skip_line(&mut self) -> io::Result<()> {
        while !matches!(self.byte()?, None | Some(b'\n')) {}
        Ok(())
    }

    fn skip_comment(&mut self) -> io::Result<()> {
        let mut last = 0;
        while let Some(byte) = self.byte()? {
            if (last, byte) == (b'*', b'/') {
                break;
            }
            last = byte;
        }
        Ok(())
    }

    fn token(&mut self) -> io::Result<Option<Token>> {
        if let Some(token) = self.ahead.take() {
            return Ok(Some(token));
        }
        loop {
            let Some(byte) = self.byte()? else { return Ok(None) };
            match byte {
                _ if byte.is_ascii_whitespace() => {}
                b'#' => self.skip_line()?,
                b'-' if self.peek()? == Some(b'-') => self.skip_line()?,
                b'/' if self.peek()? == Some(b'*') => {
                    self.byte()?;
                    self.skip_comment()?;
                }
                b'\'' | b'"' | b'`' => return self.quoted(byte).map(Some),
                _ if is_of_word(byte) => {
                    let mut word = vec![byte];
                    while let Some(byte) = self.peek()?.filter(|byte| is_of_word(*byte)) {
                        self.byte()?;
                        keep(&mut word, byte)?;
                    }
                    return Ok(Some(Token::Word(String::from_utf8_lossy(&word).into_owned())));
                }
                sign => return Ok(Some(Token::Sign(sign))),
            }
        }
    }

    /// Reads the rest of a quoted text.
    fn quoted(&mut self, quote: u8) -> io::Result<Token> {
        let mut text = Vec::new();
        loop {
            let Some(byte) = self.byte()? else { return Err(io::Error::other("a quoted text has no end")) };
            match byte {
                b'\\' if quote != b'`' => {
                    let escaped = self.byte()?.unwrap_or(b'\\');
                    let meant = match escaped {
                        b'0' => 0,
                        b'b' => 8,
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'Z' => 26,
                        other => other,
                    };
                    keep(&mut text, meant)?;
                }
                _ if byte == quote && self.peek()? == Some(quote) => {
                    self.byte()?;
                    keep(&mut text, quote)?;
                }
                _ if byte == quote => return Ok(Token::Quoted(String::from_utf8_lossy(&text).into_owned())),
                _ => keep(&mut text, byte)?,
            }
        }
    }

    /// Finds the next statement that inserts links, and returns its columns.
    fn next_insert(&mut self) -> io::Result<Option<Vec<String>>> {
        while let Some(token) = self.token()? {
            if !is_word(&token, "INSERT") {
                continue;
            }
            let mut names = Vec::new();
            loop {
                match self.token()? {
                    None => return Ok(None),
                    Some(token) if is_word(&token, "VALUES") => break,
                    // Stands between a schema and a table.
                    Some(Token::Word(dot)) if dot == "." => {}
                    Some(Token::Word(name) | Token::Quoted(name)) => names.push(name.to_lowercase()),
                    Some(Token::Sign(b';')) => {
                        names.clear();
                        break;
                    }
                    Some(Token::Sign(_)) => {}
                }
            }
            // INTO and its like come before the name of the table, which may have a prefix and a schema.
            let table = names.iter().position(|name| !["into", "ignore", "or", "replace"].contains(&name.as_str()));
            let Some(at) = table else { continue };
            let mut columns: Vec<String> = names.split_off(at);
            let is_links = |name: &String| name.ends_with("url") && !COLUMNS.contains(&name.as_str());
            let Some(at) = columns.iter().position(is_links).filter(|at| *at <= 1) else { continue };
            columns.drain(..=at);
            let plain = || COLUMNS.iter().map(|name| (*name).to_owned()).collect();
            return Ok(Some(if columns.is_empty() { plain() } else { columns }));
        }
        Ok(None)
    }

    /// Reads the next row of a statement; `None` at its end.
    fn row(&mut self) -> io::Result<Option<Vec<Value>>> {
        loop {
            match self.token()? {
                Some(Token::Sign(b'(')) => break,
                Some(Token::Sign(b',')) => {}
                _ => return Ok(None),
            }
        }
        let mut cells = Vec::new();
        let mut cell = Value::Null;
        loop {
            match self.token()? {
                None => return Err(io::Error::other("the last row has no end")),
                Some(Token::Sign(sign @ (b',' | b')'))) => {
                    cells.push(std::mem::take(&mut cell));
                    if sign == b')' {
                        return Ok(Some(cells));
                    }
                }
                Some(Token::Quoted(text)) => cell = Value::String(text),
                Some(Token::Word(word)) if word.eq_ignore_ascii_case("NULL") => cell = Value::Null,
                Some(Token::Word(word)) => cell = Value::String(word),
                Some(Token::Sign(_)) => {}
            }
        }
    }

    fn rows(&mut self) -> io::Result<Vec<Value>> {
        let mut rows = Vec::new();
        while rows.len() < ROWS_AT_ONCE {
            let columns = match self.columns.take() {
                Some(columns) => columns,
                None => match self.next_insert()? {
                    Some(columns) => columns,
                    None => break,
                },
            };
            let Some(cells) = self.row()? else { continue };
            let fields: Map<String, Value> = columns.iter().cloned().zip(cells).collect();
            rows.push(Value::Object(fields));
            self.columns = Some(columns);
        }
        Ok(rows)
    }
}

impl<R: Read + Send> MovingSource for SqlDump<R> {
    fn next(&mut self) -> Result<Option<Vec<FoundLink>>, String> {
        let rows = self.rows().map_err(|error| format!("the dump cannot be read: {error}"))?;
        let mut links = Vec::with_capacity(rows.len());
        for row in &rows {
            links.append(&mut Shortener::Yourls.links_of(row, &mut self.number));
        }
        Ok(if links.is_empty() { None } else { Some(links) })
    }

    fn remark(&self) -> Option<String> {
        (self.number == 0)
            .then(|| "the dump has no rows of a table whose name ends with url, such as yourls_url".to_owned())
    }
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_.$@:+-".contains(&byte) || !byte.is_ascii()
}

fn is_word(token: &Token, word: &str) -> bool {
    matches!(token, Token::Word(text) if text.eq_ignore_ascii_case(word))
}

fn keep(text: &mut Vec<u8>, byte: u8) -> io::Result<()> {
    if text.len() == IMPORT_LINE_MAX {
        return Err(io::Error::other(format!("a text is longer than {IMPORT_LINE_MAX} bytes")));
    }
    text.push(byte);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::moving::moved_link::MovedLink;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Vec<Result<MovedLink, String>>, String> {
        let mut dump = SqlDump::new(text.as_bytes());
        let mut all = Vec::new();
        while let Some(links) = dump.next()? {
            all.extend(links.into_iter().map(|found| found.link));
        }
        Ok(all)
    }

    #[test]
    fn rows_of_the_table_of_links_are_read() {
        let dump = r"-- MySQL dump 10.19; INSERT INTO `yourls_url` VALUES ('no','no');
/*!40101 SET NAMES utf8mb4 */;
CREATE TABLE `yourls_url` (`keyword` varchar(100) NOT NULL, `url` text, PRIMARY KEY (`keyword`));
INSERT INTO `yourls_options` VALUES (1,'version','1.9;2'),(2,'it''s','(x');
INSERT INTO `yourls_url` VALUES ('abc','https://example.org/?a=1,2','O\'Brien (x)','2026-01-02 03:04:05','127.0.0.1',7),
 ('def','https://example.org/2',NULL,'2026-01-02 03:04:06','::1',0);
INSERT INTO `db`.`my_url` (`clicks`, `keyword`, `url`) VALUES
(3, 'ghi', 'http://example.org/'), (-1, 'jkl', 'http://example.org/');
UNLOCK TABLES;";
        let links = read(dump).unwrap();
        let abc = links[0].clone().unwrap();
        assert_eq!((abc.slug.as_str(), abc.title.as_deref(), abc.visits), ("abc", Some("O'Brien (x)"), Some((7, 0))));
        assert_eq!((abc.long_url.as_str(), abc.created_ms), ("https://example.org/?a=1,2", Some(1_767_323_045_000)));
        assert_eq!(links[1].clone().unwrap().title, None);
        assert_eq!(links[2].clone().unwrap().visits, Some((3, 0)));
        assert!(links.len() == 4, "{links:?}");
        assert!(links[3].clone().unwrap_err().contains("clicks"), "{links:?}");
    }

    #[test]
    fn broken_dumps_say_so() {
        assert!(read("INSERT INTO yourls_url VALUES ('abc").unwrap_err().contains("no end"));
        assert!(read("INSERT INTO yourls_url VALUES ('abc',").unwrap_err().contains("no end"));
        assert_eq!(read("SELECT 1;"), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn any_text_is_taken(text in "(INSERT INTO |yourls_url|VALUES|[(),;'`\"\\\\ a0-]){0,40}") {
            let _ = read(&text);
        }
    }
}
