//! Captures: packets on links, as a pcapng file for Wireshark (draft-ietf-opsawg-pcapng).
//!
//! This module writes the four block types itself. A capture of a simulation needs nanosecond
//! timestamps, comments, and an interface for each link direction.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tollway_law::Time;
use tollway_proto::Flags;
use tollway_proto::encoding::frame::{Address, ByteNumbers, Frame, write_plain};
use tollway_proto::transport::Connection;
use tollway_sim::{End, Fate, FlowId, LinkId, Network, Origin, Sighting};

use super::build::Built;
use crate::file::matches;
use crate::plan::{NodeId, Plan};
use crate::tables::Unwritten;

/// Settings of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// The file to write.
    pub path: PathBuf,
    /// Names of links, with `*` for any characters and `?` for one; all links if empty.
    pub links: Vec<String>,
    /// Bytes kept of each packet; bytes after its headers are zero in any case.
    pub snaplen: u32,
}

impl Capture {
    /// Returns a capture of all links to `path`, with room for the largest headers of a packet.
    pub fn new(path: impl Into<PathBuf>) -> Capture {
        Capture { path: path.into(), links: Vec::new(), snaplen: 128 }
    }

    /// Returns, for each link of `plan`, true if the capture includes it.
    ///
    /// # Errors
    /// [`CaptureError::UnknownLink`]: a pattern matches no link.
    pub fn chosen(&self, plan: &Plan) -> Result<Vec<bool>, CaptureError> {
        let mut chosen = vec![self.links.is_empty(); plan.links.len()];
        for pattern in &self.links {
            let mut any = false;
            for (is, link) in chosen.iter_mut().zip(&plan.links) {
                let hit = matches(pattern, &link.name);
                *is |= hit;
                any |= hit;
            }
            if !any {
                let known = plan.links.iter().take(20).map(|link| format!("`{}`", link.name)).collect();
                return Err(CaptureError::UnknownLink { name: pattern.clone(), known });
            }
        }
        Ok(chosen)
    }
}

/// The reason for a failed capture.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// No link has this name.
    #[error("no link is called `{name}`; there are {}", known.join(", "))]
    UnknownLink {
        /// The given name or pattern.
        name: String,
        /// Existing links; only some if there are many.
        known: Vec<String>,
    },
    /// The file could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// Writes the packets on a network's tapped links.
pub(super) struct Writer {
    path: PathBuf,
    file: BufWriter<File>,
    snaplen: usize,
    /// The interface of each link of the simulator.
    interfaces: HashMap<u32, u32>,
    /// The plan's link of each link of the simulator.
    links: HashMap<u32, usize>,
    numbers: HashMap<FlowId, ByteNumbers>,
    frame: Vec<u8>,
    block: Vec<u8>,
    /// The first error; nothing is written after it, but the run goes on.
    failed: Option<io::Error>,
}

impl Writer {
    /// Taps the links and creates the file.
    pub(super) fn new(
        capture: &Capture,
        plan: &Plan,
        built: &mut Built<Network<Connection>>,
    ) -> Result<Writer, CaptureError> {
        let chosen = capture.chosen(plan)?;
        let failed = |source| CaptureError::Write { path: capture.path.clone(), source };
        if let Some(folder) = capture.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let mut writer = Writer {
            path: capture.path.clone(),
            file: BufWriter::new(File::create(&capture.path).map_err(failed)?),
            snaplen: capture.snaplen as usize,
            interfaces: HashMap::new(),
            links: HashMap::new(),
            numbers: HashMap::new(),
            frame: Vec::new(),
            block: Vec::new(),
            failed: None,
        };
        writer.section(plan).map_err(failed)?;
        for (i, link) in plan.links.iter().enumerate() {
            let id = LinkId(i as u32);
            writer.links.insert(id.0, i);
            if chosen[i] {
                built.network.tap(id);
                let number = writer.interfaces.len() as u32;
                writer.interfaces.insert(id.0, number);
                let node = |id: NodeId| &plan.nodes[id.0 as usize].name;
                let says = format!("{} to {}", node(link.from), node(link.to));
                writer.interface(&link.name, &says, link.rate.bps()).map_err(failed)?;
            }
        }
        Ok(writer)
    }

    /// Writes the packets since the last call.
    pub(super) fn drain(&mut self, plan: &Plan, built: &mut Built<Network<Connection>>) {
        for sighting in built.network.drain_sightings() {
            if self.failed.is_none() {
                self.failed = self.write(plan, &sighting).err();
            }
        }
    }

    /// Completes the file; returns the error if some of it was not written.
    pub(super) fn finish(mut self) -> Option<Unwritten> {
        let failed = self.failed.or_else(|| self.file.flush().err());
        failed.map(|source| {
            let error = CaptureError::Write { path: self.path.clone(), source };
            Unwritten::new(&self.path, error)
        })
    }

    fn write(&mut self, plan: &Plan, seen: &Sighting) -> io::Result<()> {
        let Some(&interface) = self.interfaces.get(&seen.link.0) else { return Ok(()) };
        let link = |id: tollway_sim::LinkId| self.links.get(&id.0).map(|&i| &plan.links[i]);
        let (from, to) = (link(seen.ends.0).map(|l| l.from), link(seen.ends.1).map(|l| l.to));
        let (source, destination) = (address(from), address(to));
        self.frame.clear();
        let whole = match seen.origin {
            Origin::Source(id) => {
                let source = Address { address: source, port: port(CLIENT_PORTS, id.0) };
                write_plain(&seen.packet, source, destination, self.snaplen, &mut self.frame)
            }
            Origin::Machine { flow, end, encoding, segment, heard_rtt } => {
                let (client, server) = (port(CLIENT_PORTS, flow.0), SERVER_PORT);
                let ports = if end == End::Client { (client, server) } else { (server, client) };
                let known = self.numbers.get(&flow).copied();
                let mut frame = Frame {
                    packet: &seen.packet,
                    sack: &seen.sack,
                    encoding,
                    segment,
                    heard_rtt,
                    source: Address { address: source, port: ports.0 },
                    destination: Address { address: destination, port: ports.1 },
                    numbers: known.unwrap_or(ByteNumbers { payload: 1448, handshake: true }),
                };
                let data = seen.packet.flags.has(Flags::DATA);
                if data && known.is_none() && u32::from(seen.packet.size) >= segment {
                    // A flow's first full segment determines its payload, and shows if a SYN came
                    // before.
                    let handshake = seen.packet.seq > 0;
                    frame.numbers = ByteNumbers { payload: frame.payload().max(1), handshake };
                    self.numbers.insert(flow, frame.numbers);
                } else if seen.packet.flags.has(Flags::SYN) {
                    // An earlier flow may have had this number.
                    self.numbers.remove(&flow);
                }
                frame.write(self.snaplen, &mut self.frame)
            }
        };
        let comment = match seen.fate {
            Fate::Crossed => None,
            Fate::Dropped => Some("dropped at the link's port"),
            Fate::Lost => Some("lost on the wire"),
        };
        self.packet(interface, seen.at, whole as u32, comment)
    }

    /// Writes the Section Header Block.
    fn section(&mut self, plan: &Plan) -> io::Result<()> {
        self.block.clear();
        self.block.extend_from_slice(&0x1a2b_3c4d_u32.to_le_bytes());
        self.block.extend_from_slice(&[1, 0, 0, 0]);
        self.block.extend_from_slice(&u64::MAX.to_le_bytes());
        self.option(OPT_COMMENT, plan.title.as_bytes());
        self.option(4, concat!("tollway ", env!("CARGO_PKG_VERSION")).as_bytes());
        self.end_block(0x0a0d_0d0a)
    }

    /// Writes an Interface Description Block: raw IP, nanoseconds.
    fn interface(&mut self, name: &str, says: &str, bits_per_second: f64) -> io::Result<()> {
        self.block.clear();
        self.block.extend_from_slice(&LINKTYPE_RAW.to_le_bytes());
        self.block.extend_from_slice(&[0, 0]);
        self.block.extend_from_slice(&(self.snaplen as u32).to_le_bytes());
        self.option(2, name.as_bytes());
        self.option(3, says.as_bytes());
        self.option(8, &(bits_per_second as u64).to_le_bytes());
        self.option(9, &[9]);
        self.end_block(1)
    }

    /// Writes an Enhanced Packet Block with the contents of `frame`.
    fn packet(&mut self, interface: u32, at: Time, whole: u32, comment: Option<&str>) -> io::Result<()> {
        self.block.clear();
        let words = [interface, (at.0 >> 32) as u32, at.0 as u32, self.frame.len() as u32, whole];
        words.iter().for_each(|word| self.block.extend_from_slice(&word.to_le_bytes()));
        self.block.extend_from_slice(&self.frame);
        self.pad();
        if let Some(comment) = comment {
            self.option(OPT_COMMENT, comment.as_bytes());
        }
        self.end_block(6)
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        // Longer values, such as a title of more than 64 KiB, are cut.
        let value = &value[..value.len().min(0xffff)];
        self.block.extend_from_slice(&code.to_le_bytes());
        self.block.extend_from_slice(&(value.len() as u16).to_le_bytes());
        self.block.extend_from_slice(value);
        self.pad();
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn end_block(&mut self, kind: u32) -> io::Result<()> {
        let len = (self.block.len() as u32 + 12).to_le_bytes();
        self.file.write_all(&kind.to_le_bytes())?;
        self.file.write_all(&len)?;
        self.file.write_all(&self.block)?;
        self.file.write_all(&len)
    }
}

/// The path of the capture of variant `name`: `out.NAME.pcapng` for `out.pcapng`; unchanged if
/// `name` is empty.
pub fn variant_path(path: &Path, name: &str) -> PathBuf {
    if name.is_empty() {
        return path.to_owned();
    }
    let ending = path.extension().map_or_else(|| "pcapng".into(), |e| e.to_string_lossy().into_owned());
    path.with_extension(format!("{name}.{ending}"))
}

/// A node's address: 10.0.0.1 for the first, 10.0.0.2 for the second.
fn address(node: Option<NodeId>) -> [u8; 4] {
    (0x0a00_0000_u32 + (node.map_or(0, |node| node.0 + 1) & 0x00ff_ffff)).to_be_bytes()
}

fn port(first: u16, number: u32) -> u16 {
    first + (number % u32::from(u16::MAX - first)) as u16
}

const OPT_COMMENT: u16 = 1;
const LINKTYPE_RAW: u16 = 101;
const CLIENT_PORTS: u16 = 40_000;
const SERVER_PORT: u16 = 4717;
