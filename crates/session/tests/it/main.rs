//! Message sockets between two nodes on loopback.

use std::time::{Duration, Instant};

use tollway_session::{KeyFile, Message, Node, NodeError, Options, Session, SessionError};

const PATIENCE: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(200);

/// A client's node and a server's, with an open session.
struct Pair {
    client: Option<Node>,
    server: Option<Node>,
    to: Session,
    from: Session,
}

fn options(change: impl Fn(Options) -> Options) -> [Options; 2] {
    let keys = KeyFile::mesh(&["client".into(), "server".into()]).unwrap();
    [0, 1].map(|side| change(Options::new("127.0.0.1:0".parse().unwrap(), keys[side].clone())))
}

impl Pair {
    fn new(change: impl Fn(Options) -> Options) -> Pair {
        let [a, b] = options(change);
        let (client, server) = (Node::open(&a).unwrap(), Node::open(&b.listening()).unwrap());
        server.add("client", client.address()).unwrap();
        client.add("server", server.address()).unwrap();
        let to = client.connect("server", PATIENCE).unwrap();
        let from = server.accept(PATIENCE).unwrap();
        Pair { client: Some(client), server: Some(server), to, from }
    }
}

fn next(session: &Session) -> Message {
    session.receive(PATIENCE).unwrap().expect("a frame")
}

#[test]
fn requests_and_frames_of_any_length_arrive_once_and_in_order() {
    let Pair { to, from, client: _client, server: _server } = Pair::new(|options| options);
    let frames: Vec<Vec<u8>> = (0..200).map(|at: usize| vec![at as u8; at * at * 20]).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (number, frame) in frames.iter().enumerate() {
                let request = next(&from);
                assert!(request.number == Some(number as u32) && request.bytes == *frame);
                from.reply(&request, frame).unwrap();
                from.send(&frame[..frame.len().min(30)]).unwrap();
            }
        });
        scope.spawn(|| frames.iter().try_for_each(|frame| to.send(frame).map(|_| ())).unwrap());
        for (number, frame) in frames.iter().enumerate() {
            let (answer, free) = (next(&to), next(&to));
            assert!(answer.number == Some(number as u32) && !answer.more && answer.bytes == *frame);
            assert!(free.number.is_none() && free.bytes == frame[..frame.len().min(30)]);
        }
    });
    assert_eq!(to.unanswered(), []);
}

#[test]
fn a_request_is_answered_in_pieces_and_later_than_others() {
    let Pair { to, from, client: _client, server: _server } = Pair::new(|options| options);
    to.send(b"first").unwrap();
    to.send_by_key(b"key", b"second").unwrap();
    to.post(None, b"third").unwrap();
    let requests = [next(&from), next(&from), next(&from)];
    assert_eq!(requests[2].bytes, b"third");
    from.reply_part(&requests[0], b"1").unwrap();
    from.reply(&requests[1], b"2").unwrap();
    from.reply_part(&requests[0], b"3").unwrap();
    // It needs no answer, and gets none.
    from.reply(&requests[2], b"none").unwrap();
    let seen = [next(&to), next(&to), next(&to)].map(|one| (one.number, one.more, one.bytes));
    let piece = |number, more, bytes: &[u8]| (Some(number), more, bytes.to_vec());
    assert_eq!(seen, [piece(0, true, b"1"), piece(1, false, b"2"), piece(0, true, b"3")]);
    assert_eq!(to.unanswered(), [0]);
    from.reply(&requests[0], b"").unwrap();
    let last = next(&to);
    assert_eq!((last.number, last.more, last.bytes.len()), (Some(0), false, 0));
    // A second last answer is none.
    from.reply(&requests[0], b"again").unwrap();
    from.finish();
    assert_eq!(to.receive(PATIENCE), Ok(None));
    assert_eq!(to.reply(&last, b""), Err(SessionError::NoRequest));
}

#[test]
fn a_side_that_does_not_read_holds_the_other_back() {
    let small = |options| Options { buffer: 64 << 10, frame: 16 << 10, ..options };
    let Pair { to, from, client: _client, server: _server } = Pair::new(small);
    let frame = vec![7; 8000];
    assert_eq!(to.send(&vec![0; 17 << 10]), Err(SessionError::TooLong(16 << 10)));
    let sent = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..500 {
                to.send(&frame).unwrap();
                sent.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
        });
        std::thread::sleep(Duration::from_millis(500));
        let held = sent.load(std::sync::atomic::Ordering::SeqCst);
        assert!((8..40).contains(&held), "{held} frames of 8 kB in buffers of 64 KiB");
        (0..500).for_each(|_| assert_eq!(next(&from).bytes.len(), 8000));
    });
    to.flush(PATIENCE).unwrap();
}

#[test]
fn each_side_closes_its_direction_and_a_dropped_session_sends_what_it_has() {
    let Pair { to, from, client: _client, server: _server } = Pair::new(|options| options);
    (0..100).try_for_each(|_| to.send(&[1; 2000]).map(|_| ())).unwrap();
    to.finish();
    assert_eq!(to.send(b"late"), Err(SessionError::Finished));
    (0..100).for_each(|_| drop(next(&from)));
    assert_eq!(from.receive(PATIENCE), Ok(None));
    // The other direction is open.
    (0..100).try_for_each(|_| from.send(&[2; 2000]).map(|_| ())).unwrap();
    drop(from);
    (0..100).for_each(|_| assert_eq!(next(&to).bytes.len(), 2000));
    assert_eq!(to.receive(PATIENCE), Ok(None));
}

#[test]
fn an_abort_and_the_end_of_a_node_reach_the_other_side() {
    let pair = Pair::new(|options| options);
    pair.from.abort();
    assert_eq!(pair.to.receive(PATIENCE), Err(SessionError::Reset));
    assert_eq!(pair.to.send(b"late"), Err(SessionError::Reset));
    let mut pair = Pair::new(|options| options);
    drop(pair.server.take());
    assert_eq!(pair.to.receive(PATIENCE), Err(SessionError::Reset));
    assert_eq!(pair.from.receive(PATIENCE), Err(SessionError::Gone));
    assert_eq!(pair.to.receive(SHORT), Err(SessionError::Reset));
    let again = pair.client.as_ref().unwrap().connect("server", SHORT);
    assert!(matches!(again, Err(NodeError::Silent(_))), "{again:?}");
}

#[test]
fn mistakes_and_silence_have_their_errors() {
    let [a, b] = options(|options| options);
    let (client, server) = (Node::open(&a).unwrap(), Node::open(&b).unwrap());
    assert!(matches!(client.connect("server", SHORT), Err(NodeError::Unknown(_))));
    let error = client.add("nobody", server.address()).unwrap_err();
    assert!(error.to_string().contains("nobody"), "{error}");
    client.add("server", server.address()).unwrap();
    server.add("client", client.address()).unwrap();
    let began = Instant::now();
    let refused = client.connect("server", PATIENCE);
    assert!(matches!(refused, Err(NodeError::Refused { .. })), "it does not listen: {refused:?}");
    assert!(began.elapsed() < PATIENCE);
    assert_eq!(server.accept(SHORT).unwrap_err(), SessionError::TimedOut);
    let large = Options { frame: 2 << 20, ..a };
    assert!(matches!(Node::open(&large), Err(NodeError::Frame { .. })));
}
