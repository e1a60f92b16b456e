//! Inputs that are built from random choices.

use serde_json::{Map, Value};

/// The deepest JSON that is built.
const MAX_DEPTH: usize = 6;

/// A sequence of choices. At its end every choice is the first one, so that an input with fewer choices is simpler.
#[derive(Debug)]
pub struct Draw<'a> {
    rest: &'a [u8],
}

/// The words of which JSON is built.
#[derive(Clone, Copy, Debug)]
pub struct Vocabulary<'a> {
    /// The names of fields.
    pub names: &'a [&'a str],
    /// The texts.
    pub texts: &'a [&'a str],
}

impl<'a> Draw<'a> {
    /// Reads the choices from bytes.
    #[must_use]
    pub fn new(choices: &'a [u8]) -> Self {
        Self { rest: choices }
    }

    /// Draws a byte.
    pub fn byte(&mut self) -> u8 {
        let (first, rest) = self.rest.split_first().unwrap_or((&0, &[]));
        self.rest = rest;
        *first
    }

    /// Whether there are more choices.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.rest.is_empty()
    }

    /// Draws a number below a limit.
    pub fn below(&mut self, limit: usize) -> usize {
        let drawn = if limit <= 256 {
            usize::from(self.byte())
        } else {
            (0..4).fold(0, |drawn: usize, _| (drawn << 8) | usize::from(self.byte()))
        };
        drawn.checked_rem(limit).unwrap_or_default()
    }

    /// Draws `true` with a probability of `percent`; `false` at the end.
    pub fn chance(&mut self, percent: usize) -> bool {
        !self.is_over() && self.below(100) < percent
    }

    /// Draws one of the values.
    pub fn pick<T: Copy + Default>(&mut self, values: &[T]) -> T {
        values.get(self.below(values.len())).copied().unwrap_or_default()
    }

    /// Draws one of the values, if there is one.
    pub fn one_of<'v, T>(&mut self, values: &'v [T]) -> Option<&'v T> {
        values.get(self.below(values.len()))
    }

    /// Draws an integer, small or at a limit.
    pub fn integer(&mut self) -> i64 {
        const EDGES: [i64; 9] =
            [0, -1, 1, i64::MAX, i64::MIN, 1 << 31, 1 << 53, 1_000_000_000, -62_135_596_800];
        if self.chance(70) { i64::from(self.byte()) - 8 } else { self.pick(&EDGES) }
    }

    /// Draws a text: one of the words, several of them, or any characters.
    pub fn text(&mut self, words: &[&str]) -> String {
        match self.below(8) {
            0..=4 => self.pick(words).to_owned(),
            5 => format!("{}{}", self.pick(words), self.pick(words)),
            6 => {
                let length = self.below(24);
                let letters = [
                    'a', 'Z', '0', ' ', '\n', '\0', '/', '~', '"', '\\', '.', ',', 'é', '\u{202e}', '😀', '%',
                ];
                (0..length).map(|_| self.pick(&letters)).collect()
            }
            _ => {
                let count = self.below(400);
                self.pick(words).repeat(count)
            }
        }
    }

    /// Draws JSON.
    pub fn json(&mut self, vocabulary: &Vocabulary<'_>) -> Value {
        self.json_below(vocabulary, 0)
    }

    /// Draws a JSON object.
    pub fn object(&mut self, vocabulary: &Vocabulary<'_>) -> Map<String, Value> {
        self.fields(vocabulary, 0)
    }

    fn json_below(&mut self, vocabulary: &Vocabulary<'_>, depth: usize) -> Value {
        let kinds = if depth < MAX_DEPTH { 12 } else { 6 };
        match self.below(kinds) {
            0 => Value::Null,
            1 => Value::Bool(self.chance(50)),
            2 => self.integer().into(),
            3 => Value::from(f64::from(self.byte()) / 8.0 - 3.0),
            4 | 5 => self.text(vocabulary.texts).into(),
            6..=8 => Value::Array(self.items(vocabulary, depth)),
            _ => Value::Object(self.fields(vocabulary, depth)),
        }
    }

    fn items(&mut self, vocabulary: &Vocabulary<'_>, depth: usize) -> Vec<Value> {
        let count = self.below(5);
        let mut items: Vec<Value> = (0..count).map(|_| self.json_below(vocabulary, depth + 1)).collect();
        if let (true, Some(first)) = (self.chance(20), items.first().cloned()) {
            items.push(first);
        }
        items
    }

    fn fields(&mut self, vocabulary: &Vocabulary<'_>, depth: usize) -> Map<String, Value> {
        let count = self.below(6);
        let field = |draw: &mut Self| {
            let name = if draw.chance(90) {
                draw.pick(vocabulary.names).to_owned()
            } else {
                draw.text(vocabulary.texts)
            };
            (name, draw.json_below(vocabulary, depth + 1))
        };
        (0..count).map(|_| field(self)).collect()
    }

    /// Changes up to four places of a JSON value: replaces, removes, doubles or nests what is there.
    pub fn mutate(&mut self, value: &mut Value, vocabulary: &Vocabulary<'_>) {
        for _ in 0..self.below(5) {
            self.mutate_once(value, vocabulary, 0);
        }
    }

    fn mutate_once(&mut self, value: &mut Value, vocabulary: &Vocabulary<'_>, depth: usize) {
        if self.chance(70) && self.descend(value, vocabulary, depth) {
            return;
        }
        match (self.below(7), &mut *value) {
            (0 | 1, _) => *value = self.json_below(vocabulary, depth),
            (2, _) => *value = Value::Array(vec![value.take()]),
            (3, _) => {
                let name = self.pick(vocabulary.names).to_owned();
                *value = Value::Object(Map::from_iter([(name, value.take())]));
            }
            (4, Value::Array(items)) => items.extend_from_within(..),
            (4, Value::Object(fields)) => {
                let name = self.pick(vocabulary.names).to_owned();
                fields.insert(name, self.json_below(vocabulary, depth));
            }
            (5, Value::Array(items)) => drop(items.pop()),
            (5, Value::Object(fields)) => {
                let names: Vec<String> = fields.keys().cloned().collect();
                if let Some(name) = self.one_of(&names) {
                    fields.remove(name);
                }
            }
            (_, Value::String(text)) => *text = self.mutated_text(text, vocabulary.texts),
            (_, Value::Number(number)) => *number = self.integer().into(),
            _ => *value = Value::Null,
        }
    }

    /// Changes something inside a value; false if there is nothing inside.
    fn descend(&mut self, value: &mut Value, vocabulary: &Vocabulary<'_>, depth: usize) -> bool {
        let inner = match value {
            Value::Array(items) => {
                let index = self.below(items.len());
                items.get_mut(index)
            }
            Value::Object(fields) => {
                let index = self.below(fields.len());
                fields.values_mut().nth(index)
            }
            _ => None,
        };
        let Some(inner) = inner else { return false };
        self.mutate_once(inner, vocabulary, depth + 1);
        true
    }

    /// Returns a text with some of its characters removed, doubled or replaced by words.
    pub fn mutated_text(&mut self, text: &str, words: &[&str]) -> String {
        let mut characters: Vec<char> = text.chars().collect();
        for _ in 0..=self.below(4) {
            let at = self.below(characters.len() + 1);
            let until = (at + self.below(6)).min(characters.len());
            let inserted: Vec<char> = match self.below(4) {
                0 => Vec::new(),
                1 => characters.get(at..until).map(|part| part.repeat(2)).unwrap_or_default(),
                _ => self.text(words).chars().collect(),
            };
            characters.splice(at..until, inserted);
        }
        characters.into_iter().collect()
    }
}
