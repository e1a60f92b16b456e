//! Which objects are found by which words, in little memory: there may be one word and more for every machine.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use crate::place::Place;

/// An inverted index. A word and a place are there once each, however often they are used.
#[derive(Debug, Default)]
pub struct Inverted {
    found: BTreeSet<(Arc<str>, Arc<Place>)>,
    words: HashMap<Arc<Place>, Box<[Arc<str>]>>,
}

impl Inverted {
    /// The places that are found by a word, in order.
    pub fn places<'a>(&'a self, word: &'a str) -> impl Iterator<Item = &'a Place> {
        let first = (Arc::from(word), Arc::default());
        self.found.range(first..).take_while(move |(found, _)| **found == *word).map(|(_, place)| &**place)
    }

    /// The words that find a place.
    pub fn words(&self, place: &Place) -> impl Iterator<Item = &str> {
        self.words.get(place).into_iter().flatten().map(AsRef::as_ref)
    }

    /// Has a place found by these words and no others.
    pub fn put(&mut self, place: &Place, mut words: Vec<String>) {
        words.sort();
        words.dedup();
        if self.words(place).eq(words.iter().map(String::as_str)) {
            return;
        }
        let (place, before) =
            self.words.remove_entry(place).unwrap_or_else(|| (Arc::new(place.clone()), Box::default()));
        for word in before {
            self.found.remove(&(word, Arc::clone(&place)));
        }
        let words: Box<[Arc<str>]> = words.into_iter().map(|word| self.shared(word)).collect();
        self.found.extend(words.iter().map(|word| (Arc::clone(word), Arc::clone(&place))));
        if !words.is_empty() {
            self.words.insert(place, words);
        }
    }

    /// The word as it is there already, or as it will be.
    fn shared(&self, word: String) -> Arc<str> {
        let word: Arc<str> = word.into();
        let first = (Arc::clone(&word), Arc::default());
        let known = self.found.range(first..).next().map(|(known, _)| known).filter(|known| **known == word);
        known.map_or(word, Arc::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> Place {
        Place { namespace: "apps".to_owned(), name: name.to_owned() }
    }

    fn found<'a>(index: &'a Inverted, word: &'a str) -> Vec<&'a str> {
        index.places(word).map(|place| place.name.as_str()).collect()
    }

    #[test]
    fn a_place_is_found_by_its_words_and_by_no_others() {
        let mut index = Inverted::default();
        let put = |index: &mut Inverted, name: &str, words: &[&str]| {
            index.put(&place(name), words.iter().map(ToString::to_string).collect());
        };
        put(&mut index, "b", &["small", "one"]);
        put(&mut index, "a", &["small", "small"]);
        assert_eq!(found(&index, "small"), ["a", "b"], "in order");
        assert_eq!(found(&index, "smal"), [""; 0], "whole words only");
        put(&mut index, "b", &["large", "one"]);
        assert_eq!((found(&index, "small"), found(&index, "large")), (vec!["a"], vec!["b"]));
        assert_eq!(index.words(&place("b")).collect::<Vec<_>>(), ["large", "one"]);
        put(&mut index, "a", &[]);
        put(&mut index, "b", &[]);
        assert!(index.found.is_empty() && index.words.is_empty(), "nothing is kept of what is gone");
    }

    #[test]
    fn a_word_of_many_is_kept_once() {
        let mut index = Inverted::default();
        for name in ["a", "b", "c"] {
            index.put(&place(name), vec!["small".to_owned()]);
        }
        let words: Vec<&Arc<str>> = index.found.iter().map(|(word, _)| word).collect();
        assert!(words.iter().all(|word| Arc::ptr_eq(word, words[0])));
    }
}
