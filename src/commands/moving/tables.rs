//! Links in CSV files, with columns by name: the exports of Shlink's web client, Bitly and YOURLS, and tables that
//! people have written.

use std::io::Read;

use super::csv::{CsvReader, CsvRecord};
use super::moved_link::{MovedLink, instant, split_short_url};
use super::source::{FoundLink, MovingSource};

/// The meaning of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CsvColumn {
    LongUrl,
    Slug,
    ShortUrl,
    Domain,
    Title,
    Tags,
    Created,
    Since,
    Until,
    MaxVisits,
    Visits,
    Bots,
    Archived,
}

/// Names of columns, in lower case and without spaces, hyphens and underscores.
const NAMES: &[(CsvColumn, &[&str])] = &[
    (CsvColumn::LongUrl, &["longurl", "url", "target", "destination", "destinationurl", "originalurl", "longlink"]),
    (CsvColumn::Slug, &["shortcode", "customslug", "slug", "keyword", "address", "backhalf", "custombackhalf"]),
    (CsvColumn::ShortUrl, &["shorturl", "shortlink", "link", "bitlink", "bitlylink", "id"]),
    (CsvColumn::Domain, &["domain", "host"]),
    (CsvColumn::Title, &["title", "description"]),
    (CsvColumn::Tags, &["tags"]),
    (CsvColumn::Created, &["datecreated", "createdat", "created", "creationdate", "createddate", "timestamp", "date"]),
    (CsvColumn::Since, &["validsince", "starts", "startdate"]),
    (CsvColumn::Until, &["validuntil", "expires", "expiresat", "expirein", "expirationdate", "expiration"]),
    (CsvColumn::MaxVisits, &["maxvisits"]),
    (
        CsvColumn::Visits,
        &["visits", "visitscount", "visitcount", "clicks", "totalclicks", "engagements", "totalengagements"],
    ),
    (CsvColumn::Bots, &["botvisits", "bots"]),
    (CsvColumn::Archived, &["archived"]),
];

/// The links of a CSV file.
pub struct Table<R> {
    records: CsvReader<R>,
    columns: Option<Vec<Option<CsvColumn>>>,
    ignored: Vec<String>,
}

/// Records that are read at once.
const RECORDS_AT_ONCE: usize = 256;

impl<R: Read> Table<R> {
    /// Reads links from a file that starts with the names of its columns.
    pub fn new(input: R) -> Table<R> {
        Table { records: CsvReader::new(input), columns: None, ignored: Vec::new() }
    }

    fn record(&mut self) -> Result<Option<CsvRecord>, String> {
        self.records.read().map_err(|error| format!("the file cannot be read: {error}"))
    }

    /// Reads the names of the columns.
    fn head(&mut self) -> Result<Vec<Option<CsvColumn>>, String> {
        let Some(record) = self.record()? else { return Err("the file is empty".to_owned()) };
        let names = record.cells.map_err(|reason| format!("the first line of the file {reason}"))?;
        let mut columns: Vec<Option<CsvColumn>> = names.iter().map(|name| column_of(name)).collect();
        let has = |column| columns.contains(&Some(column));
        if !has(CsvColumn::LongUrl) || !has(CsvColumn::Slug) && !has(CsvColumn::ShortUrl) {
            return Err(format!(
                "the first line of the file has the columns {names:?}; expected the names longUrl and shortCode (or shortUrl) among them"
            ));
        }
        for at in 1..columns.len() {
            let is_second = columns[at].is_some() && columns[..at].contains(&columns[at]);
            if is_second && matches!(columns[at], Some(CsvColumn::LongUrl | CsvColumn::Slug)) {
                return Err(format!("the column {:?} means the same as another column; remove one of them", names[at]));
            }
            // Of all other columns, the first one counts.
            columns[at] = columns[at].filter(|_| !is_second);
        }
        let unknown = names.iter().zip(&columns).filter(|(_, column)| column.is_none());
        self.ignored = unknown.map(|(name, _)| name.clone()).collect();
        Ok(columns)
    }
}

impl<R: Read + Send> MovingSource for Table<R> {
    fn next(&mut self) -> Result<Option<Vec<FoundLink>>, String> {
        let columns = match self.columns.take() {
            Some(columns) => columns,
            None => self.head()?,
        };
        let mut links = Vec::new();
        while links.len() < RECORDS_AT_ONCE
            && let Some(CsvRecord { line, cells }) = self.record()?
        {
            let mut name = String::new();
            let link = cells.and_then(|cells| {
                let row = Row { columns: &columns, cells: &cells };
                name = row.text(CsvColumn::ShortUrl).or(row.text(CsvColumn::Slug)).unwrap_or_default().to_owned();
                row.link()
            });
            if let Ok(link) = &link {
                name = link.name();
            }
            links.push(FoundLink { number: line, name, link });
        }
        self.columns = Some(columns);
        Ok(if links.is_empty() { None } else { Some(links) })
    }

    fn remark(&self) -> Option<String> {
        (!self.ignored.is_empty()).then(|| format!("columns that carom does not read: {}", self.ignored.join(", ")))
    }
}

fn column_of(name: &str) -> Option<CsvColumn> {
    let plain: String = name.trim().to_lowercase().chars().filter(|sign| !" -_".contains(*sign)).collect();
    NAMES.iter().find(|(_, names)| names.contains(&&*plain)).map(|(column, _)| *column)
}

/// A record with the meaning of its cells.
struct Row<'r> {
    columns: &'r [Option<CsvColumn>],
    cells: &'r [String],
}

impl<'r> Row<'r> {
    fn text(&self, column: CsvColumn) -> Option<&'r str> {
        let at = self.columns.iter().position(|one| *one == Some(column))?;
        self.cells.get(at).map(|cell| cell.trim()).filter(|cell| !cell.is_empty())
    }

    fn date(&self, column: CsvColumn, name: &str) -> Result<Option<u64>, String> {
        self.text(column).map(|text| instant(name, text)).transpose()
    }

    fn number(&self, column: CsvColumn, name: &str) -> Result<Option<u64>, String> {
        let number = |text: &str| {
            // Spreadsheets group digits.
            let digits: String = text.chars().filter(|sign| !", '\u{a0}\u{202f}".contains(*sign)).collect();
            digits.parse().map_err(|_| format!("{name} is {text:?}; expected a whole number"))
        };
        self.text(column).map(number).transpose()
    }

    fn link(&self) -> Result<MovedLink, String> {
        let short = self.text(CsvColumn::ShortUrl);
        let split = match short.map(|url| (url, split_short_url(url))) {
            Some((url, None)) if self.text(CsvColumn::Slug).is_none() => {
                return Err(format!("the short URL is {url:?}; expected a host and a slug"));
            }
            Some((_, split)) => split,
            None => None,
        };
        let slug = self.text(CsvColumn::Slug).or(split.map(|(_, slug)| slug)).ok_or("the slug is missing")?;
        let domain = self.text(CsvColumn::Domain).or(split.map(|(host, _)| host)).map(str::to_owned);
        let tags = self.text(CsvColumn::Tags).unwrap_or_default().split(['|', ',', ';', '\n']);
        let visits = self.number(CsvColumn::Visits, "the number of visits")?;
        let bots = self.number(CsvColumn::Bots, "the number of visits by bots")?.unwrap_or_default();
        Ok(MovedLink {
            slug: slug.to_owned(),
            domain,
            long_url: self.text(CsvColumn::LongUrl).ok_or("the destination is missing")?.to_owned(),
            created_ms: self.date(CsvColumn::Created, "the creation date")?,
            since_ms: self.date(CsvColumn::Since, "the start date")?,
            until_ms: self.date(CsvColumn::Until, "the expiry date")?,
            max_visits: self.number(CsvColumn::MaxVisits, "the maximum number of visits")?,
            title: self.text(CsvColumn::Title).map(str::to_owned),
            tags: tags.map(str::trim).filter(|tag| !tag.is_empty()).map(str::to_owned).collect(),
            archived: self
                .text(CsvColumn::Archived)
                .is_some_and(|text| ["true", "yes", "1"].contains(&&*text.to_lowercase())),
            visits: visits.map(|total| (total, bots)),
            ..MovedLink::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Vec<FoundLink>, String> {
        let mut table = Table::new(text.as_bytes());
        let mut all = Vec::new();
        while let Some(mut links) = table.next()? {
            all.append(&mut links);
        }
        Ok(all)
    }

    #[test]
    fn the_export_of_the_web_client_of_shlink_is_read() {
        let text = "createdAt,domain,shortCode,shortUrl,longUrl,title,tags,visits\n\
            2026-01-02T03:04:05+00:00,go.example,sale,https://go.example/sale,\"https://example.org/?a=1,2\",Sale,a|b,12\n\
            soon,go.example,x,https://go.example/x,https://example.org/,,,\n";
        let links = read(text).unwrap();
        let sale = links[0].link.clone().unwrap();
        assert_eq!((sale.name(), sale.visits, sale.tags.len()), ("go.example/sale".to_owned(), Some((12, 0)), 2));
        assert_eq!(sale.long_url, "https://example.org/?a=1,2");
        assert_eq!((links[1].number, &*links[1].name), (3, "https://go.example/x"));
        assert!(links[1].link.clone().unwrap_err().contains("\"soon\""));
    }

    #[test]
    fn columns_are_named_in_many_ways() {
        let text = "Title\tLong URL\tBitly link\tCreated\tTotal engagements\tOwner\n\
            T\thttps://example.org/\tgo.example/a\t2026-01-02\t1,234\tme\n";
        let mut table = Table::new(text.as_bytes());
        let link = table.next().unwrap().unwrap()[0].link.clone().unwrap();
        assert_eq!((link.name(), link.visits), ("go.example/a".to_owned(), Some((1_234, 0))));
        assert!(table.remark().unwrap().contains("Owner"));
        for wrong in ["", "url,title\n", "slug,title\n", "url,longUrl,slug\n", "\"open"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_table_is_read_or_refused(text in "(url|slug|visits|created|[a,\"\n;]){0,30}") {
            let _ = read(&text);
            let _ = read(&format!("url,slug,visits\n{text}"));
        }
    }
}
