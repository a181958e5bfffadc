//! The agent as a process: what sees and paces connections, policies put in force as they come, status and service manager.

use std::ffi::OsString;
use std::io;

use tollway_law::Time;
use tollway_scenario::file::ScenarioError;

use crate::loader::{Fresh, Loader};
use crate::policies::{Policies, Source};
use crate::status::Standing;
use crate::supervisor::Supervisor;
use crate::{
    Agent, Control, Guardian, Kernel, LookOnly, Needs, Reach, Regime, Signals, SockDiag, Then, Turn, bpf,
    replay, run, settle_in, unprivileged,
};

/// An agent with the source of its policies and its socket.
pub struct Service {
    agent: Agent,
    control: Control,
    keeper: Keeper,
    /// Frees what the agent has paced if this process is killed.
    _guardian: Option<Guardian>,
}

/// The reader of an agent's state, and of lines about it.
pub trait Audience {
    /// Shows the state that `standing` returns, if that is due. Returns whether the agent is to go on.
    fn show(&mut self, standing: impl FnOnce() -> Option<Standing>) -> bool;

    /// Shows a line; never waits.
    fn tell(&mut self, line: String);
}

/// Policies, and where they come from.
pub type Opened = (Box<dyn Source + Send>, Policies);

impl Service {
    /// Puts the policies in force from the first tick on, and watches their source from now on. `tick` takes the place of the
    /// policies' own; `text` is how mistakes in newer policies are shown.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(
        (kernel, guardian): (Box<dyn Kernel>, Option<Guardian>),
        control: Control,
        (source, policies): Opened,
        tick: Option<Time>,
        text: fn(ScenarioError) -> String,
    ) -> io::Result<Service> {
        let agent = Agent::new(Time::ZERO, kernel, with_tick(policies, tick));
        let loader = unprivileged(|| Loader::start(source, text))?;
        let keeper = Keeper { loader, tick, trouble: None, warned: false };
        Ok(Service { agent, control, keeper, _guardian: guardian })
    }

    /// The policies in force.
    pub fn regime(&self) -> &Regime {
        self.agent.regime()
    }

    /// Paces connections until a signal or the audience ends it. Frees them, and returns how many.
    ///
    /// # Errors
    /// The kernel can't be asked. What was paced is freed all the same, as far as that can be.
    pub fn run(self, signals: &Signals, mut audience: impl Audience) -> io::Result<usize> {
        let Service { mut agent, control, mut keeper, _guardian } = self;
        let mut supervisor = Supervisor::find();
        // The closure drops the audience, which gives the terminal back before more is written.
        run(&mut agent, signals, move |agent, turn| {
            supervisor.tell();
            // Of what was divided at this tick: other policies are in force from the next one on, and so that is at once.
            control.answer(|| serde_json::to_string(&keeper.standing(agent, turn)).unwrap_or_default());
            let goes_on = audience.show(|| Some(keeper.standing(agent, turn)));
            match (goes_on, keeper.keep(agent, turn, |line| audience.tell(line))) {
                (false, _) => Then::Stop,
                (true, false) => Then::Go,
                (true, true) => Then::Hurry,
            }
        })
    }
}

/// Keeps an agent's policies what their source says.
struct Keeper {
    loader: Loader,
    tick: Option<Time>,
    trouble: Option<String>,
    /// The back-end's warning has been passed on.
    warned: bool,
}

impl Keeper {
    /// Returns whether there are others from now on.
    fn keep(&mut self, agent: &mut Agent, turn: Turn, mut tell: impl FnMut(String)) -> bool {
        let warning = agent.warning();
        if let Some(warning) = warning.as_ref().filter(|_| !self.warned) {
            tell(format!("warning: {warning}"));
        }
        self.warned = warning.is_some();
        match self.loader.poll() {
            None => {}
            Some(Fresh::Policies(policies)) => {
                self.trouble = None;
                let regime = with_tick(*policies, self.tick);
                let (new, old) = (&regime.version, &agent.regime().version);
                tell(format!("policies {new} are in force instead of {old}"));
                agent.install(turn.now, regime);
                return true;
            }
            Some(Fresh::Trouble { text, first }) => {
                tell(format!("{text}\npolicies {} stay in force", agent.regime().version));
                self.trouble = Some(first);
            }
        }
        false
    }

    fn standing(&self, agent: &Agent, turn: Turn) -> Standing {
        Standing {
            status: agent.status(),
            turn,
            source: self.loader.name().to_owned(),
            trouble: self.trouble.clone(),
        }
    }
}

/// The way to see and pace connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// [`SockDiag`].
    InetDiag,
    /// [`bpf::Bpf`].
    Bpf,
    /// The latter, or the former where that can't be had.
    Auto,
}

/// Why there is no back-end.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The kernel can't be asked, or the guardian not be started.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The kernel takes no programs.
    #[error(transparent)]
    Bpf(#[from] bpf::Unavailable),
    /// Connections of other network namespaces are meant, and `inet_diag` sees none of them.
    #[error("inet_diag sees the connections of this network namespace only")]
    Everywhere,
}

/// Starts what sees and paces connections, and what frees them when this process can't, `guardian`, given the words for the
/// back-end; all rights that neither needs are given up. `note` shows what people may want to know of it.
///
/// # Errors
/// See [`BackendError`].
pub fn kernel(
    backend: Backend,
    everywhere: bool,
    control: &Control,
    guardian: impl Fn(&[&str]) -> io::Result<Vec<OsString>>,
    note: impl Fn(&str),
) -> Result<(Box<dyn Kernel>, Option<Guardian>), BackendError> {
    let record = control.record();
    let guard = |more: &[&str]| {
        let mut program = guardian(more)?;
        program.extend(["--record".into(), record.clone().into_os_string()]);
        Guardian::start(&program, control.claim(), &record)
    };
    // Both may have been killed: what was paced then is not what programs have set.
    let (freed, left) = replay(&record)?;
    if freed + left > 0 {
        note(&format!(
            "an agent before was killed, and left {freed} connections paced, which are free again"
        ));
    }
    let config = bpf::Config { everywhere, ..bpf::Config::default() };
    match (backend != Backend::InetDiag).then(|| bpf::Bpf::start(&config)) {
        Some(Ok(kernel)) => {
            let everywhere = everywhere.then_some("--everywhere");
            let guardian = guard(&["--bpf"].into_iter().chain(everywhere).collect::<Vec<_>>())?;
            settle_in(Needs::Programs)?;
            return Ok((Box::new(kernel), Some(guardian)));
        }
        Some(Err(error)) if backend == Backend::Bpf => return Err(error.into()),
        Some(Err(error)) => note(&format!("{error}; inet_diag is used instead")),
        None => {}
    }
    if everywhere {
        return Err(BackendError::Everywhere);
    }
    let guardian = guard(&[])?;
    say_reach(note);
    settle_in(Needs::Sockets)?;
    Ok((Box::new(SockDiag::new()?.guarded(guardian)), None))
}

/// Looks for a second and sets nothing. Returns the state then; none if a signal came first.
///
/// # Errors
/// The kernel can't be asked.
pub fn dry_run(
    (source, policies): Opened,
    tick: Option<Time>,
    signals: &Signals,
    note: impl Fn(&str),
) -> io::Result<Option<Standing>> {
    say_reach(note);
    let kernel = LookOnly(SockDiag::new()?);
    let mut agent = Agent::new(Time::ZERO, Box::new(kernel), with_tick(policies, tick));
    let mut last = None;
    run(&mut agent, signals, |agent, turn| {
        if turn.now < Time::from_secs(1) {
            return Then::Go;
        }
        last = Some(Standing { status: agent.status(), turn, source: source.describe(), trouble: None });
        Then::Stop
    })?;
    Ok(last)
}

fn say_reach(note: impl Fn(&str)) {
    match Reach::find() {
        Reach::All => {}
        Reach::User => note(
            "only connections of this user's processes can be paced; run as root, or give `tollway` CAP_SYS_PTRACE and \
             CAP_DAC_READ_SEARCH, for everybody's",
        ),
        Reach::Children => note(
            "this system's Yama module lets no process reach another's sockets, so that nothing is paced; run as root, or \
             give `tollway` CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, or set `sysctl kernel.yama.ptrace_scope=0`",
        ),
    }
}

fn with_tick(policies: Policies, tick: Option<Time>) -> Regime {
    let mut regime = policies.into_regime();
    regime.tick = tick.unwrap_or(regime.tick);
    regime
}
