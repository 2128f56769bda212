//! QR codes (ISO/IEC 18004) as images: SVG for screens and print, PNG for everything else. The thread for images
//! renders them, since rendering would block a core for too long.

use std::fmt::Write;

use qrcodegen::{QrCode, QrCodeEcc};

/// Modules of white around a code, as scanners need it (ISO/IEC 18004, section 6.3.8).
const QUIET_MODULES: u32 = 4;

/// Error correction level: the part of a code that may be unreadable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Correction {
    /// 7 %, the smallest code.
    Low,
    /// 15 %
    Medium,
    /// 25 %
    Quartile,
    /// 30 %: for a logo in the middle, or paper that gets dirty.
    High,
}

impl Correction {
    /// Parses the letter of a level: L, M, Q or H.
    pub fn of_letter(letter: &str) -> Option<Correction> {
        Some(match letter {
            "L" | "l" => Correction::Low,
            "M" | "m" => Correction::Medium,
            "Q" | "q" => Correction::Quartile,
            "H" | "h" => Correction::High,
            _ => return None,
        })
    }

    fn level(self) -> QrCodeEcc {
        match self {
            Correction::Low => QrCodeEcc::Low,
            Correction::Medium => QrCodeEcc::Medium,
            Correction::Quartile => QrCodeEcc::Quartile,
            Correction::High => QrCodeEcc::High,
        }
    }
}

/// The size and error correction of an image.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Drawing {
    /// Width and height of the code in pixels, without its margin.
    pub size: u32,
    /// White margin on each side in pixels; `None` for the standard one.
    pub margin: Option<u32>,
    /// The error correction level.
    pub correction: Correction,
}

/// A code as a square grid of dark and light modules.
struct Grid {
    code: QrCode,
    /// Modules on each side.
    modules: u32,
}

impl Grid {
    /// Encodes a text; `None` if it is too long for a QR code.
    fn of(text: &str, correction: Correction) -> Option<Grid> {
        let code = QrCode::encode_text(text, correction.level()).ok()?;
        let modules = code.size() as u32;
        Some(Grid { code, modules })
    }

    fn is_dark(&self, x: u32, y: u32) -> bool {
        self.code.get_module(x as i32, y as i32)
    }
}

/// Draws a text as SVG; `None` if it is too long for a QR code.
pub fn svg(text: &str, drawing: Drawing) -> Option<String> {
    let grid = Grid::of(text, drawing.correction)?;
    // In units of modules, which stay whole at any size.
    let scale = f64::from(drawing.size) / f64::from(grid.modules);
    let margin = drawing.margin.map_or(f64::from(QUIET_MODULES), |pixels| f64::from(pixels) / scale);
    let (side, pixels) = (f64::from(grid.modules) + 2.0 * margin, f64::from(drawing.size) + 2.0 * margin * scale);
    let mut path = String::new();
    for y in 0..grid.modules {
        let mut x = 0;
        while x < grid.modules {
            let run = (x..grid.modules).take_while(|&x| grid.is_dark(x, y)).count() as u32;
            if run > 0 {
                let _ = write!(path, "M{x} {y}h{run}v1h-{run}z");
            }
            x += run.max(1);
        }
    }
    Some(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{pixels:.0}\" height=\"{pixels:.0}\" viewBox=\"{0:.3} {0:.3} {side:.3} {side:.3}\" \
         shape-rendering=\"crispEdges\"><path fill=\"#fff\" d=\"M{0:.3} {0:.3}h{side:.3}v{side:.3}h-{side:.3}z\"/><path d=\"{path}\"/></svg>\n",
        -margin
    ))
}

/// Draws a text as PNG; `None` if it is too long for a QR code. The image has the requested size, unless the code has
/// more modules than that has pixels. All modules have the same size, and leftover pixels are white.
pub fn png(text: &str, drawing: Drawing) -> Option<Vec<u8>> {
    let grid = Grid::of(text, drawing.correction)?;
    let scale = (drawing.size / grid.modules).max(1);
    let margin = drawing.margin.unwrap_or(QUIET_MODULES * scale);
    let drawn = scale * grid.modules;
    let side = drawing.size.max(drawn) + 2 * margin;
    let before = (side - drawn) / 2;
    let row_len = side.div_ceil(8) as usize;
    // One bit for each pixel; 1 is white.
    let mut pixels = vec![0xff; row_len * side as usize];
    let mut row = vec![0xff; row_len];
    for module in 0..grid.modules {
        row.fill(0xff);
        for x in (before..before + drawn).filter(|&x| grid.is_dark((x - before) / scale, module)) {
            row[x as usize / 8] &= !(0x80 >> (x % 8));
        }
        // The pixel rows of a row of modules are identical.
        let first = (before + module * scale) as usize * row_len;
        pixels[first..first + scale as usize * row_len].chunks_mut(row_len).for_each(|copy| copy.copy_from_slice(&row));
    }
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, side, side);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::One);
    // As differences from the row above, most bytes are 0, which saves time and space.
    encoder.set_compression(png::Compression::Fast);
    encoder.set_filter(png::Filter::Up);
    let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(&pixels));
    written.expect("memory takes every picture");
    Some(bytes)
}

/// Draws a text for a terminal, two rows of modules in each line; `None` if it is too long for a QR code. With colours,
/// the code is black on white. Without, light modules are drawn, since most terminals write bright on dark.
pub fn terminal(text: &str, has_colours: bool) -> Option<String> {
    let grid = Grid::of(text, Correction::Low)?;
    let side = grid.modules + 2 * QUIET_MODULES;
    let within = |at: u32| at.checked_sub(QUIET_MODULES).filter(|at| *at < grid.modules);
    let is_light = |x: u32, y: u32| match (within(x), within(y)) {
        (Some(x), Some(y)) => !grid.is_dark(x, y),
        _ => y < side,
    };
    let mut drawn = String::new();
    for y in (0..side).step_by(2) {
        drawn.push_str(if has_colours { "\x1b[97;40m" } else { "" });
        for x in 0..side {
            drawn.push(match (is_light(x, y), is_light(x, y + 1)) {
                (true, true) => '█',
                (true, false) => '▀',
                (false, true) => '▄',
                (false, false) => ' ',
            });
        }
        drawn.push_str(if has_colours { "\x1b[0m\n" } else { "\n" });
    }
    Some(drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://go.example/EKyEUwU";

    fn drawing(size: u32, margin: Option<u32>) -> Drawing {
        Drawing { size, margin, correction: Correction::Medium }
    }

    /// Decodes a PNG to its pixels by rows; true is dark.
    fn decoded(bytes: &[u8]) -> Vec<Vec<bool>> {
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        let row = |y: u32| {
            let row = &pixels[y as usize * info.line_size..][..info.line_size];
            (0..info.width).map(|x| row[x as usize / 8] & (0x80 >> (x % 8)) == 0).collect()
        };
        (0..info.height).map(row).collect()
    }

    #[test]
    fn a_picture_has_the_size_that_was_asked_for_and_the_modules_of_the_code() {
        for (size, margin, side) in [(300, Some(0), 300), (300, Some(10), 320), (100, None, 132), (1, Some(0), 25)] {
            let pixels = decoded(&png(URL, drawing(size, margin)).unwrap());
            assert!(pixels.len() == side, "{size} {margin:?}");
            assert!(pixels.iter().all(|row| row.len() == side), "{size} {margin:?}");
            let grid = Grid::of(URL, Correction::Medium).unwrap();
            let scale = (size / grid.modules).max(1) as usize;
            let before = (side - scale * grid.modules as usize) / 2;
            for y in 0..grid.modules {
                for x in 0..grid.modules {
                    let middle = |module: u32| before + module as usize * scale + scale / 2;
                    assert_eq!(pixels[middle(y)][middle(x)], grid.is_dark(x, y), "{x} {y}");
                }
            }
            assert!(pixels[..before].iter().flatten().all(|dark| !dark));
        }
    }

    #[test]
    fn the_svg_draws_the_same_modules() {
        let grid = Grid::of(URL, Correction::Medium).unwrap();
        let drawn = svg(URL, drawing(300, None)).unwrap();
        assert!(drawn.starts_with("<svg "), "{drawn}");
        assert!(drawn.contains("viewBox=\"-4.000 -4.000 33.000 33.000\""), "{drawn}");
        let mut dark = 0;
        for run in drawn.split('M').skip(2) {
            let (x, rest) = run.split_once(' ').unwrap();
            let (y, rest) = rest.split_once('h').unwrap();
            let len: u32 = rest.split_once('v').unwrap().0.parse().unwrap();
            let (x, y): (u32, u32) = (x.parse().unwrap(), y.parse().unwrap());
            assert!((x..x + len).all(|x| grid.is_dark(x, y)));
            dark += len;
        }
        let expected = (0..grid.modules * grid.modules).filter(|at| grid.is_dark(at % grid.modules, at / grid.modules));
        assert_eq!(dark as usize, expected.count());
    }

    #[test]
    fn more_correction_takes_more_modules_and_a_long_text_has_no_code() {
        let modules = |letter: &str| Grid::of(URL, Correction::of_letter(letter).unwrap()).unwrap().modules;
        assert!(modules("L") <= modules("M"));
        assert!(modules("m") <= modules("Q"));
        assert!(modules("q") < modules("H"));
        assert_eq!(Correction::of_letter("X"), None);
        assert!(svg(&"x".repeat(3_000), drawing(300, None)).is_none());
        assert!(png(&"x".repeat(3_000), drawing(300, None)).is_none());
    }

    #[test]
    fn a_terminal_shows_every_module() {
        let text = terminal(URL, false).unwrap();
        let lines: Vec<Vec<char>> = text.lines().map(|line| line.chars().collect()).collect();
        // Version 2 has 25 modules; with four of white on each side, the last line has a single row of modules.
        assert_eq!((lines.len(), lines[0].len()), (17, 33));
        assert!(lines[0].iter().chain(&lines[1]).all(|c| *c == '█'), "a margin of two lines:\n{text}");
        assert!(lines[16].iter().all(|c| *c == '▀'), "{text}");
        let grid = Grid::of(URL, Correction::Low).unwrap();
        for (x, y) in [(0_u32, 0_u32), (7, 7), (12, 13), (24, 24)] {
            let (at, upper) = (lines[(y as usize + 4) / 2][x as usize + 4], (y + 4).is_multiple_of(2));
            let is_light = at == '█' || at == if upper { '▀' } else { '▄' };
            assert_eq!(is_light, !grid.is_dark(x, y), "{x} {y}:\n{text}");
        }
        assert!(terminal(URL, true).unwrap().starts_with("\u{1b}[97;40m"));
        assert_eq!(terminal(&"x".repeat(5_000), true), None);
    }
}
