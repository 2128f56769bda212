//! Country codes of ISO 3166-1, as Shlink accepts them.

/// All codes of two letters, in alphabetical order.
const CODES: &str = "ADAEAFAGAIALAMAOAQARASATAUAWAXAZBABBBDBEBFBGBHBIBJBLBMBNBOBQBRBSBTBVBWBYBZCACCCDCFCGCHCICKCLCMCNCO\
CRCUCVCWCXCYCZDEDJDKDMDODZECEEEGEHERESETFIFJFKFMFOFRGAGBGDGEGFGGGHGIGLGMGNGPGQGRGSGTGUGWGYHKHMHNHRHTHUIDIEILIMINIOIQIRIS\
ITJEJMJOJPKEKGKHKIKMKNKPKRKWKYKZLALBLCLILKLRLSLTLULVLYMAMCMDMEMFMGMHMKMLMMMNMOMPMQMRMSMTMUMVMWMXMYMZNANCNENFNGNINLNONPNR\
NUNZOMPAPEPFPGPHPKPLPMPNPRPSPTPWPYQARERORSRURWSASBSCSDSESGSHSISJSKSLSMSNSOSRSSSTSVSXSYSZTCTDTFTGTHTJTKTLTMTNTOTRTTTVTWTZ\
UAUGUMUSUYUZVAVCVEVGVIVNVUWFWSYEYTZAZMZW";

/// True if a text is the code of a country, in capital letters.
pub(super) fn is_country(text: &str) -> bool {
    text.len() == 2 && CODES.as_bytes().chunks_exact(2).any(|code| code == text.as_bytes())
}

/// Returns all codes.
pub fn all() -> impl Iterator<Item = &'static str> {
    (0..CODES.len()).step_by(2).map(|at| &CODES[at..at + 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_country_is_there_once() {
        assert_eq!(all().count(), 249);
        assert!(all().is_sorted_by(|one, next| one < next));
        assert!(all().all(is_country));
        assert!(
            ["US", "FR", "ZW", "AD", "XK", "DA", ""].map(is_country) == [true, true, true, true, false, false, false]
        );
    }
}
