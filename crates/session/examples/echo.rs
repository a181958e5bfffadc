//! An echo server and a client, two nodes in one process on loopback:
//! `cargo run -p tollway-session --example echo`. Neither needs root.
//!
//! Between machines, each program loads its key file of `tollway switch keygen client server`. With
//! a switch between them, the client adds the switch as its neighbour, and so do the servers.

use std::time::{Duration, Instant};

use tollway_session::{KeyFile, Node, Options, Session};

const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let keys = KeyFile::mesh(&["client".into(), "server".into()])?;
    let any = "127.0.0.1:0".parse()?;
    let server = Node::open(&Options::new(any, keys[1].clone()).listening())?;
    let client = Node::open(&Options::new(any, keys[0].clone()))?;
    server.add("client", client.address())?;
    client.add("server", server.address())?;
    let serving = std::thread::spawn(move || serve(&server.accept(PATIENCE)?));

    let session = client.connect("server", PATIENCE)?;
    let (began, frame) = (Instant::now(), vec![7; 10_000]);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| (0..COUNT).try_for_each(|_| session.send(&frame).map(drop)));
        for number in 0..COUNT {
            let answer = session.receive(PATIENCE)?.ok_or("the server ended")?;
            assert_eq!((answer.number, answer.bytes.len()), (Some(number), frame.len()));
        }
        sending.join().map_err(|_| "the sender failed")??;
        Ok::<(), Box<dyn std::error::Error>>(())
    })?;
    let seconds = began.elapsed().as_secs_f64();
    println!("{COUNT} frames of {} bytes there and back in {seconds:.3} s", frame.len());
    session.finish();
    assert_eq!(session.receive(PATIENCE)?, None);
    Ok(serving.join().map_err(|_| "the server failed")??)
}

/// Answers each request with itself, until the client has finished.
fn serve(session: &Session) -> Result<(), tollway_session::SessionError> {
    while let Some(request) = session.receive(PATIENCE)? {
        session.reply(&request, &request.bytes)?;
    }
    session.finish();
    session.flush(PATIENCE)
}

const COUNT: u32 = 1000;
