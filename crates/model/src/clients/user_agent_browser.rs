//! The browser of a client, from its `User-Agent`. Pure, without allocation.

use super::user_agent_device::{Platform, decisive, platform_of};

/// Words of a `User-Agent` with the browsers that they stand for, the decisive ones first. A browser also names the
/// browsers whose pages it wants to get: most browsers claim to be Chrome, and every one that does also claims to be
/// Safari.
const WORDS: [(&[u8], &str); 34] = [
    (b"fban/", "Facebook"),
    (b"fbav/", "Facebook"),
    (b"fb_iab/", "Facebook"),
    (b"instagram ", "Instagram"),
    (b"micromessenger/", "WeChat"),
    (b"line/", "LINE"),
    (b"snapchat/", "Snapchat"),
    (b"edg/", "Edge"),
    (b"edga/", "Edge"),
    (b"edgios/", "Edge"),
    (b"edge/", "Edge"),
    (b"opr/", "Opera"),
    (b"opt/", "Opera"),
    (b"opx/", "Opera"),
    (b"opera", "Opera"),
    (b"opios/", "Opera"),
    (b"samsungbrowser/", "Samsung Internet"),
    (b"vivaldi/", "Vivaldi"),
    (b"yabrowser/", "Yandex"),
    (b"ucbrowser/", "UC Browser"),
    (b"duckduckgo/", "DuckDuckGo"),
    (b"ddg/", "DuckDuckGo"),
    (b"miuibrowser/", "Mi Browser"),
    (b"huaweibrowser/", "Huawei Browser"),
    (b"silk/", "Silk"),
    (b"seamonkey/", "SeaMonkey"),
    (b"fxios/", "Firefox"),
    (b"firefox/", "Firefox"),
    (b"crios/", "Chrome"),
    (b"chromium/", "Chrome"),
    (b"chrome/", "Chrome"),
    (b"msie ", "Internet Explorer"),
    (b"trident/", "Internet Explorer"),
    (b"safari/", "Safari"),
];

/// Returns the browser that a `User-Agent` names; `None` for an unknown one. Reads as many bytes as
/// [`platform_of`](super::user_agent_device::platform_of).
pub fn browser_of(agent: &[u8]) -> Option<&'static str> {
    decisive(agent, &WORDS)
}

/// A browser that a condition of redirect rules can name, as in Shlink.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleBrowser {
    /// Chrome, on any device.
    Chrome,
    /// Firefox, on any device.
    Firefox,
    /// Edge, on any device.
    Edge,
    /// Safari.
    Safari,
    /// Opera, on any device.
    Opera,
    /// The browser that Android had before Chrome.
    AndroidBrowser,
}

impl RuleBrowser {
    /// All browsers with their names in the API.
    pub const ALL: [(RuleBrowser, &'static str); 6] = [
        (RuleBrowser::Chrome, "chrome"),
        (RuleBrowser::Firefox, "firefox"),
        (RuleBrowser::Edge, "edge"),
        (RuleBrowser::Safari, "safari"),
        (RuleBrowser::Opera, "opera"),
        (RuleBrowser::AndroidBrowser, "android_browser"),
    ];

    /// Returns the browser of a name; `None` for any other text.
    pub fn named(name: &str) -> Option<RuleBrowser> {
        Self::ALL.into_iter().find(|(_, of)| *of == name).map(|(browser, _)| browser)
    }

    /// Returns the browser that a `User-Agent` names; `None` for a browser that no condition can name.
    pub fn of(agent: &[u8]) -> Option<RuleBrowser> {
        match browser_of(agent)? {
            "Chrome" => Some(RuleBrowser::Chrome),
            "Firefox" => Some(RuleBrowser::Firefox),
            "Edge" => Some(RuleBrowser::Edge),
            "Opera" => Some(RuleBrowser::Opera),
            // Safari exists on Apple's devices alone, but the browser of Android took its name.
            "Safari" if platform_of(agent) == Some(Platform::Android) => Some(RuleBrowser::AndroidBrowser),
            "Safari" => Some(RuleBrowser::Safari),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_can_name_six_browsers() {
        for (agent, browser) in [
            ("Mozilla/5.0 (X11; Linux x86_64) Chrome/142.0.0.0 Safari/537.36", Some("chrome")),
            ("Mozilla/5.0 (iPhone) AppleWebKit/605.1.15 CriOS/120.0 Mobile/15E148 Safari/604.1", Some("chrome")),
            ("Mozilla/5.0 (X11; Ubuntu; Linux x86_64; rv:120.0) Gecko/20100101 Firefox/120.0", Some("firefox")),
            ("Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/120.0.0.0 Safari/537.36 Edg/120.0", Some("edge")),
            ("Mozilla/5.0 (Macintosh; Intel Mac OS X 13_3) Version/16.4 Safari/605.1.15", Some("safari")),
            ("Mozilla/5.0 (Windows NT 10.0) Chrome/120.0.0.0 Safari/537.36 OPR/105.0", Some("opera")),
            (
                "Mozilla/5.0 (Linux; U; Android 4.0.3; en-us) AppleWebKit/534.30 Version/4.0 Mobile Safari/534.30",
                Some("android_browser"),
            ),
            ("Mozilla/5.0 (Linux; Android 13) SamsungBrowser/23.0 Chrome/115.0.0.0 Mobile Safari/537.36", None),
            ("Googlebot/2.1 (+http://www.google.com/bot.html)", None),
            ("curl/8.5.0", None),
            ("", None),
        ] {
            assert_eq!(RuleBrowser::of(agent.as_bytes()), browser.and_then(RuleBrowser::named), "{agent}");
        }
        for (browser, name) in RuleBrowser::ALL {
            assert_eq!(RuleBrowser::named(name), Some(browser));
        }
        assert_eq!((RuleBrowser::named("Chrome"), RuleBrowser::named("")), (None, None));
    }

    #[test]
    fn browsers_are_told_apart() {
        for (agent, browser) in [
            (
                "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36",
                Some("Chrome"),
            ),
            ("Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/120.0.0.0 Safari/537.36 Edg/120.0", Some("Edge")),
            ("Mozilla/5.0 (Windows NT 10.0) Chrome/120.0.0.0 Safari/537.36 OPR/105.0", Some("Opera")),
            ("Opera/9.80 (Windows NT 6.1) Presto/2.12.388 Version/12.18", Some("Opera")),
            ("Mozilla/5.0 (X11; Ubuntu; Linux x86_64; rv:120.0) Gecko/20100101 Firefox/120.0", Some("Firefox")),
            ("Mozilla/5.0 (iPhone) AppleWebKit/605.1.15 FxiOS/120.0 Mobile/15E148 Safari/605.1.15", Some("Firefox")),
            ("Mozilla/5.0 (iPhone) AppleWebKit/605.1.15 CriOS/120.0 Mobile/15E148 Safari/604.1", Some("Chrome")),
            ("Mozilla/5.0 (Macintosh; Intel Mac OS X 13_3) Version/16.4 Safari/605.1.15", Some("Safari")),
            (
                "Mozilla/5.0 (Linux; Android 13) SamsungBrowser/23.0 Chrome/115.0.0.0 Mobile Safari/537.36",
                Some("Samsung Internet"),
            ),
            ("Mozilla/5.0 (iPhone) Mobile/15E148 [FBAN/FBIOS;FBAV/441.0]", Some("Facebook")),
            ("Mozilla/5.0 (Windows NT 6.1; Trident/7.0; rv:11.0) like Gecko", Some("Internet Explorer")),
            ("curl/8.5.0", None),
            ("Googlebot/2.1 (+http://www.google.com/bot.html)", None),
            ("", None),
        ] {
            assert_eq!(browser_of(agent.as_bytes()), browser, "{agent}");
            assert_eq!(browser_of(agent.to_uppercase().as_bytes()), browser, "{agent}");
        }
        // A platform is no browser, and the name of another browser counts from the start of a word on.
        assert_eq!(browser_of(b"NotFirefox/1.0"), None);
        assert_eq!(browser_of(format!("{}Firefox/1", "x ".repeat(4_096)).as_bytes()), None);
    }
}
