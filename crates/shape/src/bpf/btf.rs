//! A minimal reader of BTF, the kernel's description of its types, to find the offsets of fields.
//!
//! The kernel's documentation describes the format (`Documentation/bpf/btf.rst`). Numbers are in
//! the machine's byte order.

#[cfg(any(test, fuzzing))]
#[path = "tests/btf.rs"]
pub(crate) mod fuzzing;

use std::io;
use std::path::Path;

/// The types of the running kernel.
#[derive(Debug)]
pub(crate) struct Btf {
    bytes: Vec<u8>,
    /// Offset of each type by its number. Number 0 is `void`, which has no entry.
    types: Vec<usize>,
    strings: usize,
}

/// One load on the path to a field: the offset from the pointer that the step before loaded, and
/// the width in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) offset: i16,
    pub(crate) bytes: u32,
}

/// The path to a field: one load per pointer, and the field's own load last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) steps: Vec<Step>,
    /// The first bit and the number of bits of the field in the last load; none if it is the whole
    /// load.
    pub(crate) bits: Option<(u32, u32)>,
}

impl Btf {
    /// Reads the description of the running kernel.
    pub(crate) fn of_kernel() -> io::Result<Btf> {
        Btf::parse(std::fs::read(Path::new(KERNEL))?)
    }

    /// Parses a description and indexes its types.
    pub(crate) fn parse(bytes: Vec<u8>) -> io::Result<Btf> {
        let word = |at: usize| read_u32(&bytes, at).ok_or_else(broken);
        if word(0)? & 0xffff != MAGIC {
            return Err(broken());
        }
        let header = word(4)? as usize;
        let (types_at, types_len, strings_at) = (word(8)?, word(12)?, word(16)?);
        let mut at = header.checked_add(types_at as usize).ok_or_else(broken)?;
        let end = at.checked_add(types_len as usize).ok_or_else(broken)?;
        let strings = header.checked_add(strings_at as usize).ok_or_else(broken)?;
        let mut types = vec![0];
        while at < end {
            types.push(at);
            let info = word(at + 4)?;
            at += HEAD + trailing(info >> 24 & 0x1f, (info & 0xffff) as usize).ok_or_else(broken)?;
        }
        Ok(Btf { bytes, types, strings })
    }

    /// Returns the number of the type `name` of this kind.
    pub(crate) fn find(&self, kind: u32, name: &str) -> io::Result<u32> {
        let ids = 1..self.types.len() as u32;
        let mut found = ids.filter(|&id| self.kind(id) == Some(kind) && self.name(id) == name.as_bytes());
        found.next().ok_or_else(|| missing(name))
    }

    /// Returns the value of an enumerator, in whichever enumeration has it.
    pub(crate) fn value(&self, word: &str) -> io::Result<i32> {
        let ids = (1..self.types.len() as u32).filter(|&id| self.kind(id) == Some(ENUM));
        let mut words = ids.flat_map(|id| {
            let first = self.types[id as usize] + HEAD;
            (0..self.members(id)).map(move |index| first + 8 * index)
        });
        let found = words.find(|&at| self.string(read_u32(&self.bytes, at)) == word.as_bytes());
        let value = found.and_then(|at| read_u32(&self.bytes, at + 4));
        value.map(|value| value as i32).ok_or_else(|| missing(word))
    }

    /// Returns the path to a field in C notation, from a pointer to the structure:
    /// `sk.sk_cgrp_data.cgroup->kn->id`, `address[3]`.
    pub(crate) fn field(&self, structure: &str, path: &str) -> io::Result<Field> {
        let mut at = self.find(STRUCT, structure)?;
        let (mut bits, mut steps) = (0u32, Vec::new());
        let mut narrow = None;
        for (index, part) in path.split("->").enumerate() {
            if index > 0 {
                steps.push(Step { offset: offset_of(bits)?, bytes: 8 });
                at = self.pointee(at).ok_or_else(|| missing(part))?;
                bits = 0;
            }
            for name in part.split('.') {
                let (name, element) = match name.split_once('[') {
                    Some((name, rest)) => (name, rest.trim_end_matches(']').parse::<u32>().ok()),
                    None => (name, None),
                };
                let member = self.member(at, name, DEPTH, &mut { LOOKS }).ok_or_else(|| missing(name))?;
                bits = bits.checked_add(member.bit).ok_or_else(broken)?;
                (at, narrow) = (member.kind, member.bits);
                if let Some(element) = element {
                    at = self.element(at).ok_or_else(|| missing(name))?;
                    let before = self.size(at).and_then(|size| size.checked_mul(8)?.checked_mul(element));
                    bits = before.and_then(|before| bits.checked_add(before)).ok_or_else(broken)?;
                }
            }
        }
        let Some(narrow) = narrow else {
            let bytes =
                self.size(at).filter(|bytes| [1, 2, 4, 8].contains(bytes)).ok_or_else(|| missing(path))?;
            steps.push(Step { offset: offset_of(bits)?, bytes });
            return Ok(Field { steps, bits: None });
        };
        // A bit field: its byte is loaded.
        let first = if cfg!(target_endian = "little") {
            bits % 8
        } else {
            (8 - narrow).checked_sub(bits % 8).ok_or_else(broken)?
        };
        if first + narrow > 8 {
            return Err(missing(path));
        }
        steps.push(Step { offset: offset_of(bits - bits % 8)?, bytes: 1 });
        Ok(Field { steps, bits: Some((first, narrow)) })
    }

    /// Finds the member `name` of a structure or union, also inside its unnamed members.
    fn member(&self, id: u32, name: &str, depth: u32, looks: &mut u32) -> Option<BtfMember> {
        let id = self.plain(id)?;
        if depth == 0 || !matches!(self.kind(id)?, STRUCT | UNION) {
            return None;
        }
        let narrow = self.info(id)? >> 31 == 1;
        let first = self.types[id as usize] + HEAD;
        (0..self.members(id)).find_map(|index| {
            // Nested unnamed members could be searched very often, so searches are counted.
            *looks = looks.checked_sub(1)?;
            let at = first + 12 * index;
            let (kind, offset) = (read_u32(&self.bytes, at + 4)?, read_u32(&self.bytes, at + 8)?);
            let (bit, bits) = if narrow { (offset & 0xff_ffff, offset >> 24) } else { (offset, 0) };
            let own = self.string(read_u32(&self.bytes, at));
            if own == name.as_bytes() {
                return Some(BtfMember { kind, bit, bits: (bits > 0).then_some(bits) });
            }
            let inner = own.is_empty().then(|| self.member(kind, name, depth - 1, looks))??;
            Some(BtfMember { bit: bit.checked_add(inner.bit)?, ..inner })
        })
    }

    /// The type behind type definitions and qualifiers.
    fn plain(&self, mut id: u32) -> Option<u32> {
        for _ in 0..DEPTH {
            match self.kind(id)? {
                TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG => id = self.word(id, 8)?,
                _ => return Some(id),
            }
        }
        None
    }

    fn pointee(&self, id: u32) -> Option<u32> {
        let id = self.plain(id)?;
        (self.kind(id)? == POINTER).then(|| self.word(id, 8))?
    }

    fn element(&self, id: u32) -> Option<u32> {
        let id = self.plain(id)?;
        (self.kind(id)? == ARRAY).then(|| self.word(id, HEAD))?
    }

    /// The size of a type in bytes, for a number, a pointer or a structure.
    fn size(&self, id: u32) -> Option<u32> {
        let id = self.plain(id)?;
        match self.kind(id)? {
            POINTER => Some(8),
            INTEGER | ENUM | STRUCT | UNION => self.word(id, 8),
            _ => None,
        }
    }

    fn members(&self, id: u32) -> usize {
        self.info(id).unwrap_or(0) as usize & 0xffff
    }

    fn kind(&self, id: u32) -> Option<u32> {
        Some(self.info(id)? >> 24 & 0x1f)
    }

    fn info(&self, id: u32) -> Option<u32> {
        self.word(id, 4)
    }

    fn name(&self, id: u32) -> &[u8] {
        self.string(self.word(id, 0))
    }

    fn word(&self, id: u32, at: usize) -> Option<u32> {
        let start = *self.types.get(id as usize).filter(|_| id > 0)?;
        read_u32(&self.bytes, start + at)
    }

    fn string(&self, offset: Option<u32>) -> &[u8] {
        let start = offset.and_then(|offset| self.strings.checked_add(offset as usize));
        let rest = start.and_then(|start| self.bytes.get(start..)).unwrap_or(&[]);
        &rest[..rest.iter().position(|&byte| byte == 0).unwrap_or(0)]
    }
}

/// A member: its type, its offset in bits, and its width in bits for a bit field.
struct BtfMember {
    kind: u32,
    bit: u32,
    bits: Option<u32>,
}

/// Bytes that follow the header of a type of this kind with `members` members.
fn trailing(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        POINTER | FORWARD | TYPEDEF | VOLATILE | CONST | RESTRICT | FUNCTION | FLOAT | TYPE_TAG => 0,
        INTEGER | VARIABLE | DECLARATION_TAG => 4,
        ARRAY => 12,
        ENUM | PROTOTYPE => 8 * members,
        STRUCT | UNION | SECTION | ENUM64 => 12 * members,
        _ => return None,
    })
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The offset of a load in bytes, in the range of an instruction.
fn offset_of(bits: u32) -> io::Result<i16> {
    i16::try_from(bits / 8).map_err(|_| broken())
}

fn missing(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("this kernel has no `{name}`"))
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{KERNEL} has an unknown format"))
}

const KERNEL: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u32 = 0xeb9f;
/// Bytes of a type's header, before the data of its kind.
const HEAD: usize = 12;
/// Limit of nested type definitions and unnamed structures; no kernel has that many.
const DEPTH: u32 = 16;
/// Limit of members searched for one name; no kernel structure has that many, with its unnamed
/// members.
const LOOKS: u32 = 1 << 20;

const INTEGER: u32 = 1;
const POINTER: u32 = 2;
const ARRAY: u32 = 3;
pub(crate) const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const FORWARD: u32 = 7;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
pub(crate) const FUNCTION: u32 = 12;
const PROTOTYPE: u32 = 13;
const VARIABLE: u32 = 14;
const SECTION: u32 = 15;
const FLOAT: u32 = 16;
const DECLARATION_TAG: u32 = 17;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The types `struct inner { u32 a; u8 low:3; u8 high:4; }`,
    /// `struct outer { u64 x; union { struct inner *to; u64 y; }; struct inner in; u32 list[4]; }`
    /// and `enum { WORD = 7 }`.
    fn sample() -> Vec<u8> {
        let mut strings = vec![0u8];
        let mut name = |text: &str| {
            let at = strings.len() as u32;
            strings.extend_from_slice(text.as_bytes());
            strings.push(0);
            at
        };
        let kind = |kind: u32, members: u32, flag: u32| flag << 31 | kind << 24 | members;
        let words: Vec<u32> = [
            vec![name("u32"), kind(INTEGER, 0, 0), 4, 32], // 1
            vec![name("u64"), kind(INTEGER, 0, 0), 8, 64], // 2
            vec![name("u8"), kind(INTEGER, 0, 0), 1, 8],   // 3
            vec![name("inner"), kind(STRUCT, 3, 1), 8],    // 4
            vec![name("a"), 1, 0, name("low"), 3, 3 << 24 | 32, name("high"), 3, 4 << 24 | 35],
            vec![0, kind(POINTER, 0, 0), 4], // 5
            vec![0, kind(UNION, 2, 0), 8, name("to"), 5, 0, name("y"), 7, 0], // 6
            vec![name("alias"), kind(TYPEDEF, 0, 0), 2], // 7
            vec![0, kind(ARRAY, 0, 0), 0, 1, 1, 4], // 8
            vec![name("outer"), kind(STRUCT, 4, 0), 40], // 9
            vec![name("x"), 2, 0, 0, 6, 64, name("in"), 4, 128, name("list"), 8, 192],
            vec![0, kind(ENUM, 1, 0), 4, name("WORD"), 7], // 10
        ]
        .concat();
        let mut bytes = Vec::new();
        let types = 4 * words.len() as u32;
        for word in [0x0001_eb9f, 24, 0, types, types, strings.len() as u32].into_iter().chain(words) {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        bytes.extend_from_slice(&strings);
        bytes
    }

    fn steps(path: &str) -> Vec<(i16, u32)> {
        let field = Btf::parse(sample()).unwrap().field("outer", path).unwrap();
        field.steps.iter().map(|step| (step.offset, step.bytes)).collect()
    }

    #[test]
    fn fields_are_found_through_pointers_and_structures_without_a_name() {
        assert_eq!(steps("x"), [(0, 8)]);
        assert_eq!(steps("y"), [(8, 8)]);
        assert_eq!(steps("in.a"), [(16, 4)]);
        assert_eq!(steps("to->a"), [(8, 8), (0, 4)]);
        assert_eq!(steps("list[3]"), [(24 + 12, 4)]);
    }

    #[test]
    fn a_field_of_a_few_bits_is_in_a_byte() {
        let btf = Btf::parse(sample()).unwrap();
        let high = btf.field("outer", "in.high").unwrap();
        assert_eq!(high.steps, [Step { offset: 20, bytes: 1 }]);
        let first = if cfg!(target_endian = "little") { 3 } else { 1 };
        assert_eq!(high.bits, Some((first, 4)));
    }

    #[test]
    fn what_is_not_there_is_said_by_name() {
        let btf = Btf::parse(sample()).unwrap();
        assert_eq!(btf.value("WORD").unwrap(), 7);
        let error = btf.field("outer", "in.b").unwrap_err();
        assert_eq!(error.to_string(), "this kernel has no `b`");
        assert!(btf.find(FUNCTION, "outer").is_err() && btf.value("NONE").is_err());
    }

    proptest! {
        #[test]
        fn nothing_read_breaks_it(cut in 0usize..400, flips in prop::collection::vec((0usize..400, any::<u8>()), 0..8)) {
            let mut bytes = sample();
            for (at, value) in flips {
                let len = bytes.len();
                bytes[at % len] = value;
            }
            bytes.truncate(cut.max(1));
            fuzzing::look(&bytes);
        }
    }
}
