//! One rate for many writers of a program: its own egress, divided.
//!
//! Where `tollway shape` paces connections from outside, this is for programs that want to do it themselves: every writer that is wrapped has its
//! weighted share, what one leaves the others have, and it has it back when it wants it. Who gets how much [`tollway_law::shares`] says, as there;
//! a writer that is ahead of its share waits, as for a socket that is full. Bytes are those written: what a protocol below adds is not counted.
//!
//! ```
//! use tokio::io::AsyncWriteExt;
//! use tollway_law::Rate;
//! use tollway_net::egress::Egress;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> std::io::Result<()> {
//! let egress = Egress::new(Rate::from_mbps(80.0)); // ten megabytes a second
//! let mut page = egress.writer(3.0, tokio::io::sink());
//! let mut backup = egress.writer(1.0, tokio::io::sink());
//!
//! let begin = tokio::time::Instant::now();
//! let (first, second) = (vec![0; 15_000_000], vec![0; 5_000_000]);
//! tokio::try_join!(page.write_all(&first), backup.write_all(&second))?; // 7.5 and 2.5 MB/s: both take two seconds
//! let took = begin.elapsed().as_secs_f64();
//! assert!((1.8..2.1).contains(&took), "{took}");
//! # Ok(())
//! # }
//! ```

mod divided;
#[cfg(test)]
mod tests;

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};
use tollway_law::shares::{Contract, LimitedBy, Tenant};
use tollway_law::{Rate, Time};

use divided::{Divided, May};

/// A rate that writers share. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Egress {
    divided: Arc<Mutex<Divided>>,
    origin: Instant,
}

impl Egress {
    /// A rate, bytes a second, for writers that differ by their weight only. A burst is 100 ms of it at most.
    pub fn new(rate: Rate) -> Egress {
        let link = Contract { rate: Some(rate), ..Contract::default() };
        Egress::with(link, &[Tenant { contract: Contract::default(), classes: vec![1.0] }])
    }

    /// A link with tenants, each with a contract of its own and classes of writers.
    pub fn with(link: Contract, tenants: &[Tenant]) -> Egress {
        Egress { divided: Arc::new(Mutex::new(Divided::new(link, tenants))), origin: Instant::now() }
    }

    /// A writer with a share by its weight among all; of the first class.
    ///
    /// # Panics
    /// The weight is no number.
    pub fn writer<W>(&self, weight: f64, inner: W) -> Paced<W> {
        self.writer_of(0, weight, inner)
    }

    /// A writer with a share of its class, which is counted through tenant by tenant.
    ///
    /// # Panics
    /// There are not so many classes, or the weight is no number.
    pub fn writer_of<W>(&self, class: u32, weight: f64, inner: W) -> Paced<W> {
        let number = self.divided().join(class, weight);
        Paced { inner, egress: self.clone(), number, sleep: None }
    }

    fn divided(&self) -> MutexGuard<'_, Divided> {
        // What a thread that broke off has left is still a division.
        self.divided.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.origin.elapsed().as_nanos() as u64)
    }
}

/// A writer that keeps to its share; reading, if it can, is left as it is.
#[derive(Debug)]
pub struct Paced<W> {
    inner: W,
    egress: Egress,
    number: u64,
    /// Made when it is first waited for: only then there need be a runtime.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl<W> Paced<W> {
    /// What it may write now, bytes a second.
    pub fn limit(&self) -> Rate {
        self.egress.divided().limit(self.number)
    }

    /// What holds it back.
    pub fn limited_by(&self) -> LimitedBy {
        self.egress.divided().limited_by(self.number)
    }

    /// What is written to.
    pub fn get_ref(&self) -> &W {
        &self.inner
    }

    /// The same, to change it; what is written to it then is not counted.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.inner
    }

    /// Waits until `until`, or has waited already.
    fn poll_until(&mut self, until: Time, context: &mut Context<'_>) -> Poll<()> {
        let until = self.egress.origin + Duration::from_nanos(until.as_nanos());
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        if sleep.deadline() != until {
            sleep.as_mut().reset(until);
        }
        sleep.as_mut().poll(context)
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Paced<W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let most = loop {
            let now = this.egress.now();
            let may = this.egress.divided().ask(this.number, now, bytes.len());
            match may {
                May::Write(most) => break most,
                May::Wait(until) => ready!(this.poll_until(until, context)),
            }
        };
        let written = Pin::new(&mut this.inner).poll_write(context, &bytes[..most]);
        let now = this.egress.now();
        match &written {
            Poll::Ready(Ok(len)) => this.egress.divided().wrote(this.number, now, *len),
            Poll::Pending => this.egress.divided().held(this.number, now),
            Poll::Ready(Err(_)) => {}
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

impl<W: AsyncRead + Unpin> AsyncRead for Paced<W> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, into)
    }
}

impl<W> Drop for Paced<W> {
    fn drop(&mut self) {
        self.egress.divided().leave(self.number);
    }
}
