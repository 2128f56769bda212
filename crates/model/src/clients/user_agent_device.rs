//! The platform of a client, from its `User-Agent`, in the classes of Shlink. Pure, without allocation.
//!
//! It tells what redirect rules need. Versions and browsers are left out.

use carom_limits::RULE_AGENT_LEN_MAX;

/// An operating system that a client runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Platform {
    /// Android, on phones and tablets.
    Android,
    /// iOS, on iPhones, iPods and iPads. Since iPadOS 13, iPads claim to be Macs.
    Ios,
    /// Windows on computers.
    Windows,
    /// macOS.
    Macos,
    /// Linux on computers.
    Linux,
    /// ChromeOS.
    Chromeos,
}

/// A class of devices that a condition can name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Device {
    /// Clients on Android.
    Android,
    /// Clients on iOS.
    Ios,
    /// Clients on Android or iOS.
    Mobile,
    /// Clients on Windows.
    Windows,
    /// Clients on macOS.
    Macos,
    /// Clients on Linux.
    Linux,
    /// Clients on ChromeOS.
    Chromeos,
    /// Clients on Windows, macOS, Linux or ChromeOS.
    Desktop,
}

impl Device {
    /// All classes with their names in the API.
    pub const ALL: [(Device, &'static str); 8] = [
        (Device::Android, "android"),
        (Device::Ios, "ios"),
        (Device::Mobile, "mobile"),
        (Device::Windows, "windows"),
        (Device::Macos, "macos"),
        (Device::Linux, "linux"),
        (Device::Chromeos, "chromeos"),
        (Device::Desktop, "desktop"),
    ];

    /// Returns the class of a name; `None` for any other text.
    pub fn named(name: &str) -> Option<Device> {
        Self::ALL.into_iter().find(|(_, of)| *of == name).map(|(device, _)| device)
    }

    /// True if devices with this platform belong to the class.
    pub fn has(self, platform: Platform) -> bool {
        match self {
            Device::Android => platform == Platform::Android,
            Device::Ios => platform == Platform::Ios,
            Device::Mobile => matches!(platform, Platform::Android | Platform::Ios),
            Device::Windows => platform == Platform::Windows,
            Device::Macos => platform == Platform::Macos,
            Device::Linux => platform == Platform::Linux,
            Device::Chromeos => platform == Platform::Chromeos,
            Device::Desktop => !matches!(platform, Platform::Android | Platform::Ios),
        }
    }
}

/// Words of a `User-Agent` with what they stand for, the decisive ones first: Windows Phone claims to be Android,
/// Android to be Linux, and iOS to be like Mac OS X. `None` is a platform that belongs to no class.
const WORDS: [(&[u8], Option<Platform>); 18] = [
    (b"windows phone", None),
    (b"iemobile", None),
    (b"xbox", None),
    (b"playstation", None),
    (b"nintendo", None),
    (b"tizen", None),
    (b"kindle", None),
    (b"iphone", Some(Platform::Ios)),
    (b"ipad", Some(Platform::Ios)),
    (b"ipod", Some(Platform::Ios)),
    (b"cros ", Some(Platform::Chromeos)),
    (b"android", Some(Platform::Android)),
    (b"windows", Some(Platform::Windows)),
    (b"macintosh", Some(Platform::Macos)),
    (b"mac os x", Some(Platform::Macos)),
    (b"macos", Some(Platform::Macos)),
    (b"linux", Some(Platform::Linux)),
    (b"x11", Some(Platform::Linux)),
];

/// Returns the platform that a `User-Agent` names; `None` for bots, consoles and unknown ones. Reads at most
/// [`RULE_AGENT_LEN_MAX`] bytes.
pub fn platform_of(agent: &[u8]) -> Option<Platform> {
    let agent = &agent[..agent.len().min(RULE_AGENT_LEN_MAX)];
    let mut first = WORDS.len();
    for at in 0..agent.len() {
        // A word begins where the previous byte is no letter or digit, so most positions are passed at once.
        let is_start = at == 0 || !agent[at - 1].is_ascii_alphanumeric();
        if is_start && let Some(found) = word_at(&agent[at..], first) {
            first = found;
            WORDS[first].1?;
        }
    }
    WORDS.get(first).and_then(|(_, platform)| *platform)
}

/// Returns the place in [`WORDS`], before `end`, of a word that the bytes begin with.
#[inline]
fn word_at(bytes: &[u8], end: usize) -> Option<usize> {
    let letter = bytes[0] | 0x20;
    WORDS[..end].iter().position(|(word, _)| {
        word[0] == letter && bytes.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ANDROID: &str = "Mozilla/5.0 (Linux; Android 13; SM-S908B) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/112.0.0.0 Mobile Safari/537.36";
    const IPHONE: &str = "Mozilla/5.0 (iPhone; CPU iPhone OS 16_4 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/16.4 Mobile/15E148 Safari/604.1";
    const WINDOWS: &str = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36 Edg/120.0";
    const MAC: &str = "Mozilla/5.0 (Macintosh; Intel Mac OS X 13_3) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/16.4 Safari/605.1.15";
    const LINUX: &str = "Mozilla/5.0 (X11; Ubuntu; Linux x86_64; rv:120.0) Gecko/20100101 Firefox/120.0";
    const CHROMEOS: &str = "Mozilla/5.0 (X11; CrOS x86_64 14541.0.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36";

    #[test]
    fn every_platform_has_its_classes() {
        for (agent, platform, classes) in [
            (ANDROID, Some(Platform::Android), &["android", "mobile"][..]),
            (IPHONE, Some(Platform::Ios), &["ios", "mobile"]),
            ("Mozilla/5.0 (iPad; CPU OS 12_2 like Mac OS X)", Some(Platform::Ios), &["ios", "mobile"]),
            (WINDOWS, Some(Platform::Windows), &["windows", "desktop"]),
            (MAC, Some(Platform::Macos), &["macos", "desktop"]),
            (LINUX, Some(Platform::Linux), &["linux", "desktop"]),
            (CHROMEOS, Some(Platform::Chromeos), &["chromeos", "desktop"]),
            ("Mozilla/5.0 (Windows Phone 10.0; Android 6.0.1; Microsoft; Lumia 950)", None, &[]),
            ("Mozilla/5.0 (Windows NT 10.0; Xbox; Xbox One) Edge/44", None, &[]),
            ("Googlebot/2.1 (+http://www.google.com/bot.html)", None, &[]),
            ("unknown", None, &[]),
            ("", None, &[]),
        ] {
            assert_eq!(platform_of(agent.as_bytes()), platform, "{agent}");
            let of = |(device, name): (Device, _)| platform.is_some_and(|of| device.has(of)).then_some(name);
            assert_eq!(Device::ALL.into_iter().filter_map(of).collect::<Vec<_>>(), classes, "{agent}");
            assert_eq!(platform_of(agent.to_uppercase().as_bytes()), platform, "{agent}");
        }
        assert_eq!((Device::named("ios"), Device::named("IOS")), (Some(Device::Ios), None));
    }

    #[test]
    fn a_long_agent_is_read_to_the_limit() {
        let late = format!("{}Android", " ".repeat(RULE_AGENT_LEN_MAX));
        assert_eq!(platform_of(late.as_bytes()), None);
        assert_eq!(platform_of(format!("Android {}", "x".repeat(8_192)).as_bytes()), Some(Platform::Android));
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_platform_or_none(agent in any::<Vec<u8>>()) {
            let _ = platform_of(&agent);
        }
    }
}
