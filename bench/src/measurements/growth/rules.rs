//! The cost of redirect rules: the CPU time of a redirect of a link with rules, beside one of a link without.

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{Growth, keep_alive};
use crate::data;
use crate::results::Budget;
use crate::servers::peers;

/// Number of links.
const LINKS: u64 = 100_000;

/// Three rules that the client does not match, so a core checks all of them.
const RULES: &str = r#"[{"longUrl":"https://apps.example/","conditions":[{"type":"device","matchKey":null,"matchValue":"android"}]},{"longUrl":"https://fr.example/","conditions":[{"type":"language","matchKey":null,"matchValue":"fr"}]},{"longUrl":"https://mail.example/","conditions":[{"type":"query-param","matchKey":"via","matchValue":"mail"}]}]"#;

impl Growth<'_> {
    /// Measures a node whose links have three rules each, in turn with one whose links have none.
    pub(super) fn rules(&mut self) -> Result<()> {
        let plain = peers::carom_data(self.place, LINKS)?;
        let ruled = self.fresh("rules")?;
        let links = with_rules(&data::export(&self.place.data, LINKS)?, self.place.scratch.join("rules.ndjson"))?;
        peers::import(self.place, &ruled, &links)?;
        let cpu = self.cpus.server.to_string();
        let (without, with) = (self.carom(&plain, &cpu)?, self.carom(&ruled, &cpu)?);
        let runs = [(&without, keep_alive(64), LINKS), (&with, keep_alive(64), LINKS)];
        let micros = self.cpu_in_turn("redirect rules", &runs)?;
        drop((without, with));
        std::fs::remove_dir_all(ruled)?;
        let how = "one core, 64 connections, 100,000 links, uniform keys, at saturation";
        self.add("CPU per redirect, links without rules".to_owned(), micros[0], "µs", None, how)?;
        let with = "CPU per redirect, links with three rules".to_owned();
        self.add(with, micros[1], "µs", None, "the same; the client matches none of the rules")?;
        let budget = Some(Budget::AtMost(2.0));
        let name = "a redirect with rules by one without".to_owned();
        self.add(name, micros[1] / micros[0], "times", budget, "of the two figures above")
    }
}

/// Writes the links of a file with rules to another one, and returns it.
fn with_rules(links: &Path, ruled: PathBuf) -> Result<PathBuf> {
    let mut out = BufWriter::new(std::fs::File::create(&ruled)?);
    for line in BufReader::new(std::fs::File::open(links)?).lines() {
        let line = line?;
        let fields = line.strip_suffix('}').context("a line of the links is no JSON object")?;
        writeln!(out, "{fields},\"redirectRules\":{RULES}}}")?;
    }
    out.flush()?;
    Ok(ruled)
}
