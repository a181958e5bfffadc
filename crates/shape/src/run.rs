//! The agent's loop of ticks, with an interval that limits its processor time.

use std::io;
use std::time::Duration;

use rustix::time::ClockId;
use tollway_law::Time;
use tollway_net::Clock;
use tollway_net::sys::signals::Signals;

use super::Agent;

/// The result of a tick.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Time of the tick, by the agent's clock.
    pub now: Time,
    /// Current interval between ticks.
    pub tick: Time,
    /// Processor time that the agent's thread has used since its start.
    pub cpu: Time,
}

/// The action after a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Continue.
    Go,
    /// Continue with the next tick at once: the policies have changed.
    Hurry,
    /// Free all connections and end.
    Stop,
}

/// Runs `agent` until a signal or `each` ends it, frees what it has paced, and returns the number
/// of connections freed. `each` runs after every tick: there the caller changes policies and
/// reports.
///
/// After a long tick the interval grows, at most to twice the one before. So ticks use at most
/// about a sixteenth of one processor. With ten thousand connections they are rarer accordingly,
/// once the agent knows the connections. The time of `each` is not limited.
///
/// # Errors
/// The kernel can't list connections. Connections are freed all the same, as far as possible.
pub fn run(
    agent: &mut Agent,
    signals: &Signals,
    mut each: impl FnMut(&mut Agent, Turn) -> Then,
) -> io::Result<usize> {
    // Time before the agent's first tick is not counted.
    let clock = Clock::starting_at(agent.last());
    let mut tick = agent.regime().tick;
    let mut cost = Time::ZERO;
    let mut due = clock.now();
    let turned = loop {
        let before = cpu();
        if let Err(error) = agent.tick(|| clock.now(), tick) {
            break Err(error);
        }
        let used = cpu();
        let then = each(agent, Turn { now: agent.last(), tick, cpu: used });
        // The cost of a long tick, such as the first of many connections, is spread over several.
        cost = Time((cost.0 * 3 + used.saturating_sub(before).0) / 4);
        // The shares of this tick assume at most twice its interval.
        tick = agent.regime().tick.max((cost * DUTY).min(tick * 2));
        if then == Then::Stop {
            break Ok(());
        }
        due = if then == Then::Hurry { clock.now() } else { (due + tick).max(clock.now()) };
        let ended = loop {
            agent.beat();
            let pause = due.saturating_sub(clock.now()).min(BEAT);
            if signals.sleep(Duration::from_nanos(pause.0)) {
                break true;
            }
            if clock.now() >= due {
                break false;
            }
        };
        if ended {
            break Ok(());
        }
    };
    let freed = agent.release();
    turned.and(freed)
}

/// The processor time that this thread has used.
fn cpu() -> Time {
    let used = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    Time::from_secs(used.tv_sec as u64) + Time(used.tv_nsec as u64)
}

/// Interval between signs of life to the guardian.
pub(super) const BEAT: Time = Time::from_millis(200);
/// A tick may use at most 1/`DUTY` of the time until the next.
const DUTY: u64 = 16;
