//! One node of a network whose other nodes are other processes', here or on other machines.

use tollway_law::Time;
use tollway_proto::transport::{Connection, Event, State};

/// What became of one end of a flow here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its data are through.
    Over,
    /// The other side gave it up.
    Reset,
    /// The other side has been heard of, or anything it sent been of use, for longer than this node has patience: it was given up.
    Silent,
}

/// An end of a flow at this node, and how it fares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watched {
    pub(crate) flow: u32,
    pub(crate) client: bool,
    /// What was last seen of it, and since when it has been so.
    seen: Option<(State, u32, u32)>,
    since: Time,
    peer_finished: bool,
    pub(crate) fate: Option<Fate>,
}

impl Watched {
    pub(crate) fn new(flow: u32, client: bool) -> Watched {
        Watched { flow, client, seen: None, since: Time::ZERO, peer_finished: false, fate: None }
    }

    /// Looks at the machine; answers whether it is to be given up.
    pub(crate) fn look(&mut self, now: Time, machine: &mut Connection, patience: Time) -> bool {
        if self.fate.is_some() {
            return false;
        }
        while let Some(event) = machine.poll_event() {
            match event {
                Event::Reset => self.fate = Some(Fate::Reset),
                Event::PeerFinished => self.peer_finished = true,
                _ => {}
            }
        }
        let through = match self.client {
            true => machine.is_finished(),
            false => self.peer_finished && machine.outstanding() == 0,
        };
        if through {
            self.fate.get_or_insert(Fate::Over);
        }
        let seen = (machine.state(), machine.una(), machine.expected());
        // Who has not been opened waits for as long as it takes.
        if self.seen != Some(seen) || seen.0 == State::Idle {
            (self.seen, self.since) = (Some(seen), now);
        }
        if self.fate.is_none() && now.saturating_sub(self.since) >= patience {
            self.fate = Some(Fate::Silent);
            return true;
        }
        false
    }
}
