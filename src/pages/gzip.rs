//! Gzip for style sheets and scripts, which browsers load often.
//!
//! Only texts that are the same for everyone are packed. The packed length of a page would reveal parts of its secrets to
//! someone who can add text to the page and watch the connection.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

/// Returns a text packed with gzip. It takes some milliseconds for 100 KB.
pub fn pack(text: &str) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(text.as_bytes()).expect("memory takes every byte");
    packed.finish().expect("memory takes every byte")
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    #[test]
    fn packed_texts_are_smaller_and_whole() {
        let text = "a { color: red; }\n".repeat(100);
        let packed = pack(&text);
        let mut unpacked = String::new();
        GzDecoder::new(&*packed).read_to_string(&mut unpacked).unwrap();
        assert_eq!(unpacked, text);
        assert!(packed.len() < text.len() / 4, "{} bytes", packed.len());
    }
}
