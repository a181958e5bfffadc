//! A client of a site with async-nats: `async-nats-client HOST:PORT`. Prints `fine` at the end.

use std::time::Duration;

use async_nats::jetstream;
use async_nats::{Client, ConnectOptions, HeaderMap, Message, RequestErrorKind, Subscriber};
use futures_util::StreamExt;

/// The next message of a subscription.
async fn next(subscriber: &mut Subscriber) -> Message {
    let next = tokio::time::timeout(Duration::from_secs(30), subscriber.next()).await;
    next.expect("a message in time").expect("no end")
}

/// Waits until a client's operations are done, and all messages for it until then have arrived.
async fn settle(client: &Client) {
    let inbox = client.new_inbox();
    let mut echo = client.subscribe(inbox.clone()).await.unwrap();
    client.publish(inbox, "".into()).await.unwrap();
    next(&mut echo).await;
}

async fn wildcards_and_headers(one: &Client, two: &Client) {
    let mut star = one.subscribe("rs.*.x").await.unwrap();
    let mut rest = one.subscribe("rs.>").await.unwrap();
    settle(one).await;
    let mut headers = HeaderMap::new();
    headers.insert("kind", "greeting");
    headers.append("kind", "second");
    two.publish_with_headers("rs.a.x", headers.clone(), "hello".into()).await.unwrap();
    two.publish("rs.b", "".into()).await.unwrap();
    let message = next(&mut star).await;
    assert_eq!((&*message.subject, &*message.payload), ("rs.a.x", &b"hello"[..]));
    assert_eq!(message.headers, Some(headers));
    for subject in ["rs.a.x", "rs.b"] {
        assert_eq!(&*next(&mut rest).await.subject, subject);
    }
    rest.unsubscribe().await.unwrap();
}

async fn requests(one: &Client, two: &Client) {
    let mut service = one.subscribe("rs.service").await.unwrap();
    settle(one).await;
    let answers = one.clone();
    let served = tokio::spawn(async move {
        let asked = next(&mut service).await;
        answers.publish(asked.reply.unwrap(), asked.payload.to_ascii_uppercase().into()).await.unwrap();
    });
    assert_eq!(&*two.request("rs.service", "loud".into()).await.unwrap().payload, b"LOUD");
    served.await.unwrap();
    let refused = two.request("nobody.here", "".into()).await.unwrap_err();
    assert_eq!(refused.kind(), RequestErrorKind::NoResponders);
}

/// Each message goes to one member.
async fn queue_groups(one: &Client, two: &Client) {
    const MESSAGES: usize = 300;
    let mut members = Vec::new();
    for _ in 0..3 {
        members.push(one.queue_subscribe("rs.work", "workers".into()).await.unwrap());
    }
    settle(one).await;
    for number in 0..MESSAGES {
        two.publish("rs.work", number.to_string().into()).await.unwrap();
    }
    settle(two).await;
    settle(one).await;
    let mut seen = [false; MESSAGES];
    for member in &mut members {
        member.unsubscribe().await.unwrap();
        let mut count = 0;
        while let Some(message) = member.next().await {
            let number: usize = std::str::from_utf8(&message.payload).unwrap().parse().unwrap();
            assert!(!std::mem::replace(&mut seen[number], true), "{number} came twice");
            count += 1;
        }
        assert!(count > 0, "a member got nothing");
    }
    assert!(seen.iter().all(|&seen| seen), "some came to nobody");
}

/// A subscription that ends after two messages, a large message, and no JetStream.
async fn limits(one: &Client, two: &Client) {
    let mut few = one.subscribe("rs.few").await.unwrap();
    few.unsubscribe_after(2).await.unwrap();
    let mut large = one.subscribe("rs.large").await.unwrap();
    settle(one).await;
    for number in 0..4 {
        two.publish("rs.few", number.to_string().into()).await.unwrap();
    }
    two.publish("rs.large", vec![7; 1_000_000].into()).await.unwrap();
    assert_eq!(next(&mut large).await.payload.len(), 1_000_000);
    let rest: Vec<Message> = few.collect().await;
    assert_eq!(rest.iter().map(|message| &*message.payload).collect::<Vec<_>>(), [b"0", b"1"]);
    let refused = jetstream::new(two.clone()).query_account().await.unwrap_err().to_string();
    assert!(refused.contains("10076") || refused.contains("not enabled"), "{refused}");
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let address = std::env::args().nth(1).expect("HOST:PORT");
    let options = || ConnectOptions::new().request_timeout(Some(Duration::from_secs(30)));
    let one = options().name("one").connect(&*address).await.unwrap();
    let two = options().name("two").connect(&*address).await.unwrap();
    wildcards_and_headers(&one, &two).await;
    requests(&one, &two).await;
    queue_groups(&one, &two).await;
    limits(&one, &two).await;
    println!("fine");
}
