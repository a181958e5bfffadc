//! Laws and routing modules of the caller, which replace those of the file.

use std::fmt;

use tollway_law::link::{AnyLink, Descriptor, LinkConfig};
pub use tollway_law::link::{Failure, Placement};
pub use tollway_law::sender::Sending;
use tollway_law::sender::{self, AnySender, SenderConfig, Unanswered};
use tollway_proto::route::Route;
use tollway_proto::shaper::Increase;

use super::*;

/// Makes a law for each sender of a section. Functions implement it.
pub trait MakeSender: Send + Sync {
    /// Returns a new law.
    fn make(&self, of: &Sending<'_>) -> AnySender;

    /// The law's needs, effects and aim. Default: no needs and no aim.
    fn descriptor(&self) -> sender::Descriptor {
        sender::Descriptor::default()
    }

    /// The failure of a law that was made, if any. It ends the run. The runner calls this every 100
    /// ms of the run's time.
    fn failure(&self) -> Option<Failure> {
        None
    }
}

impl<F: Fn(&Sending<'_>) -> AnySender + Send + Sync> MakeSender for F {
    fn make(&self, of: &Sending<'_>) -> AnySender {
        self(of)
    }
}

/// Makes a law for each port of a section's links. Functions implement it.
pub trait MakeLink: Send + Sync {
    /// Returns a new law.
    fn make(&self, at: &Placement<'_>) -> AnyLink;

    /// The law's needs, outputs and aim. Default: none.
    fn descriptor(&self) -> Descriptor {
        Descriptor::default()
    }

    /// As [`MakeSender::failure`].
    fn failure(&self) -> Option<Failure> {
        None
    }
}

impl<F: Fn(&Placement<'_>) -> AnyLink + Send + Sync> MakeLink for F {
    fn make(&self, at: &Placement<'_>) -> AnyLink {
        self(at)
    }
}

/// Makes a routing module for each session of a section's switches. Functions implement it.
pub trait MakeRoute: Send + Sync {
    /// Returns a new module.
    fn make(&self, of: &Spreading<'_>) -> Box<dyn Route + Send>;

    /// As [`MakeSender::failure`].
    fn failure(&self) -> Option<Failure> {
        None
    }
}

impl<F: Fn(&Spreading<'_>) -> Box<dyn Route + Send> + Send + Sync> MakeRoute for F {
    fn make(&self, of: &Spreading<'_>) -> Box<dyn Route + Send> {
        self(of)
    }
}

/// The session that a routing module is made for.
#[derive(Clone, Copy, Debug)]
pub struct Spreading<'a> {
    /// Name of the switch in tables.
    pub switch: &'a str,
    /// The section of the session's flows.
    pub session: &'a str,
    /// The nodes of the members, in the order of [`Route::pick`]'s candidates.
    pub members: &'a [&'a str],
    /// Seed for the module's random generator; differs by session, switch and seed of the run.
    pub seed: u64,
}

/// A sender law of the caller, which replaces the law of the file.
///
/// ```
/// use tollway_law::sender::{AnySender, NewRenoConfig};
/// use tollway_scenario::file::Scenario;
/// use tollway_scenario::plan::{OwnSender, Sending};
/// use tollway_scenario::run::{Options, run};
///
/// # let text = "name = 'wire'\nduration = '1 s'\nnode = { a = {}, b = {} }\n\
/// #     link.wire = { from = 'a', to = 'b', rate = '1 Mbps' }\n\
/// #     flow.long = { from = 'a', to = 'b', law = 'cubic' }\n";
/// let mine = OwnSender::new("mine", |of: &Sending<'_>| {
///     let law = NewRenoConfig { initial_window: of.initial_window, ..Default::default() };
///     AnySender::custom(law.build())
/// });
/// let scenario = Scenario::parse("wire.toml", text, &["flow.long.initial-window=4"])?;
/// let scenario = scenario.with_sender("flow.long", &mine)?;
/// let finished = run(&scenario.variants()[0].plan, &Options::default())?;
/// # assert!(finished.run.packet_hops > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type OwnSender = Own<dyn MakeSender>;

/// A link law of the caller. It works on a single queue.
pub type OwnLink = Own<dyn MakeLink>;

/// A routing module of the caller.
pub type OwnRoute = Own<dyn MakeRoute>;

/// A name and a factory of laws.
pub struct Own<M: ?Sized> {
    name: Arc<str>,
    make: Arc<M>,
}

impl OwnSender {
    /// Returns a law made by `make` and called `name` in result tables.
    pub fn new(name: &str, make: impl MakeSender + 'static) -> OwnSender {
        Own { name: name.into(), make: Arc::new(make) }
    }
}

impl OwnLink {
    /// Returns a law made by `make` and called `name` in result tables.
    pub fn new(name: &str, make: impl MakeLink + 'static) -> OwnLink {
        Own { name: name.into(), make: Arc::new(make) }
    }
}

impl OwnRoute {
    /// Returns a routing module made by `make` and called `name` in result tables.
    pub fn new(name: &str, make: impl MakeRoute + 'static) -> OwnRoute {
        Own { name: name.into(), make: Arc::new(make) }
    }

    /// Returns a module for a session.
    pub(crate) fn module(&self, of: &Spreading<'_>) -> Box<dyn Route + Send> {
        self.make.make(of)
    }
}

impl<M: ?Sized> Clone for Own<M> {
    fn clone(&self) -> Own<M> {
        Own { name: Arc::clone(&self.name), make: Arc::clone(&self.make) }
    }
}

/// Equal if name and factory are the same.
impl<M: ?Sized> PartialEq for Own<M> {
    fn eq(&self, other: &Own<M>) -> bool {
        Arc::ptr_eq(&self.make, &other.make) && self.name == other.name
    }
}

impl<M: ?Sized> fmt::Debug for Own<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Own").field(&self.name).finish()
    }
}

impl SenderConfig for OwnSender {
    fn word(&self) -> &str {
        &self.name
    }

    fn descriptor(&self) -> sender::Descriptor {
        self.make.descriptor()
    }

    fn make(&self, of: &Sending<'_>) -> AnySender {
        self.make.make(of)
    }

    fn failure(&self) -> Option<Failure> {
        self.make.failure()
    }
}

impl LinkConfig for OwnLink {
    fn word(&self) -> &str {
        &self.name
    }

    fn descriptor(&self) -> Descriptor {
        self.make.descriptor()
    }

    fn place(&self, at: &Placement<'_>) -> AnyLink {
        self.make.make(at)
    }

    fn failure(&self) -> Option<Failure> {
        self.make.failure()
    }
}

/// The reason why a caller's law does not fit a scenario.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum NoPlace {
    /// No section has this name.
    #[error("there is nothing called `{key}` that could use your law; there {}", there_are(known))]
    #[diagnostic(help("`*` in place of a name matches every name"))]
    Unknown {
        /// The key that the caller gave.
        key: String,
        /// The keys that exist.
        known: Vec<String>,
    },
    /// Another setting of the section requires a law of Tollway.
    #[error("`{key}` cannot use your law: {why}")]
    #[diagnostic(help("{remedy}"))]
    Refused {
        /// The section.
        key: String,
        /// The reason.
        why: &'static str,
        /// A change that removes the obstacle.
        remedy: &'static str,
    },
}

fn there_are(known: &[String]) -> String {
    match known {
        [] => "is nothing that could use it".into(),
        [one] => format!("is `{one}`"),
        all => format!("are `{}`", all.join("`, `")),
    }
}

impl Plan {
    /// Gives the senders of a section, `flow.NAME` or `workload.NAME`, a law of the caller; `*`
    /// stands for every name.
    ///
    /// All other settings stay. Flows of a tree and flows of the kernel keep their law.
    ///
    /// # Errors
    /// There is no such section, or its senders cannot have another law.
    pub fn set_sender(&mut self, key: &str, law: &OwnSender) -> Result<(), NoPlace> {
        let sections = self.senders();
        let chosen: Vec<&(String, TransportId)> = sections.iter().filter(|one| names(key, &one.0)).collect();
        if chosen.is_empty() {
            return Err(unknown(key, sections.into_iter().map(|one| one.0)));
        }
        for (section, transport) in &chosen {
            self.check_sender(section, *transport, &law.descriptor())?;
        }
        let own = SenderLaw(Arc::new(law.clone()));
        for (_, transport) in chosen {
            self.transports[transport.0 as usize].law = own.clone();
        }
        Ok(())
    }

    /// Gives links, `link.NAME` or in reverse direction `link.NAME.reverse`, a law of the caller;
    /// `*` stands for every name.
    ///
    /// # Errors
    /// There is no such link.
    pub fn set_link(&mut self, key: &str, law: &OwnLink) -> Result<(), NoPlace> {
        let section = |link: &Link| match link.direction {
            Direction::Forward => format!("link.{}", link.section),
            Direction::Reverse => format!("link.{}.reverse", link.section),
        };
        let own = LinkLaw::new(Arc::new(law.clone()), &self.classes);
        let chosen: Vec<bool> = self.links.iter().map(|link| names(key, &section(link))).collect();
        if !chosen.contains(&true) {
            return Err(unknown(key, self.links.iter().map(section)));
        }
        // A link under drop-tail has no change of capacity beside its change of rate. The new law
        // needs one.
        let mut events = Vec::with_capacity(self.events.len());
        for (i, event) in self.events.iter().enumerate() {
            events.push(event.clone());
            let What::Link(on, Change::Rate(rate)) = event.what else { continue };
            let link = &self.links[on.0 as usize];
            let told = |other: &Event| {
                other.at == event.at && matches!(other.what, What::Link(to, Change::Capacity(_)) if to == on)
            };
            let unaware = link.law.is_none() && link.capacity == link.rate;
            if chosen[on.0 as usize] && unaware && !self.events[i..].iter().any(told) {
                events.push(Event { at: event.at, what: What::Link(on, Change::Capacity(rate)) });
            }
        }
        self.events = events;
        let mut last = None;
        for (link, _) in self.links.iter_mut().zip(chosen).filter(|(_, chosen)| *chosen) {
            link.law = own.limited(link.law.limit, &mut last);
        }
        Ok(())
    }

    /// Gives switches, `switch.NAME`, a routing module of the caller; `*` stands for every name.
    ///
    /// The module replaces `policy` and `shares`. A later change of shares replaces the module.
    ///
    /// # Errors
    /// There is no such switch.
    pub fn set_route(&mut self, key: &str, route: &OwnRoute) -> Result<(), NoPlace> {
        let sections: Vec<String> =
            self.switches.iter().map(|switch| format!("switch.{}", switch.section)).collect();
        if !sections.iter().any(|section| names(key, section)) {
            return Err(unknown(key, sections.into_iter()));
        }
        let all = self.switches.iter_mut().zip(&sections);
        all.filter(|(_, section)| names(key, section))
            .for_each(|(switch, _)| switch.own = Some(route.clone()));
        Ok(())
    }

    /// The first failure of a caller's law, with the law's name.
    pub(crate) fn failure(&self) -> Option<(String, Failure)> {
        let senders = self.transports.iter().filter_map(|transport| {
            transport.law.failure().map(|failure| (transport.law.word().to_owned(), failure))
        });
        let links = self.links.iter().filter_map(|link| {
            let law = &link.law.law;
            law.failure().map(|failure| (law.word().to_owned(), failure))
        });
        let routes = self.switches.iter().filter_map(|switch| {
            let own = switch.own.as_ref()?;
            Some((own.name.to_string(), own.make.failure()?))
        });
        senders.chain(links).chain(routes).next()
    }

    /// Returns true if any law or routing module is the caller's.
    pub(crate) fn has_own_laws(&self) -> bool {
        self.transports.iter().any(|transport| transport.law.get::<OwnSender>().is_some())
            || self.links.iter().any(|link| link.law.get::<OwnLink>().is_some())
            || self.switches.iter().any(|switch| switch.own.is_some())
    }

    /// The sections with sender laws: `flow.NAME` and `workload.NAME`, with their transports.
    fn senders(&self) -> Vec<(String, TransportId)> {
        let mut sections: Vec<(String, TransportId)> = Vec::new();
        for flow in &self.flows {
            if sections.iter().all(|one| one.1 != flow.transport) {
                sections.push((format!("flow.{}", flow.section), flow.transport));
            }
        }
        let workload = |one: &Workload| (format!("workload.{}", one.name), one.transport);
        sections.extend(self.workloads.iter().map(workload));
        sections
    }

    fn check_sender(
        &self,
        section: &str,
        transport: TransportId,
        law: &sender::Descriptor,
    ) -> Result<(), NoPlace> {
        let refuse = |why, remedy| Err(NoPlace::Refused { key: section.to_owned(), why, remedy });
        if self.transports[transport.0 as usize].kernel {
            let remedy = "leave out `transport = \"kernel\"`, so that Tollway's transport runs it";
            return refuse("the kernel's TCP runs only its own laws", remedy);
        }
        let of_it = || (0..self.flows.len()).filter(|&i| self.flows[i].transport == transport);
        if of_it().any(|i| self.trees.iter().any(|tree| tree.flows().contains(&i))) {
            return refuse("a multicast flow needs the law `fcp`", "give each receiver a separate flow");
        }
        let workloads = || self.workloads.iter().filter(|workload| workload.transport == transport);
        let class = self.transports[transport.0 as usize].class;
        if let (Unanswered::Mute, Some(content)) = (law.unanswered, law.reads) {
            let mut paths =
                of_it().map(|i| &self.flows[i].path).chain(workloads().flat_map(|one| &one.paths));
            if paths.any(|path| !self.says(path.links(), class, content)) {
                let remedy =
                    "give every link that can be the bottleneck such a law, and set links' laws first";
                return refuse("no link on its path writes the feedback that the law needs", remedy);
            }
        }
        let shaped = workloads().flat_map(|workload| workload.shaped.iter().copied().flatten());
        let mut shaped = shaped.chain(of_it().filter_map(|i| self.flows[i].shaped));
        let told = |class: ShaperClass| {
            let policies = &self.shapers[class.shaper].classes[class.class as usize];
            policies.iter().any(|&policy| self.aggregates[policy].policy.increase != Increase::Standard)
        };
        if !law.increase && shaped.any(told) {
            let remedy = "leave out the aggregate's `window`";
            return refuse("the growth of its window is set by a policy, which needs `newreno`", remedy);
        }
        Ok(())
    }
}

/// Returns true if `key` names `section`; `*` in `key` stands for any name.
fn names(key: &str, section: &str) -> bool {
    let mut parts = section.splitn(3, '.');
    let [of, name, rest] = [(); 3].map(|()| parts.next());
    let mut asked = key.splitn(3, '.').map(str::trim);
    let [asked_of, asked_name, asked_rest] = [(); 3].map(|()| asked.next());
    of == asked_of && rest == asked_rest && (name == asked_name || asked_name == Some("*"))
}

fn unknown(key: &str, known: impl Iterator<Item = String>) -> NoPlace {
    let mut all: Vec<String> = Vec::new();
    for name in known {
        if all.len() < MOST_NAMED && !all.contains(&name) {
            all.push(name);
        }
    }
    NoPlace::Unknown { key: key.to_owned(), known: all }
}

/// Most names that a message lists.
const MOST_NAMED: usize = 12;
