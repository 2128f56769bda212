//! The platform of a client, from its `User-Agent`: for redirect rules in the classes of Shlink, and for the visit log
//! as operating system and kind of device. Pure, without allocation.
//!
//! Versions are left out. Browsers are in [`super::user_agent_browser`].

use carom_limits::RULE_AGENT_LEN_MAX;

/// An operating system or console that a client runs on.
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
    /// Windows Phone. No class of redirect rules has it, nor the platforms behind it.
    WindowsPhone,
    /// Xbox consoles.
    Xbox,
    /// PlayStation consoles.
    PlayStation,
    /// Nintendo consoles.
    Nintendo,
    /// Tizen, on televisions and watches.
    Tizen,
    /// Kindle readers and tablets.
    Kindle,
}

impl Platform {
    /// Returns the name of the platform for people.
    pub fn name(self) -> &'static str {
        match self {
            Platform::Android => "Android",
            Platform::Ios => "iOS",
            Platform::Windows => "Windows",
            Platform::Macos => "macOS",
            Platform::Linux => "Linux",
            Platform::Chromeos => "ChromeOS",
            Platform::WindowsPhone => "Windows Phone",
            Platform::Xbox => "Xbox",
            Platform::PlayStation => "PlayStation",
            Platform::Nintendo => "Nintendo",
            Platform::Tizen => "Tizen",
            Platform::Kindle => "Kindle",
        }
    }
}

/// The kind of device that a visit came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceKind {
    /// A phone.
    Mobile,
    /// A tablet or a reader.
    Tablet,
    /// A computer.
    Desktop,
    /// A bot on any device.
    Bot,
    /// A console, a television, or an unknown device.
    Other,
}

impl DeviceKind {
    /// Returns the name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            DeviceKind::Mobile => "mobile",
            DeviceKind::Tablet => "tablet",
            DeviceKind::Desktop => "desktop",
            DeviceKind::Bot => "bot",
            DeviceKind::Other => "other",
        }
    }

    /// Returns the kind of device that a `User-Agent` names, for a client of this platform.
    pub fn of(agent: &[u8], platform: Option<Platform>, is_bot: bool) -> DeviceKind {
        if is_bot {
            return DeviceKind::Bot;
        }
        let names = |name: &[u8]| has_word(agent, name);
        match platform {
            Some(Platform::Ios) if names(b"ipad") => DeviceKind::Tablet,
            // Android tablets leave out the word of phones.
            Some(Platform::Android) if names(b"tablet") || !names(b"mobile") => DeviceKind::Tablet,
            Some(Platform::Kindle) => DeviceKind::Tablet,
            Some(Platform::Android | Platform::Ios | Platform::WindowsPhone) => DeviceKind::Mobile,
            Some(Platform::Windows | Platform::Macos | Platform::Linux | Platform::Chromeos) => DeviceKind::Desktop,
            Some(Platform::Xbox | Platform::PlayStation | Platform::Nintendo | Platform::Tizen) | None => {
                DeviceKind::Other
            }
        }
    }
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
            Device::Desktop => {
                matches!(platform, Platform::Windows | Platform::Macos | Platform::Linux | Platform::Chromeos)
            }
        }
    }
}

/// Words of a `User-Agent` with the platforms that they stand for, the decisive ones first: Windows Phone claims to be
/// Android, Android to be Linux, and iOS to be like Mac OS X.
const WORDS: [(&[u8], Platform); 18] = [
    (b"windows phone", Platform::WindowsPhone),
    (b"iemobile", Platform::WindowsPhone),
    (b"xbox", Platform::Xbox),
    (b"playstation", Platform::PlayStation),
    (b"nintendo", Platform::Nintendo),
    (b"tizen", Platform::Tizen),
    (b"kindle", Platform::Kindle),
    (b"iphone", Platform::Ios),
    (b"ipad", Platform::Ios),
    (b"ipod", Platform::Ios),
    (b"cros ", Platform::Chromeos),
    (b"android", Platform::Android),
    (b"windows", Platform::Windows),
    (b"macintosh", Platform::Macos),
    (b"mac os x", Platform::Macos),
    (b"macos", Platform::Macos),
    (b"linux", Platform::Linux),
    (b"x11", Platform::Linux),
];

/// Returns the platform that a `User-Agent` names; `None` for an unknown one. Reads at most [`RULE_AGENT_LEN_MAX`] bytes.
pub fn platform_of(agent: &[u8]) -> Option<Platform> {
    decisive(agent, &WORDS)
}

/// Returns the meaning of the first word of a table that a `User-Agent` has, whatever the place of the word. Words of the
/// table are in lower case, and begin where the previous byte is no letter or digit. Reads at most
/// [`RULE_AGENT_LEN_MAX`] bytes.
pub(super) fn decisive<T: Copy>(agent: &[u8], table: &[(&[u8], T)]) -> Option<T> {
    let agent = &agent[..agent.len().min(RULE_AGENT_LEN_MAX)];
    let mut first = table.len();
    for at in 0..agent.len() {
        // Most positions are passed at once.
        let is_start = at == 0 || !agent[at - 1].is_ascii_alphanumeric();
        if is_start && let Some(found) = word_at(&agent[at..], &table[..first]) {
            first = found;
            if first == 0 {
                break;
            }
        }
    }
    table.get(first).map(|(_, meaning)| *meaning)
}

/// Returns the place of a word that the bytes begin with.
#[inline]
fn word_at<T>(bytes: &[u8], table: &[(&[u8], T)]) -> Option<usize> {
    let letter = bytes[0] | 0x20;
    table.iter().position(|(word, _)| {
        word[0] == letter && bytes.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
    })
}

/// True if a `User-Agent` has a word, which is in lower case.
fn has_word(agent: &[u8], word: &[u8]) -> bool {
    decisive(agent, &[(word, ())]).is_some()
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
            (
                "Mozilla/5.0 (Windows Phone 10.0; Android 6.0.1; Microsoft; Lumia 950)",
                Some(Platform::WindowsPhone),
                &[],
            ),
            ("Mozilla/5.0 (Windows NT 10.0; Xbox; Xbox One) Edge/44", Some(Platform::Xbox), &[]),
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
    fn devices_are_told_apart() {
        let tablet = "Mozilla/5.0 (Linux; Android 13; SM-X906C) AppleWebKit/537.36 Chrome/112.0.0.0 Safari/537.36";
        for (agent, device) in [
            (ANDROID, DeviceKind::Mobile),
            (tablet, DeviceKind::Tablet),
            ("Mozilla/5.0 (Android 13; Tablet; rv:109.0) Gecko/118.0 Firefox/118.0", DeviceKind::Tablet),
            (IPHONE, DeviceKind::Mobile),
            ("Mozilla/5.0 (iPad; CPU OS 12_2 like Mac OS X) Mobile/15E148", DeviceKind::Tablet),
            ("Mozilla/5.0 (Windows Phone 10.0; Android 6.0.1; Microsoft; Lumia 950)", DeviceKind::Mobile),
            ("Mozilla/5.0 (X11; U; Linux armv7l like Android; en-us) Kindle/3.0+", DeviceKind::Tablet),
            ("Mozilla/5.0 (PlayStation 5/SmartTV)", DeviceKind::Other),
            (WINDOWS, DeviceKind::Desktop),
            (MAC, DeviceKind::Desktop),
            (LINUX, DeviceKind::Desktop),
            (CHROMEOS, DeviceKind::Desktop),
            ("unknown", DeviceKind::Other),
            ("", DeviceKind::Other),
        ] {
            let platform = platform_of(agent.as_bytes());
            assert_eq!(DeviceKind::of(agent.as_bytes(), platform, false), device, "{agent}");
            assert_eq!(DeviceKind::of(agent.as_bytes(), platform, true), DeviceKind::Bot);
        }
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
