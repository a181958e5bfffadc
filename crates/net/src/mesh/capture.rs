//! A pcap file of the packets at one node of an emulated network, for Wireshark or tcpdump.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{self, SyncSender};
use std::thread::JoinHandle;
use std::time::SystemTime;

use tollway_law::Time;

/// A capture. A separate thread writes the file, because the disk may stall for too long.
#[derive(Debug)]
pub struct Tap {
    to: SyncSender<Vec<u8>>,
    writer: JoinHandle<io::Result<()>>,
    /// The run's start, in nanoseconds since the Unix epoch.
    began: u64,
    /// The node whose packets are captured.
    node: u32,
    missed: u64,
}

impl Tap {
    /// Captures the packets that enter and leave the network at `node` into the file `path`.
    pub fn new(path: &Path, node: u32) -> io::Result<Tap> {
        let mut file = BufWriter::with_capacity(1 << 20, create(path)?);
        file.write_all(&file_header())?;
        let (to, from) = mpsc::sync_channel::<Vec<u8>>(WAITING);
        let writer = std::thread::Builder::new().name("tollway-pcap".into()).spawn(move || {
            for record in from {
                file.write_all(&record)?;
            }
            file.flush()
        })?;
        let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(Tap { to, writer, began: began.as_nanos() as u64, node, missed: 0 })
    }

    /// Notes a packet that enters or leaves the network at `node`.
    pub(super) fn note(&mut self, now: Time, node: u32, packet: &[u8]) {
        if node == self.node && self.to.try_send(record(self.began + now.0, packet)).is_err() {
            self.missed += 1;
        }
    }

    /// Finishes the file. Returns the number of packets that the writer was too slow for.
    pub fn finish(self) -> io::Result<u64> {
        drop(self.to);
        let written = self.writer.join();
        written.unwrap_or_else(|_| Err(io::Error::other("the writer broke off")))?;
        Ok(self.missed)
    }
}

/// Creates the file, in a folder where no other user can plant one or a link.
fn create(path: &Path) -> io::Result<File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let meta = std::fs::metadata(folder)?;
    let stranger = meta.uid() != 0 && meta.uid() != rustix::process::geteuid().as_raw();
    if stranger || meta.mode() & 0o002 != 0 {
        let text =
            format!("other users can write to `{}`: name a file in a folder of your own", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    File::create(path)
}

/// The header of a pcap file with times in nanoseconds and bare IP packets.
fn file_header() -> [u8; 24] {
    let mut header = [0u8; 24];
    header[0..4].copy_from_slice(&0xa1b2_3c4d_u32.to_ne_bytes());
    header[4..6].copy_from_slice(&2u16.to_ne_bytes());
    header[6..8].copy_from_slice(&4u16.to_ne_bytes());
    header[16..20].copy_from_slice(&(1u32 << 16).to_ne_bytes());
    header[20..24].copy_from_slice(&LINKTYPE_RAW.to_ne_bytes());
    header
}

fn record(at: u64, packet: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(16 + packet.len());
    let len = packet.len() as u32;
    for word in [(at / 1_000_000_000) as u32, (at % 1_000_000_000) as u32, len, len] {
        record.extend_from_slice(&word.to_ne_bytes());
    }
    record.extend_from_slice(packet);
    record
}

/// Limit of packets that wait for the writer.
const WAITING: usize = 65_536;
/// Link type of packets that begin with the IP header.
const LINKTYPE_RAW: u32 = 101;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_say_when_and_how_long() {
        let record = record(3_000_000_007, &[0x45; 40]);
        let word = |i: usize| u32::from_ne_bytes(record[4 * i..4 * i + 4].try_into().unwrap());
        assert_eq!([word(0), word(1), word(2), word(3)], [3, 7, 40, 40]);
        assert_eq!(record.len(), 56);
        assert_eq!(file_header().len(), 24);
    }
}
