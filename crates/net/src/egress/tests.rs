//! Writers beside each other, in a time that passes when everybody waits.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, Sink};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;

/// What a writer has written so far.
type Count = Arc<AtomicU64>;

/// Writes as much as it may.
fn greedy<W: AsyncWrite + Unpin + Send + 'static>(mut writer: Paced<W>) -> (Count, JoinHandle<()>) {
    let count = Count::default();
    let written = count.clone();
    let task = tokio::spawn(async move {
        let block = vec![0; 1 << 14];
        while let Ok(len) = writer.write(&block).await {
            written.fetch_add(len as u64, Ordering::Relaxed);
        }
    });
    (count, task)
}

/// Megabytes a second that each writes in a span.
async fn rates<const N: usize>(counts: [&Count; N], span: Duration) -> [f64; N] {
    let before = counts.map(|count| count.load(Ordering::Relaxed));
    sleep(span).await;
    let mut at = 0;
    counts.map(|count| {
        at += 1;
        (count.load(Ordering::Relaxed) - before[at - 1]) as f64 * 1e-6 / span.as_secs_f64()
    })
}

fn near(is: f64, should: f64, by: f64) -> bool {
    (is / should - 1.0).abs() < by
}

/// Ten megabytes a second.
fn egress() -> Egress {
    Egress::new(Rate::from_mbps(80.0))
}

fn sink(egress: &Egress, weight: f64) -> Paced<Sink> {
    egress.writer(weight, tokio::io::sink())
}

#[tokio::test(start_paused = true)]
async fn shares_go_by_weight_and_are_the_rate_together() {
    let egress = egress();
    let (one, three) = (greedy(sink(&egress, 1.0)), greedy(sink(&egress, 3.0)));
    sleep(Duration::from_millis(500)).await;
    let [a, b] = rates([&one.0, &three.0], Duration::from_secs(5)).await;
    assert!(near(a, 2.5, 0.01) && near(b, 7.5, 0.01), "{a} {b}");

    // Who leaves leaves its share.
    three.1.abort();
    sleep(Duration::from_millis(100)).await;
    let [a] = rates([&one.0], Duration::from_secs(2)).await;
    assert!(near(a, 10.0, 0.01), "{a}");
}

#[tokio::test(start_paused = true)]
async fn what_one_leaves_the_other_has_until_it_is_wanted_again() {
    let egress = egress();
    let rest = greedy(sink(&egress, 1.0));
    let mut modest = sink(&egress, 1.0);
    let (wanted, modest_count) = (Arc::new(AtomicU64::new(10_000)), Count::default());
    let (wants, count) = (wanted.clone(), modest_count.clone());
    tokio::spawn(async move {
        loop {
            // A hundredth of a second's worth at a time.
            let block = vec![0; wants.load(Ordering::Relaxed) as usize];
            modest.write_all(&block).await.unwrap();
            count.fetch_add(block.len() as u64, Ordering::Relaxed);
            sleep(Duration::from_millis(10)).await;
        }
    });
    sleep(Duration::from_secs(1)).await;
    let [a, b] = rates([&modest_count, &rest.0], Duration::from_secs(3)).await;
    assert!(near(a, 1.0, 0.05) && a + b > 9.8 && a + b < 10.01, "{a} {b}");
    wanted.store(1_000_000, Ordering::Relaxed);
    sleep(Duration::from_millis(500)).await;
    let [a, b] = rates([&modest_count, &rest.0], Duration::from_secs(4)).await;
    assert!(near(a, 5.0, 0.1) && near(b, 5.0, 0.05), "{a} {b}");
}

#[tokio::test(start_paused = true)]
async fn who_waits_wants_more_however_many_come_and_go() {
    let egress = Egress::new(Rate::from_mbps(8.0));
    let (one, other) = (greedy(sink(&egress, 1.0)), greedy(sink(&egress, 3.0)));
    let mut modest = sink(&egress, 6.0);
    tokio::spawn(async move {
        loop {
            modest.write_all(&[0; 100]).await.unwrap();
            sleep(Duration::from_millis(10)).await;
        }
    });
    let brief = egress.clone();
    tokio::spawn(async move {
        loop {
            // Each has the rate divided anew, long before the others' waits are over.
            sink(&brief, 0.001).write_all(&[0; 1]).await.unwrap();
            sleep(Duration::from_millis(1)).await;
        }
    });
    sleep(Duration::from_secs(1)).await;
    let [a, b] = rates([&one.0, &other.0], Duration::from_secs(5)).await;
    assert!(a + b > 0.98 && near(b / a, 3.0, 0.02), "{a} {b}");
}

#[tokio::test(start_paused = true)]
async fn who_is_held_by_its_receiver_lends() {
    let egress = egress();
    let (near_end, mut far_end): (DuplexStream, DuplexStream) = tokio::io::duplex(1 << 15);
    let (held, free) = (greedy(egress.writer(1.0, near_end)), greedy(sink(&egress, 1.0)));
    tokio::spawn(async move {
        let mut block = vec![0; 20_000];
        while far_end.read_exact(&mut block).await.is_ok() {
            sleep(Duration::from_millis(20)).await;
        }
    });
    sleep(Duration::from_secs(1)).await;
    let [a, b] = rates([&held.0, &free.0], Duration::from_secs(3)).await;
    assert!(near(a, 1.0, 0.1) && near(b, 9.0, 0.03), "{a} {b}");
}

#[tokio::test(start_paused = true)]
async fn a_tenant_keeps_to_its_contract_and_no_burst_is_over_the_bucket() {
    let rate = |mbps| Contract { rate: Some(Rate::from_mbps(mbps)), ..Contract::default() };
    let tenants = [(rate(16.0), vec![1.0]), (Contract::default(), vec![1.0, 1.0])];
    let tenants = tenants.map(|(contract, classes)| Tenant { contract, classes });
    let egress = Egress::with(rate(80.0), &tenants);
    let writer = |class| greedy(egress.writer_of(class, 1.0, tokio::io::sink()));
    let (held, first, second) = (writer(0), writer(1), writer(2));
    let mut sent = Vec::new();
    for _ in 0..300 {
        sleep(Duration::from_millis(10)).await;
        sent.push(
            [&held.0, &first.0, &second.0].iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>(),
        );
    }
    let [a, b, c] = rates([&held.0, &first.0, &second.0], Duration::from_secs(3)).await;
    assert!(near(a, 2.0, 0.02) && near(b, 4.0, 0.02) && near(c, 4.0, 0.02), "{a} {b} {c}");
    // The bucket holds a tenth of a second's worth, and two ticks more pass before its debt is seen.
    for (i, j) in (0..sent.len()).flat_map(|i| (i..sent.len()).map(move |j| (i, j))) {
        let (moved, span) = ((sent[j] - sent[i]) as f64, 0.01 * (j - i) as f64);
        assert!(moved <= 1e7 * (span + 0.1 + 0.03), "{moved} in {span} s");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_has_nothing_to_write_needs_nobody() {
    let egress = egress();
    let mut writer = sink(&egress, 1.0);
    assert_eq!(writer.write(&[]).await.unwrap(), 0);
    writer.write_all(b"few").await.unwrap();
    writer.shutdown().await.unwrap();
    assert_eq!(writer.limited_by(), LimitedBy::Share);
    assert!(writer.limit().bytes_per_sec() > 9e6);
}

#[test]
#[should_panic(expected = "NaN is no weight")]
fn a_weight_is_a_number() {
    egress().writer(f64::NAN, tokio::io::sink());
}

#[test]
#[should_panic(expected = "there are 1 classes, and no class 1")]
fn a_class_that_is_not_there_is_a_mistake() {
    egress().writer_of(1, 1.0, tokio::io::sink());
}
