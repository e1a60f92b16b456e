//! Text of a cluster as it is shown to people.
//!
//! A tenant writes names, messages and annotations. Shown as they are, they could clear the screen, forge lines or reorder
//! what is beside them. JSON and YAML have escapes of their own.

use std::{
    borrow::Cow,
    fmt,
    io::{self, Write},
};

/// Whether a character does something else than to be shown: control characters (C0, DEL and C1), line and paragraph
/// separators, and what changes the direction of the text after it.
fn is_active(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns a text in which every active character is visible, such as `\n` or `\u{1b}`.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_active) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_active(character) {
            safe.extend(character.escape_default());
        } else {
            safe.push(character);
        }
    }
    Cow::Owned(safe)
}

/// A value whose text is escaped. It is aligned like a text.
pub struct Escaped<T>(pub T);

impl<T: fmt::Display> fmt::Display for Escaped<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&escaped(&self.0.to_string()))
    }
}

/// Writes one line, whatever its values contain.
pub fn write_line(output: &mut (impl Write + ?Sized), line: fmt::Arguments<'_>) -> io::Result<()> {
    writeln!(output, "{}", Escaped(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn active_characters_are_visible_and_others_unchanged() {
        let hostile = "a\u{1b}[2J\r\n\t\u{7f}\u{9b}31m\u{202e}b\u{2066}c\u{2028}";
        assert_eq!(escaped(hostile), r"a\u{1b}[2J\r\n\t\u{7f}\u{9b}31m\u{202e}b\u{2066}c\u{2028}");
        for text in ["web-1", "Größe → 3 ✓", "日本語", ""] {
            assert!(matches!(escaped(text), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn a_line_stays_one_line_and_keeps_its_alignment() {
        let mut output = Vec::new();
        write_line(&mut output, format_args!("{:<4}|{}", Escaped("a"), "x\ny")).unwrap();
        assert_eq!(output, b"a   |x\\ny\n");
    }
}
