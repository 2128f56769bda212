//! The accent colour of pages.

use std::fmt;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};

/// A colour: red, green and blue, one byte each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Colour(pub [u8; 3]);

impl Colour {
    /// Parses the form `#2f6fed`.
    pub fn parse(text: &str) -> Option<Colour> {
        let bytes = HEXLOWER_PERMISSIVE.decode(text.strip_prefix('#')?.as_bytes()).ok()?;
        bytes.try_into().ok().map(Colour)
    }

    /// True if white text on the colour is more legible than black, by the relative luminance of WCAG 2.
    pub fn is_dark(self) -> bool {
        let linear = |byte: u8| {
            let share = f64::from(byte) / 255.0;
            if share <= 0.040_45 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
        };
        let [red, green, blue] = self.0.map(linear);
        let luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
        1.05 / (luminance + 0.05) >= (luminance + 0.05) / 0.05
    }
}

impl fmt::Display for Colour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", HEXLOWER.encode_display(&self.0))
    }
}
