//! Links to serve, each with a URL of about a hundred bytes that its number determines. Pure except for the files.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Number of codes of 7 digits.
const CODES: u64 = 62u64.pow(7);

/// Factor that spreads numbers over all codes: it is coprime to 62, so no two numbers have one code.
const SPREAD: u64 = 2_654_435_769_033;

const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Returns the code of a link.
pub(crate) fn code(number: u64) -> String {
    let mut value = (u128::from(number) * u128::from(SPREAD) % u128::from(CODES)) as u64;
    let mut text = [0; 7];
    for digit in text.iter_mut().rev() {
        *digit = DIGITS[(value % 62) as usize];
        value /= 62;
    }
    text.iter().map(|&digit| digit as char).collect()
}

/// Returns the destination of a link: 100 bytes.
pub(crate) fn target(number: u64) -> String {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let host = number % 10_000;
    format!(
        "https://www.shop{host:04}.example/catalogue/{mixed:016x}/item/{number:010}?ref={:012x}&language=en",
        mixed >> 16
    )
}

/// Returns a file with the first `count` links, as `carom import` and `carom-loadgen` read it. Written on first
/// use.
pub(crate) fn export(folder: &Path, count: u64) -> Result<PathBuf> {
    made_once(folder.join(format!("links-{count}.ndjson")), |out| {
        (0..count).try_for_each(|number| write_link(out, number))
    })
}

/// Returns a file with at most `most` of the first `count` links, evenly spread over them. Written on first use.
pub(crate) fn sample(folder: &Path, count: u64, most: u64) -> Result<PathBuf> {
    let step = count.div_ceil(most).max(1);
    if step == 1 {
        return export(folder, count);
    }
    made_once(folder.join(format!("links-{count}-every-{step}.ndjson")), |out| {
        (0..count).step_by(step as usize).try_for_each(|number| write_link(out, number))
    })
}

/// Writes a link as a line for `carom import`.
pub(crate) fn write_link(out: &mut impl Write, number: u64) -> Result<()> {
    let (code, target) = (code(number), target(number));
    Ok(writeln!(out, "{{\"shortCode\":\"{code}\",\"longUrl\":\"{target}\"}}")?)
}

/// Returns a map of the first `count` links for another server: a line of `/code`, a space, the destination and
/// `suffix` for each. Written on first use.
pub(crate) fn map(path: PathBuf, count: u64, suffix: &str) -> Result<PathBuf> {
    made_once(path, |out| {
        for number in 0..count {
            writeln!(out, "/{} {}{suffix}", code(number), target(number))?;
        }
        Ok(())
    })
}

fn made_once(path: PathBuf, write: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<PathBuf> {
    if path.exists() {
        return Ok(path);
    }
    let unfinished = path.with_extension("part");
    let file = File::create(&unfinished).with_context(|| format!("{} cannot be made", unfinished.display()))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    write(&mut out)?;
    out.into_inner().map_err(|error| error.into_error())?.sync_all()?;
    std::fs::rename(&unfinished, &path)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn sample_is_spread_over_all_links() {
        let folder = tempfile::tempdir().unwrap();
        let text = |path| std::fs::read_to_string(path).unwrap();
        let lines = text(sample(folder.path(), 100, 30).unwrap());
        assert_eq!(lines.lines().count(), 25);
        assert!(lines.lines().nth(24).unwrap().contains(&code(96)), "{lines}");
        assert_eq!(sample(folder.path(), 30, 30).unwrap(), export(folder.path(), 30).unwrap());
    }

    #[test]
    fn codes_differ_and_targets_have_a_hundred_bytes() {
        let codes: HashSet<String> = (0..100_000).map(code).collect();
        assert_eq!(codes.len(), 100_000);
        assert!(codes.iter().all(|code| code.len() == 7));
        assert!((0..1_000).all(|number| target(number).len() == 100), "{}", target(7).len());
    }
}
