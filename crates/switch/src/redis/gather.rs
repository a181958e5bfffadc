//! One answer from the answers of several members.

use tollway_proto::framing::{Framer, Framing};

/// The combination of several members' answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gather {
    /// The values of an array for each part, in the order of the client's keys.
    Values,
    /// The first answer.
    AllSucceeded,
    /// The first answer that is not an error.
    OneSucceeded,
    Sum,
    Least,
    /// The least of each element of arrays of numbers.
    LeastOfEach,
    /// Arrays, appended.
    Append,
    /// A `SCAN` of the member with this number; the next member follows.
    Scan {
        at: usize,
        next: Option<usize>,
    },
}

/// A member's part of a command.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) member: usize,
    /// Indices of its keys among the client's.
    pub(crate) keys: Vec<u32>,
    pub(crate) answer: Option<Vec<u8>>,
}

impl Part {
    /// A part without keys.
    pub(crate) fn of(member: usize) -> Part {
        Part { member, keys: Vec::new(), answer: None }
    }
}

impl Gather {
    /// The combined answer; the error of a part, if it fails the whole.
    pub(crate) fn combine(self, parts: &[Part]) -> Vec<u8> {
        let answers = || parts.iter().filter_map(|part| part.answer.as_deref());
        let failed = answers().find(|answer| answer.first() == Some(&b'-'));
        let passed = answers().find(|answer| answer.first() != Some(&b'-'));
        let combined = match (self, failed, passed) {
            (Gather::OneSucceeded, _, Some(answer)) => Some(answer.to_vec()),
            (_, Some(error), _) => return error.to_vec(),
            (Gather::AllSucceeded, None, first) => first.map(<[u8]>::to_vec),
            (Gather::Values, ..) => values(parts),
            (Gather::Sum, ..) => answers().map(number).sum::<Option<i64>>().map(integer),
            (Gather::Least, ..) => answers().map(number).min().flatten().map(integer),
            (Gather::LeastOfEach, ..) => least_of_each(answers()),
            (Gather::Append, ..) => append(answers()),
            (Gather::Scan { at, next }, ..) => passed.and_then(|answer| scanned(answer, at, next)),
            (Gather::OneSucceeded, ..) => None,
        };
        combined.unwrap_or_else(|| super::error("members gave answers of different kinds"))
    }
}

/// The member and its own cursor in a cursor of `SCAN` over all members.
pub(crate) fn cursor(digits: &[u8]) -> Option<(usize, u64)> {
    let cursor: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(((cursor % MEMBERS) as usize, cursor / MEMBERS))
}

fn scanned(answer: &[u8], at: usize, next: Option<usize>) -> Option<Vec<u8>> {
    let elements = elements(answer)?;
    let [cursor, keys] = elements.as_slice() else { return None };
    let own: u64 = std::str::from_utf8(bulk(cursor)?).ok()?.parse().ok()?;
    let cursor = match (own, next) {
        (0, None) => 0,
        (0, Some(next)) => next as u64,
        (own, _) => own.checked_mul(MEMBERS)?.checked_add(at as u64)?,
    };
    let cursor = cursor.to_string();
    let mut out = format!("*2\r\n${}\r\n{cursor}\r\n", cursor.len()).into_bytes();
    out.extend_from_slice(keys);
    Some(out)
}

fn values(parts: &[Part]) -> Option<Vec<u8>> {
    let count = parts.iter().map(|part| part.keys.len()).sum();
    let mut all: Vec<&[u8]> = vec![&[]; count];
    for part in parts {
        let values = elements(part.answer.as_deref()?)?;
        if values.len() != part.keys.len() {
            return None;
        }
        for (&key, value) in part.keys.iter().zip(values) {
            *all.get_mut(key as usize)? = value;
        }
    }
    let mut out = format!("*{count}\r\n").into_bytes();
    all.iter().for_each(|value| out.extend_from_slice(value));
    Some(out)
}

fn append<'a>(answers: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
    let (mut count, mut body) = (0, Vec::new());
    for answer in answers {
        for element in elements(answer)? {
            count += 1;
            body.extend_from_slice(element);
        }
    }
    let mut out = format!("*{count}\r\n").into_bytes();
    out.append(&mut body);
    Some(out)
}

fn least_of_each<'a>(answers: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
    let mut least: Option<Vec<i64>> = None;
    for answer in answers {
        let numbers = elements(answer)?.into_iter().map(number).collect::<Option<Vec<i64>>>()?;
        least = Some(match least {
            None => numbers,
            Some(before) => before.into_iter().zip(numbers).map(|(a, b)| a.min(b)).collect(),
        });
    }
    let least = least?;
    let body: Vec<u8> = least.iter().flat_map(|&number| integer(number)).collect();
    Some([format!("*{}\r\n", least.len()).as_bytes(), &body].concat())
}

/// The elements of an array, each with its own header.
fn elements(answer: &[u8]) -> Option<Vec<&[u8]>> {
    let head = answer.iter().position(|&byte| byte == b'\n')? + 1;
    let count: usize = std::str::from_utf8(answer.get(1..head - 2)?).ok()?.parse().ok()?;
    if answer.first() != Some(&b'*') {
        return None;
    }
    let mut framer = Framer::new(Framing::Resp, usize::MAX);
    let (mut rest, mut all) = (answer.get(head..)?, Vec::new());
    for _ in 0..count {
        let (element, after) = rest.split_at_checked(framer.next(rest).ok()??)?;
        all.push(element);
        rest = after;
    }
    Some(all)
}

fn bulk(element: &[u8]) -> Option<&[u8]> {
    let head = element.iter().position(|&byte| byte == b'\n')? + 1;
    element.get(head..element.len().checked_sub(2)?)
}

fn number(answer: &[u8]) -> Option<i64> {
    std::str::from_utf8(answer.strip_prefix(b":")?.strip_suffix(b"\r\n")?).ok()?.parse().ok()
}

fn integer(value: i64) -> Vec<u8> {
    format!(":{value}\r\n").into_bytes()
}

/// Members that a cursor of `SCAN` can name.
const MEMBERS: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(all: &[(&[u32], &str)]) -> Vec<Part> {
        all.iter()
            .enumerate()
            .map(|(member, (keys, answer))| Part {
                member,
                keys: keys.to_vec(),
                answer: Some(answer.replace('|', "\r\n").into_bytes()),
            })
            .collect()
    }

    #[test]
    fn answers_are_combined_as_redis_would_give_them() {
        for (gather, answers, expected) in [
            (Gather::Sum, [":2|", ":3|"], ":5|"),
            (Gather::Least, [":2|", ":3|"], ":2|"),
            (Gather::AllSucceeded, ["+OK|", "+OK|"], "+OK|"),
            (Gather::AllSucceeded, ["+OK|", "-ERR no|"], "-ERR no|"),
            (Gather::OneSucceeded, ["-NOTBUSY|", "+OK|"], "+OK|"),
            (Gather::OneSucceeded, ["-NOTBUSY|", "-NOTBUSY|"], "-NOTBUSY|"),
            (Gather::LeastOfEach, ["*2|:1|:0|", "*2|:1|:1|"], "*2|:1|:0|"),
            (Gather::Append, ["*1|$1|a|", "*2|$1|b|$1|c|"], "*3|$1|a|$1|b|$1|c|"),
            (Gather::Sum, [":2|", "+OK|"], "-ERR members gave answers of different kinds|"),
        ] {
            let parts = parts(&[(&[], answers[0]), (&[], answers[1])]);
            let combined = String::from_utf8(gather.combine(&parts)).unwrap().replace("\r\n", "|");
            assert_eq!(combined, expected, "{gather:?} of {answers:?}");
        }
        let parts = parts(&[(&[1, 2], "*2|$-1|$3|b:c|"), (&[0], "*1|$1|x|")]);
        assert_eq!(Gather::Values.combine(&parts), b"*3\r\n$1\r\nx\r\n$-1\r\n$3\r\nb:c\r\n");
    }

    #[test]
    fn a_cursor_visits_every_member() {
        let scan = |answer: &str, at, next| {
            let parts = parts(&[(&[], answer)]);
            let answer = Gather::Scan { at, next }.combine(&parts);
            let text = String::from_utf8(answer).unwrap();
            cursor(text.split("\r\n").nth(2).unwrap().as_bytes()).unwrap()
        };
        assert_eq!(scan("*2|$2|17|*0|", 3, Some(4)), (3, 17));
        assert_eq!(scan("*2|$1|0|*0|", 3, Some(5)), (5, 0));
        assert_eq!(scan("*2|$1|0|*0|", 5, None), (0, 0));
    }
}
