//! Operations that a client sends, parsed in place.

/// One operation, which borrows from the parsed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// `CONNECT`, with its JSON.
    Connect(&'a [u8]),
    /// `PUB` or `HPUB`.
    Pub(Publish<'a>),
    /// `SUB`.
    Sub {
        /// The pattern, as written.
        pattern: &'a [u8],
        /// The queue group; `None` for a plain subscription.
        queue: Option<&'a [u8]>,
        /// The client's identifier of the subscription.
        sid: &'a [u8],
    },
    /// `UNSUB`.
    Unsub {
        /// The client's identifier of the subscription.
        sid: &'a [u8],
        /// Number of messages, counted from the subscription's first, after which it ends; at once
        /// if `None`.
        max: Option<u64>,
    },
    /// `PING`.
    Ping,
    /// `PONG`.
    Pong,
    /// `+OK` or `-ERR`, which clients have no reason to send.
    Ignored,
}

/// A published message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publish<'a> {
    /// The subject, as written.
    pub subject: &'a [u8],
    /// The reply subject.
    pub reply: Option<&'a [u8]>,
    /// Length of the headers at the start of the body, in bytes; `None` for `PUB`.
    pub header: Option<usize>,
    /// Headers and payload, and the line end behind them.
    framed: &'a [u8],
}

impl<'a> Publish<'a> {
    /// Headers and payload.
    pub fn body(&self) -> &'a [u8] {
        &self.framed[..self.framed.len() - 2]
    }

    /// Headers and payload with the line end behind them, as forwarded.
    pub fn framed(&self) -> &'a [u8] {
        self.framed
    }

    /// Makes a message of `framed`, which must end with a line end.
    pub fn of(
        subject: &'a [u8],
        reply: Option<&'a [u8]>,
        header: Option<usize>,
        framed: &'a [u8],
    ) -> Publish<'a> {
        assert!(framed.ends_with(b"\r\n"));
        Publish { subject, reply, header, framed }
    }
}

/// The result of [`parse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// An operation, and its length in bytes.
    Op(Op<'a>, usize),
    /// An incomplete operation, and its minimum length in bytes.
    Part(usize),
}

/// A protocol violation. The connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// No operation begins with these bytes.
    #[error("Unknown Protocol Operation")]
    Unknown,
    /// The operation's arguments are wrong.
    #[error("Parser Error")]
    Arguments,
    /// The line does not end within [`Limits::line`].
    #[error("Maximum Control Line Exceeded")]
    Line,
    /// The message is longer than [`Limits::body`].
    #[error("Maximum Payload Violation")]
    Body,
}

/// Upper bounds on a client's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Limit of a line with its end, in bytes.
    pub line: usize,
    /// Limit of headers and payload together, in bytes.
    pub body: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { line: 4096, body: 1 << 20 }
    }
}

/// Parses the first operation in `bytes`.
///
/// # Errors
/// A protocol violation, whatever follows. The connection must be closed.
pub fn parse<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Parsed<'a>, ParseError> {
    let window = &bytes[..bytes.len().min(limits.line)];
    let Some(end) = memchr::memchr(b'\n', window) else {
        known(bytes)?;
        return if bytes.len() < limits.line {
            Ok(Parsed::Part(bytes.len() + 1))
        } else {
            Err(ParseError::Line)
        };
    };
    let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
    let next = end + 1;
    let word = line.iter().position(|&byte| byte == b' ' || byte == b'\t').unwrap_or(line.len());
    let (word, rest) = line.split_at(word);
    let op = match Word::of(word).ok_or(ParseError::Unknown)? {
        Word::Pub => return publish(bytes, next, rest, false, limits),
        Word::Hpub => return publish(bytes, next, rest, true, limits),
        Word::Sub => {
            let (words, count) = split::<3>(rest)?;
            match (words, count) {
                ([pattern, sid, _], 2) => Op::Sub { pattern, queue: None, sid },
                ([pattern, queue, sid], 3) => Op::Sub { pattern, queue: Some(queue), sid },
                _ => return Err(ParseError::Arguments),
            }
        }
        Word::Unsub => {
            let (words, count) = split::<2>(rest)?;
            match (words, count) {
                ([sid, _], 1) => Op::Unsub { sid, max: None },
                ([sid, max], 2) => Op::Unsub { sid, max: Some(number(max)?) },
                _ => return Err(ParseError::Arguments),
            }
        }
        Word::Ping => Op::Ping,
        Word::Pong => Op::Pong,
        Word::Connect => Op::Connect(rest.trim_ascii()),
        Word::Ignored => Op::Ignored,
    };
    Ok(Parsed::Op(op, next))
}

/// Parses the rest of `PUB` or `HPUB`: its line's `words`, and its body from `start` on.
fn publish<'a>(
    bytes: &'a [u8],
    start: usize,
    words: &'a [u8],
    headed: bool,
    limits: &Limits,
) -> Result<Parsed<'a>, ParseError> {
    let (words, count) = split::<4>(words)?;
    let numbers = 1 + usize::from(headed);
    let reply = match count.checked_sub(numbers) {
        Some(1) => None,
        Some(2) => Some(words[1]),
        _ => return Err(ParseError::Arguments),
    };
    let len = number(words[count - 1])?;
    let header = if headed { Some(number(words[count - 2])?) } else { None };
    if len > limits.body as u64 {
        return Err(ParseError::Body);
    }
    if header.is_some_and(|header| header > len) {
        return Err(ParseError::Arguments);
    }
    let end = start + len as usize;
    if bytes.len() < end + 2 {
        // A wrong line end is refused as soon as its first byte has arrived.
        return match bytes.get(end) {
            None | Some(b'\r') => Ok(Parsed::Part(end + 2)),
            Some(_) => Err(ParseError::Arguments),
        };
    }
    if bytes[end..end + 2] != *b"\r\n" {
        return Err(ParseError::Arguments);
    }
    let header = header.map(|header| header as usize);
    let publish = Publish { subject: words[0], reply, header, framed: &bytes[start..end + 2] };
    Ok(Parsed::Op(Op::Pub(publish), end + 2))
}

enum Word {
    Pub,
    Hpub,
    Sub,
    Unsub,
    Ping,
    Pong,
    Connect,
    Ignored,
}

impl Word {
    fn of(word: &[u8]) -> Option<Word> {
        let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
        Some(match word.len() {
            3 if is(b"PUB") => Word::Pub,
            3 if is(b"SUB") => Word::Sub,
            3 if is(b"+OK") => Word::Ignored,
            4 if is(b"HPUB") => Word::Hpub,
            4 if is(b"PING") => Word::Ping,
            4 if is(b"PONG") => Word::Pong,
            4 if is(b"-ERR") => Word::Ignored,
            5 if is(b"UNSUB") => Word::Unsub,
            7 if is(b"CONNECT") => Word::Connect,
            _ => return None,
        })
    }
}

/// Refuses an incomplete line if its first word is no operation.
fn known(line: &[u8]) -> Result<(), ParseError> {
    let end = line.iter().position(|byte| b" \t\r".contains(byte));
    match end {
        Some(end) => Word::of(&line[..end]).map(|_| ()).ok_or(ParseError::Unknown),
        None if line.len() > LONGEST => Err(ParseError::Unknown),
        None => Ok(()),
    }
}

/// Splits a line into at most `N` words. Returns the words and their number.
fn split<const N: usize>(line: &[u8]) -> Result<([&[u8]; N], usize), ParseError> {
    let mut words = [&line[..0]; N];
    let mut count = 0;
    let mut at = 0;
    loop {
        while line.get(at).is_some_and(|&byte| byte == b' ' || byte == b'\t') {
            at += 1;
        }
        if at == line.len() {
            return Ok((words, count));
        }
        let start = at;
        while line.get(at).is_some_and(|&byte| byte != b' ' && byte != b'\t') {
            at += 1;
        }
        *words.get_mut(count).ok_or(ParseError::Arguments)? = &line[start..at];
        count += 1;
    }
}

fn number(digits: &[u8]) -> Result<u64, ParseError> {
    if digits.is_empty() || digits.len() > 18 {
        return Err(ParseError::Arguments);
    }
    digits.iter().try_fold(0, |number, digit| match digit {
        b'0'..=b'9' => Ok(number * 10 + u64::from(digit - b'0')),
        _ => Err(ParseError::Arguments),
    })
}

/// Length of the longest operation name, in bytes.
const LONGEST: usize = 7;

/// Parses any bytes: each operation lies within them, and later bytes change no earlier result.
pub fn read_anything(bytes: &[u8]) {
    let limits = Limits { line: 64, body: 256 };
    let mut at = 0;
    while let Ok(parsed) = parse(&bytes[at..], &limits) {
        let left = bytes.len() - at;
        match parsed {
            Parsed::Part(need) => {
                assert!(left < need && need <= limits.line + limits.body + 2);
                return;
            }
            Parsed::Op(op, len) => {
                assert!(len > 0 && len <= left);
                for cut in [0, len / 2, len - 1] {
                    assert!(matches!(parse(&bytes[at..at + cut], &limits), Ok(Parsed::Part(_))), "{op:?}");
                }
                if let Op::Pub(publish) = op {
                    assert!(publish.body().len() <= limits.body);
                    assert!(publish.header.is_none_or(|header| header <= publish.body().len()));
                }
                at += len;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(bytes: &str) -> Result<Parsed<'_>, ParseError> {
        parse(bytes.as_bytes(), &Limits::default())
    }

    #[test]
    fn operations_are_read_as_written() {
        let publish = |subject, reply, header, framed| Op::Pub(Publish { subject, reply, header, framed });
        for (text, op) in [
            ("PUB a 5\r\nhello\r\n", publish(b"a", None, None, &b"hello\r\n"[..])),
            ("pub\ta.b  r\t0 \r\n\r\n", publish(b"a.b", Some(b"r"), None, b"\r\n")),
            (
                "HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n",
                publish(b"a", None, Some(12), b"NATS/1.0\r\n\r\nhi\r\n"),
            ),
            ("HPUB a r 0 1\r\nx\r\n", publish(b"a", Some(b"r"), Some(0), b"x\r\n")),
            ("SUB a.* 1\n", Op::Sub { pattern: b"a.*", queue: None, sid: b"1" }),
            ("sub a q 1\r\n", Op::Sub { pattern: b"a", queue: Some(b"q"), sid: b"1" }),
            ("UNSUB 1\r\n", Op::Unsub { sid: b"1", max: None }),
            ("UNSUB 1 5\r\n", Op::Unsub { sid: b"1", max: Some(5) }),
            ("PING\r\n", Op::Ping),
            ("PoNG\r\n", Op::Pong),
            ("CONNECT {\"a\": 1}\r\n", Op::Connect(b"{\"a\": 1}")),
            ("+OK\r\n", Op::Ignored),
            ("-ERR 'x'\r\n", Op::Ignored),
        ] {
            assert_eq!(one(text), Ok(Parsed::Op(op, text.len())), "{text}");
        }
    }

    #[test]
    fn what_is_no_operation_is_refused_as_soon_as_that_is_known() {
        use ParseError::{Arguments, Body, Line, Unknown};
        for (text, error) in [
            ("GET / HTTP", Unknown),
            ("\x16\x03\x01\x02\x00\x01\x00\x01", Unknown),
            ("\r\n", Unknown),
            ("PUB\r\n", Arguments),
            ("PUB a\r\n", Arguments),
            ("PUB a b c 1\r\n", Arguments),
            ("PUB a -1\r\n", Arguments),
            ("PUB a 9999999999999999999\r\n", Arguments),
            ("PUB a 1048577\r\n", Body),
            ("PUB a 1\r\nxy", Arguments),
            ("PUB a 1\r\nx\n\n", Arguments),
            ("HPUB a 2 1\r\n", Arguments),
            ("HPUB a 1\r\n", Arguments),
            ("SUB a\r\n", Arguments),
            ("SUB a q 1 2\r\n", Arguments),
            ("UNSUB\r\n", Arguments),
            ("UNSUB 1 x\r\n", Arguments),
        ] {
            assert_eq!(one(text), Err(error), "{text}");
        }
        let long = format!("SUB {}", "a".repeat(4092));
        assert_eq!(one(&long), Err(Line));
        assert_eq!(one(&long[..4095]), Ok(Parsed::Part(4096)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes: Vec<u8>) {
            read_anything(&bytes);
        }

        #[test]
        fn a_message_is_whole_at_its_last_byte_only(
            body in proptest::collection::vec(any::<u8>(), 0..300), headed: bool,
        ) {
            let mut bytes = match headed {
                true => format!("HPUB s r {} {}\r\n", body.len() / 2, body.len()).into_bytes(),
                false => format!("PUB s {}\r\n", body.len()).into_bytes(),
            };
            bytes.extend_from_slice(&body);
            bytes.extend_from_slice(b"\r\n");
            for cut in 0..bytes.len() {
                let Ok(Parsed::Part(need)) = parse(&bytes[..cut], &Limits::default()) else {
                    return Err(TestCaseError::fail(format!("whole at {cut}")));
                };
                prop_assert!(cut < need && need <= bytes.len());
            }
            let parsed = parse(&bytes, &Limits::default());
            let Ok(Parsed::Op(Op::Pub(publish), len)) = parsed else { panic!("{parsed:?}") };
            prop_assert_eq!((publish.body(), len), (&body[..], bytes.len()));
            read_anything(&bytes);
        }
    }
}
