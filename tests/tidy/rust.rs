//! Rust as the rules read it: its code without comments and texts, and the paths that it uses.

/// The room or root module that a file of the server belongs to.
pub(crate) fn room_of(path: &str) -> Option<&str> {
    let name = path.strip_prefix("src/")?.split('/').next()?.trim_end_matches(".rs");
    (name != "lib").then_some(name)
}

/// The code that is built into the product: without the module of tests at the end of a file.
pub(crate) fn product(text: &str) -> String {
    let code = code_only(text);
    let tests = code.match_indices("#[cfg(test)]").find(|(at, mark)| {
        let after = code[at + mark.len()..].trim_start().trim_start_matches("pub(crate) ");
        let brace = after.find('{');
        // `mod tests;` is a file of its own, and the code goes on after it.
        after.starts_with("mod ") && brace.is_some_and(|brace| after.find(';').is_none_or(|end| brace < end))
    });
    code[..tests.map_or(code.len(), |(at, _)| at)].to_owned()
}

/// Every path in the code with `::` in it, and every one that a `use` brings in, with groups written out.
pub(crate) fn paths(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(start) = rest.find(is_word) {
        rest = &rest[start..];
        let path_end = rest.find(|c: char| !is_word(c) && c != ':').unwrap_or(rest.len());
        let end = match &rest[..path_end] {
            "use" => {
                let end = rest.find(';').unwrap_or(rest.len());
                expand("", &rest["use".len()..end], &mut found);
                end
            }
            path => {
                let path = path.trim_end_matches(':');
                found.extend(path.contains("::").then(|| path.to_owned()));
                path_end
            }
        };
        rest = &rest[end..];
    }
    found
}

/// Writes out one tree of a `use`.
fn expand(prefix: &str, tree: &str, found: &mut Vec<String>) {
    let tree = tree.trim().trim_start_matches("::");
    let Some((head, group)) = tree.split_once('{') else {
        let name = tree.split_whitespace().next().unwrap_or_default();
        found.push(format!("{prefix}{name}").trim_end_matches("::self").to_owned());
        return;
    };
    let prefix = format!("{prefix}{}", head.trim());
    let group = group.rsplit_once('}').map_or(group, |(group, _)| group);
    let mut depth = 0;
    let parts = group.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    for part in parts.filter(|part| !part.trim().is_empty()) {
        expand(&prefix, part, found);
    }
}

pub(crate) fn first(path: &str) -> &str {
    path.split("::").next().unwrap_or_default()
}

pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// True if a word stands in a text, and not as a part of a longer one.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    let joined = |a: Option<char>, b: Option<char>| a.is_some_and(is_word) && b.is_some_and(is_word);
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (text[..at].chars().next_back(), text[at + word.len()..].chars().next());
        !joined(before, word.chars().next()) && !joined(word.chars().next_back(), after)
    })
}

/// The code of a file: comments, strings and characters become blanks, lines stay lines.
pub(crate) fn code_only(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let in_word = code.chars().next_back().is_some_and(is_word);
        let skipped = match c {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment(rest),
            '"' => quoted(rest, '"'),
            'r' if !in_word || code.ends_with('b') => raw_string(rest),
            '\'' if is_character(rest) => quoted(rest, '\''),
            _ => 0,
        };
        let kept = if skipped == 0 { c.len_utf8() } else { 0 };
        code.push_str(&rest[..kept]);
        code.extend(rest[kept..kept + skipped].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        rest = &rest[kept + skipped..];
    }
    code
}

/// Bytes of a comment between `/*` and `*/`, which nests.
fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        match &text.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// Bytes of a string or character that opens with `quote`.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// Returns the length in bytes of the raw string literal that begins at `r`, or 0 if no such literal begins there.
fn raw_string(text: &str) -> usize {
    let hashes = text[1..].len() - text[1..].trim_start_matches('#').len();
    let open = 1 + hashes;
    if !text[open..].starts_with('"') {
        return 0;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    text[open + 1..].find(&close).map_or(text.len(), |at| open + 1 + at + close.len())
}

/// True if a quote opens a character and not a lifetime.
fn is_character(text: &str) -> bool {
    let mut rest = text.chars().skip(1);
    let (one, two) = (rest.next(), rest.next());
    one == Some('\\') || two == Some('\'')
}
