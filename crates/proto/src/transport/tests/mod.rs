//! Tests as stories of a [`pair::Pair`]: two endpoints and a channel with seeded faults.

mod basics;
mod delivery;
mod early;
mod hostile;
mod marks;
mod ns2;
mod pacing;
mod predict;
mod reading;
mod recovery;
mod sampling;
mod streams;

mod pair;

use super::Connection;

impl Connection {
    /// The counts of the scoreboard are those of its flags.
    fn check_counts(&self) {
        let board = &self.send.board;
        if self.config.heeds_ranges() {
            let kept = [board.sacked, board.lost, board.resent, board.pending];
            assert_eq!(kept, board.recount(), "sacked, lost, resent, pending");
        }
        assert!(board.outstanding() < 1 << 30);
    }
}
