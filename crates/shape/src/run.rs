//! The agent's days: tick after tick, as often as is asked for and as seldom as keeps it cheap.

use std::io;
use std::time::Duration;

use rustix::time::ClockId;
use tollway_law::Time;
use tollway_net::Clock;
use tollway_net::sys::signals::Signals;

use super::Agent;

/// What a tick was like.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// When, by the agent's clock.
    pub now: Time,
    /// How far ticks are apart now.
    pub tick: Time,
    /// The processor's time that the agent has used since it began.
    pub cpu: Time,
}

/// What to do after a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Go on.
    Go,
    /// The same, with the next tick at once: something else is to hold.
    Hurry,
    /// Free all connections and end.
    Stop,
}

/// Runs `agent` until a signal, or `each`, ends it, and frees what it has paced. `each` is called after every tick: there
/// policies are changed and people told.
///
/// A tick that takes long is followed by a longer pause, at most twice as long as the one before: it uses no more than about a sixteenth of
/// one processor, and ten thousand connections are looked at as much less often, once it has come to know them. What `each` takes is for
/// `each` to mind.
///
/// # Errors
/// The kernel can't be asked. What was paced is freed all the same, as far as that can be.
pub fn run(
    agent: &mut Agent,
    signals: &Signals,
    mut each: impl FnMut(&mut Agent, Turn) -> Then,
) -> io::Result<usize> {
    // Time that has passed before the agent's first look is nobody's.
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
        // A dear tick, such as the first of many connections, is paid for by several.
        cost = Time((cost.0 * 3 + used.saturating_sub(before).0) / 4);
        // What was lent at this tick was for two of them.
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

/// What this thread has used of a processor.
fn cpu() -> Time {
    let used = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    Time::from_secs(used.tv_sec as u64) + Time(used.tv_nsec as u64)
}

/// How often the guardian hears that the agent is there.
pub(super) const BEAT: Time = Time::from_millis(200);
/// A tick may use one part in so many of the time until the next.
const DUTY: u64 = 16;
