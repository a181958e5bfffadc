//! A tree of values by pattern, with a token per level.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::subject::tokens;

/// Values under patterns, found by the subjects that match the patterns.
///
/// Patterns must satisfy [`is_pattern`](super::subject::is_pattern), which bounds their depth.
#[derive(Debug)]
pub struct Trie<V> {
    root: Node<V>,
    len: usize,
}

#[derive(Debug)]
struct Node<V> {
    literal: HashMap<Box<[u8]>, Node<V>, RandomState>,
    star: Option<Box<Node<V>>>,
    /// Values of the pattern that ends here.
    here: Vec<V>,
    /// Values of the pattern that has `>` here.
    rest: Vec<V>,
}

impl<V: PartialEq> Trie<V> {
    /// Makes an empty trie.
    pub fn new() -> Trie<V> {
        Trie { root: Node::default(), len: 0 }
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the trie has no values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds `value` under `pattern`. Equal values are kept separately.
    pub fn insert(&mut self, pattern: &[u8], value: V) {
        let mut node = &mut self.root;
        for token in tokens(pattern) {
            match token {
                b">" => {
                    node.rest.push(value);
                    self.len += 1;
                    return;
                }
                b"*" => node = node.star.get_or_insert_default(),
                token => {
                    if !node.literal.contains_key(token) {
                        node.literal.insert(token.into(), Node::default());
                    }
                    node = node.literal.get_mut(token).expect("inserted above");
                }
            }
        }
        node.here.push(value);
        self.len += 1;
    }

    /// Removes `value` from under `pattern` once. Returns true if it was there.
    pub fn remove(&mut self, pattern: &[u8], value: &V) -> bool {
        let removed = self.root.remove(&mut tokens(pattern), value);
        self.len -= usize::from(removed);
        removed
    }

    /// Calls `each` with every value whose pattern matches `subject`.
    pub fn find<'a>(&'a self, subject: &[u8], each: &mut impl FnMut(&'a V)) {
        self.root.find(Some(subject), each);
    }
}

impl<V: PartialEq> Default for Trie<V> {
    fn default() -> Trie<V> {
        Trie::new()
    }
}

impl<V> Default for Node<V> {
    fn default() -> Node<V> {
        Node { literal: HashMap::default(), star: None, here: Vec::new(), rest: Vec::new() }
    }
}

impl<V: PartialEq> Node<V> {
    fn is_empty(&self) -> bool {
        self.literal.is_empty() && self.star.is_none() && self.here.is_empty() && self.rest.is_empty()
    }

    fn remove<'a>(&mut self, tokens: &mut impl Iterator<Item = &'a [u8]>, value: &V) -> bool {
        match tokens.next() {
            None => take(&mut self.here, value),
            Some(b">") => take(&mut self.rest, value),
            Some(b"*") => {
                let Some(child) = &mut self.star else { return false };
                let removed = child.remove(tokens, value);
                if child.is_empty() {
                    self.star = None;
                }
                removed
            }
            Some(token) => {
                let Some(child) = self.literal.get_mut(token) else { return false };
                let removed = child.remove(tokens, value);
                if child.is_empty() {
                    self.literal.remove(token);
                }
                removed
            }
        }
    }

    fn find<'a>(&'a self, subject: Option<&[u8]>, each: &mut impl FnMut(&'a V)) {
        let Some(subject) = subject else { return self.here.iter().for_each(each) };
        self.rest.iter().for_each(&mut *each);
        let (token, left) = match memchr::memchr(b'.', subject) {
            Some(dot) => (&subject[..dot], Some(&subject[dot + 1..])),
            None => (subject, None),
        };
        if let Some(child) = &self.star {
            child.find(left, each);
        }
        if let Some(child) = self.literal.get(token) {
            child.find(left, each);
        }
    }
}

fn take<V: PartialEq>(values: &mut Vec<V>, value: &V) -> bool {
    let found = values.iter().position(|one| one == value);
    if let Some(at) = found {
        // Values stay in the order of subscription, from which queue groups draw.
        values.remove(at);
    }
    found.is_some()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::subject::{is_pattern, matches};
    use super::*;

    fn pattern() -> impl Strategy<Value = String> {
        let token = prop_oneof![Just("a"), Just("b"), Just("cc"), Just("*")];
        (proptest::collection::vec(token, 1..5), any::<bool>())
            .prop_map(|(tokens, rest)| tokens.join(".") + if rest { ".>" } else { "" })
    }

    fn subject() -> impl Strategy<Value = String> {
        proptest::collection::vec(prop_oneof![Just("a"), Just("b"), Just("cc")], 1..6)
            .prop_map(|tokens| tokens.join("."))
    }

    proptest! {
        #[test]
        fn a_trie_finds_what_a_list_finds(
            patterns in proptest::collection::vec(pattern(), 0..20),
            gone in proptest::collection::vec(any::<bool>(), 20),
            subjects in proptest::collection::vec(subject(), 1..10),
        ) {
            let mut trie = Trie::new();
            for (i, pattern) in patterns.iter().enumerate() {
                prop_assert!(is_pattern(pattern.as_bytes()));
                trie.insert(pattern.as_bytes(), i);
            }
            for (i, pattern) in patterns.iter().enumerate().filter(|(i, _)| gone[*i]) {
                prop_assert!(trie.remove(pattern.as_bytes(), &i));
                prop_assert!(!trie.remove(pattern.as_bytes(), &i));
            }
            for subject in &subjects {
                let mut found = Vec::new();
                trie.find(subject.as_bytes(), &mut |&i| found.push(i));
                found.sort_unstable();
                let expected: Vec<usize> = (0..patterns.len())
                    .filter(|&i| !gone[i] && matches(patterns[i].as_bytes(), subject.as_bytes()))
                    .collect();
                prop_assert_eq!(found, expected, "{}", subject);
            }
            for (i, pattern) in patterns.iter().enumerate().filter(|(i, _)| !gone[*i]) {
                prop_assert!(trie.remove(pattern.as_bytes(), &i));
            }
            prop_assert!(trie.is_empty() && trie.root.is_empty());
        }
    }
}
