// Countries: their codes of ISO 3166-1, as the node accepts them, and their names in English.

const CODES = "ADAEAFAGAIALAMAOAQARASATAUAWAXAZBABBBDBEBFBGBHBIBJBLBMBNBOBQBRBSBTBVBWBYBZCACCCDCFCGCHCICKCLCMCNCOCRCUCVCWCXCYCZDEDJDKDMDODZECEEEGEHERESETFIFJFKFMFOFRGAGBGDGEGFGGGHGIGLGMGNGPGQGRGSGTGUGWGYHKHMHNHRHTHUIDIEILIMINIOIQIRISITJEJMJOJPKEKGKHKIKMKNKPKRKWKYKZLALBLCLILKLRLSLTLULVLYMAMCMDMEMFMGMHMKMLMMMNMOMPMQMRMSMTMUMVMWMXMYMZNANCNENFNGNINLNONPNRNUNZOMPAPEPFPGPHPKPLPMPNPRPSPTPWPYQARERORSRURWSASBSCSDSESGSHSISJSKSLSMSNSOSRSSSTSVSXSYSZTCTDTFTGTHTJTKTLTMTNTOTRTTTVTWTZUAUGUMUSUYUZVAVCVEVGVIVNVUWFWSYEYTZAZMZW";

const names = new Intl.DisplayNames(["en"], { type: "region" });

/** The name of a country; a code that the browser does not know stays a code. */
export function countryName(code) {
  try {
    return names.of(code);
  } catch {
    return code;
  }
}

let choices;

/** All countries as `[code, name]`, by name. */
export function countryChoices() {
  choices ??= CODES.match(/../g).map((code) => [code, countryName(code)]).sort(([, one], [, other]) => one.localeCompare(other, "en"));
  return choices;
}
