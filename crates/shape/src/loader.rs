//! Policies, looked for by a thread of their own: neither a slow disk nor a long file holds a tick up.

use std::io;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use tollway_scenario::file::ScenarioError;

use crate::policies::{News, Policies, Source};

/// The thread that looks for policies.
pub(crate) struct Loader {
    fresh: Receiver<Fresh>,
    name: String,
}

/// News of a source.
pub(crate) enum Fresh {
    /// Policies that are good.
    Policies(Box<Policies>),
    /// A reason why the policies in force stay.
    Trouble {
        /// The reason as the terminal shows it.
        text: String,
        /// Its first mistake.
        first: String,
    },
}

impl Loader {
    /// Looks at `source` from now on; `text` is how mistakes are shown.
    pub(crate) fn start(
        mut source: Box<dyn Source + Send>,
        text: fn(ScenarioError) -> String,
    ) -> io::Result<Loader> {
        let name = source.describe();
        let (next, fresh) = sync_channel(0);
        std::thread::Builder::new().name("policies".into()).spawn(move || {
            loop {
                let news = match source.poll() {
                    News::None => {
                        std::thread::sleep(PAUSE);
                        continue;
                    }
                    News::Policies(policies) => Fresh::Policies(policies),
                    News::Away(why) => Fresh::Trouble { text: why.clone(), first: why },
                    News::Wrong(error) => {
                        let first = error.mistakes().first();
                        let first = first.map_or_else(|| error.to_string(), |one| one.message.clone());
                        Fresh::Trouble { text: text(*error), first }
                    }
                };
                if next.send(news).is_err() {
                    return;
                }
            }
        })?;
        Ok(Loader { fresh, name })
    }

    /// The news since the last call; never waits.
    pub(crate) fn poll(&self) -> Option<Fresh> {
        self.fresh.try_recv().ok()
    }

    /// The name of the source.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);
