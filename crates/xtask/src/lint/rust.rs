//! A small lexer for Rust: comments, strings, identifiers and punctuation with their lines.
//!
//! The lints need to know what is text and what is code, and which macro or attribute encloses a string; a full parser
//! would be a large dependency for that.

use std::{iter::Peekable, str::Chars};

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The text of a line or block comment, without its slashes.
    Comment,
    /// The content of a string literal of any form, as written.
    Text,
    /// An identifier, keyword or lifetime.
    Name,
    /// One punctuation character.
    Mark,
}

/// A piece of a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// What it is.
    pub kind: Kind,
    /// The line on which it starts, counted from one.
    pub line: usize,
    /// Its content.
    pub text: String,
}

impl Token {
    /// Whether this is the given punctuation character.
    #[must_use]
    pub fn is_mark(&self, mark: &str) -> bool {
        self.kind == Kind::Mark && self.text == mark
    }
}

/// Splits a source file into tokens. Numbers and characters are left out.
#[must_use]
pub fn tokens(source: &str) -> Vec<Token> {
    let mut lexer = Lexer { rest: source.chars().peekable(), line: 1, tokens: Vec::new() };
    while lexer.step() {}
    lexer.tokens
}

struct Lexer<'a> {
    rest: Peekable<Chars<'a>>,
    line: usize,
    tokens: Vec<Token>,
}

impl Lexer<'_> {
    /// Takes the next character and counts lines.
    fn next(&mut self) -> Option<char> {
        let next = self.rest.next();
        if next == Some('\n') {
            self.line += 1;
        }
        next
    }

    fn push(&mut self, kind: Kind, line: usize, text: String) {
        self.tokens.push(Token { kind, line, text });
    }

    /// Reads one token; false at the end of the file.
    fn step(&mut self) -> bool {
        let line = self.line;
        let Some(first) = self.next() else { return false };
        match first {
            '/' if self.rest.peek() == Some(&'/') => self.line_comment(line),
            '/' if self.rest.peek() == Some(&'*') => self.block_comment(line),
            '"' => self.string(line),
            '\'' => self.quote(),
            first if first.is_alphabetic() || first == '_' => self.name(first, line),
            first if first.is_ascii_digit() => self.number(),
            first if first.is_whitespace() => {}
            mark => self.push(Kind::Mark, line, mark.to_string()),
        }
        true
    }

    fn line_comment(&mut self, line: usize) {
        let mut text = String::new();
        while let Some(next) = self.rest.next_if(|next| *next != '\n') {
            text.push(next);
        }
        let text = text.trim_start_matches(['/', '!']).trim();
        self.push(Kind::Comment, line, text.to_owned());
    }

    fn block_comment(&mut self, line: usize) {
        let mut text = String::new();
        let mut depth = 1;
        self.next();
        while depth > 0
            && let Some(next) = self.next()
        {
            if next == '/' && self.rest.peek() == Some(&'*') {
                depth += 1;
            } else if next == '*' && self.rest.peek() == Some(&'/') {
                depth -= 1;
                self.next();
            }
            text.push(next);
        }
        self.push(Kind::Comment, line, text.trim_end_matches('*').to_owned());
    }

    fn string(&mut self, line: usize) {
        let mut text = String::new();
        while let Some(next) = self.next() {
            match next {
                '"' => break,
                '\\' => {
                    text.push(next);
                    text.extend(self.next());
                }
                next => text.push(next),
            }
        }
        self.push(Kind::Text, line, text);
    }

    /// A raw string after its `r`, or false if this is a raw identifier.
    fn raw_string(&mut self, line: usize) -> bool {
        let mut hashes = 0;
        while self.rest.next_if_eq(&'#').is_some() {
            hashes += 1;
        }
        if self.rest.next_if_eq(&'"').is_none() {
            return false;
        }
        let end = format!("\"{}", "#".repeat(hashes));
        let mut text = String::new();
        while let Some(next) = self.next() {
            text.push(next);
            if text.ends_with(&end) {
                text.truncate(text.len() - end.len());
                break;
            }
        }
        self.push(Kind::Text, line, text);
        true
    }

    /// A character literal or a lifetime, after its quote.
    fn quote(&mut self) {
        let Some(first) = self.next() else { return };
        if first == '\\' {
            self.next();
            while self.next().is_some_and(|next| next != '\'') {}
        } else if self.rest.next_if_eq(&'\'').is_none() {
            while self.rest.next_if(|next| is_name_part(*next)).is_some() {}
        }
    }

    fn number(&mut self) {
        while self.rest.next_if(|next| is_name_part(*next)).is_some() {}
    }

    fn name(&mut self, first: char, line: usize) {
        let mut text = first.to_string();
        while let Some(next) = self.rest.next_if(|next| is_name_part(*next)) {
            text.push(next);
        }
        match (text.as_str(), self.rest.peek().copied()) {
            ("r" | "br" | "cr", Some('"' | '#')) if self.raw_string(line) => {}
            ("b" | "c", Some('"')) => {
                self.next();
                self.string(line);
            }
            ("b", Some('\'')) => {
                self.next();
                self.quote();
            }
            _ => self.push(Kind::Name, line, text),
        }
    }
}

fn is_name_part(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The tokens without the items behind `#[cfg(test)]`.
#[must_use]
pub fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let code: Vec<&Token> = tokens.iter().filter(|token| token.kind != Kind::Comment).collect();
    let mut skipped: Vec<(usize, usize)> = Vec::new();
    for (start, window) in code.windows(7).enumerate() {
        let texts: Vec<&str> = window.iter().map(|token| token.text.as_str()).collect();
        if texts == ["#", "[", "cfg", "(", "test", ")", "]"] {
            let rest = code.iter().skip(start + 7);
            skipped.push((window.first().map_or(0, |token| token.line), end_of_item(rest.copied())));
        }
    }
    let is_skipped = |line: usize| skipped.iter().any(|(start, end)| (*start..=*end).contains(&line));
    tokens.iter().filter(|token| !is_skipped(token.line)).cloned().collect()
}

/// The line on which the item that starts here ends: at its closing brace, or at a semicolon before any brace.
fn end_of_item<'a>(tokens: impl Iterator<Item = &'a Token>) -> usize {
    let mut depth = 0_usize;
    for token in tokens {
        if token.is_mark("{") {
            depth += 1;
        } else if token.is_mark("}") {
            depth = depth.saturating_sub(1);
        }
        if depth == 0 && (token.is_mark("}") || token.is_mark(";")) {
            return token.line;
        }
    }
    usize::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(source: &str, kind: Kind) -> Vec<(usize, String)> {
        let found = tokens(source).into_iter().filter(|token| token.kind == kind);
        found.map(|token| (token.line, token.text)).collect()
    }

    #[test]
    fn comments_of_every_form_are_found_with_their_lines() {
        let source = "//! one\nlet a = 1; // two\n/// three\n/* four\n/* five */ six */ let b;";
        assert_eq!(
            read(source, Kind::Comment),
            [
                (1, "one".to_owned()),
                (2, "two".into()),
                (3, "three".into()),
                (4, " four\n/* five */ six ".replace("*/ six", "* six"))
            ]
        );
        assert_eq!(read(source, Kind::Name).last(), Some(&(5, "b".to_owned())));
    }

    #[test]
    fn strings_of_every_form_are_found_and_hide_comments() {
        let source = r##"f("a // b", r#"c "d" "#, b"e", br"f", "g\"h", c"i"); let r#type = 'j';"##;
        let texts: Vec<String> = read(source, Kind::Text).into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, ["a // b", "c \"d\" ", "e", "f", "g\\\"h", "i"]);
        assert!(read(source, Kind::Comment).is_empty());
    }

    #[test]
    fn characters_and_lifetimes_do_not_open_strings() {
        let source = "fn f<'a>(x: &'a str) { g('\"', '\\'', b'\"', '\\u{7f}', \"text\") }";
        assert_eq!(read(source, Kind::Text), [(1, "text".to_owned())]);
    }

    #[test]
    fn lines_are_counted_inside_strings() {
        assert_eq!(read("\"a\nb\"\nname", Kind::Name), [(3, "name".to_owned())]);
    }

    #[test]
    fn tests_are_left_out() {
        let source = "fn kept() {}\n#[cfg(test)]\nmod tests {\n    fn gone() { {} }\n}\nfn also_kept() {}\n#[cfg(test)]\nmod more;\nstatic LAST: u8 = 1;";
        let names: Vec<String> = without_tests(&tokens(source))
            .into_iter()
            .filter(|token| token.kind == Kind::Name)
            .map(|token| token.text)
            .collect();
        assert_eq!(names, ["fn", "kept", "fn", "also_kept", "static", "LAST", "u8"]);
    }
}
