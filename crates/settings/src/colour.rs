//! The accent colour of pages.

use std::fmt;

/// A colour: red, green and blue, one byte each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Colour(pub [u8; 3]);

impl Colour {
    /// Parses the form `#2f6fed`.
    pub fn parse(text: &str) -> Option<Colour> {
        let digits = text.strip_prefix('#').filter(|digits| digits.len() == 6 && digits.is_ascii())?;
        let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
        // `from_str_radix` accepts a sign, too.
        let is_plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_plain.then_some(Colour([byte(0)?, byte(2)?, byte(4)?]))
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
        let [red, green, blue] = self.0;
        write!(f, "#{red:02x}{green:02x}{blue:02x}")
    }
}
