//! Observation of runs: `--watch` and `--metrics`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tollway_report::watch::Scene;
#[cfg(feature = "metrics")]
use tollway_report::watch::metrics::{Metrics, ServeError};
use tollway_scenario::file::Scenario;

use crate::args::Run;
use crate::fail::Failure;
use crate::features;
#[cfg(feature = "metrics")]
use crate::terminal;

/// The display of runs, which stops when dropped.
#[derive(Default)]
pub(crate) struct Watching {
    /// The state that the displays read, if there are any.
    pub(crate) scene: Option<Arc<Scene>>,
    #[cfg(feature = "metrics")]
    _metrics: Option<Metrics>,
    #[cfg(feature = "watch")]
    screen: Option<screen::Screen>,
}

impl Watching {
    /// Starts the displays that `args` request. `interrupted` is set when the user ends the run
    /// there.
    pub(crate) fn start(
        args: &Run,
        scenario: &Scenario,
        interrupted: &Arc<AtomicBool>,
    ) -> Result<Watching, Failure> {
        if !args.watch && args.metrics.is_none() {
            return Ok(Watching::default());
        }
        features::if_not_built(args.watch, args.metrics.is_some(), false)?;
        let variants = scenario.variants();
        if variants.iter().any(|variant| variant.plan.measure.interval.is_none()) {
            return Err(Failure::input(miette::miette!(
                help = "give `measure.interval`, like \"100 ms\"",
                "`--watch` and `--metrics` need interval measurements, which this scenario turns off"
            )));
        }
        let runs =
            variants.iter().map(|variant| (variant.name.as_str(), variant.plan.duration.nearest_secs()));
        Watching::open(Arc::new(Scene::new(runs)), args, &variants[0].plan.title, interrupted)
    }

    #[cfg_attr(not(all(feature = "watch", feature = "metrics")), expect(unused_variables))]
    fn open(
        scene: Arc<Scene>,
        args: &Run,
        title: &str,
        interrupted: &Arc<AtomicBool>,
    ) -> Result<Watching, Failure> {
        Ok(Watching {
            #[cfg(feature = "metrics")]
            _metrics: args
                .metrics
                .map(|address| {
                    let served = Metrics::serve(Arc::clone(&scene), address).map_err(not_served)?;
                    terminal::tell(format_args!("metrics at http://{}/metrics", served.address()));
                    Ok::<_, Failure>(served)
                })
                .transpose()?,
            #[cfg(feature = "watch")]
            screen: match args.watch {
                false => None,
                true => Some(screen::Screen::open(&scene, args, title, interrupted)?),
            },
            scene: Some(scene),
        })
    }

    /// True if the display uses the terminal. Nothing else may write to it.
    pub(crate) fn has_terminal(&self) -> bool {
        #[cfg(feature = "watch")]
        return self.screen.is_some();
        #[cfg(not(feature = "watch"))]
        false
    }
}

/// The error if metrics cannot be served.
#[cfg(feature = "metrics")]
fn not_served(error: ServeError) -> Failure {
    Failure::input(miette::miette!(help = crate::fail::ADDRESS, "{error}"))
}

#[cfg(feature = "watch")]
mod screen {
    use std::io::{Stderr, stderr};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
    use std::thread::JoinHandle;
    use std::time::Duration;

    use ratatui::Terminal;
    use ratatui::backend::CrosstermBackend;
    use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
    use ratatui::crossterm::execute;
    use ratatui::crossterm::terminal::{
        EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
    };
    use tollway_report::watch::Scene;
    use tollway_report::watch::screen::{Viewport, draw};

    use crate::args::{Engine, Run};
    use crate::fail::Failure;
    use crate::{features, terminal};

    /// The terminal on standard error, drawn by a background thread. Standard output stays free for
    /// results.
    pub(super) struct Screen {
        over: Arc<AtomicBool>,
        thread: Option<JoinHandle<()>>,
        /// Disconnected once the thread has ended.
        ended: Receiver<()>,
    }

    impl Screen {
        pub(super) fn open(
            scene: &Arc<Scene>,
            args: &Run,
            title: &str,
            interrupted: &Arc<AtomicBool>,
        ) -> Result<Screen, Failure> {
            enable_raw_mode().map_err(features::no_screen)?;
            // From here on, leaving the scope restores the terminal.
            let restore = Restore;
            execute!(stderr(), EnterAlternateScreen).map_err(features::no_screen)?;
            let mut terminal = Terminal::new(CrosstermBackend::new(stderr())).map_err(features::no_screen)?;
            let over = Arc::new(AtomicBool::new(false));
            let engine = match args.engine {
                Engine::Sim => "simulated",
                Engine::Live => "live",
                Engine::Kernel => "kernel",
            };
            let (scene, title) = (Arc::clone(scene), title.to_owned());
            let (ends, interrupted) = (Arc::clone(&over), Arc::clone(interrupted));
            let (end, ended) = sync_channel(0);
            let thread = std::thread::spawn(move || {
                let _end: std::sync::mpsc::SyncSender<()> = end;
                let _restore = restore;
                let mut view = Viewport::default();
                while !ends.load(Ordering::Relaxed) {
                    if show(&mut terminal, &scene, &mut view, &title, engine, &interrupted).is_err() {
                        // The terminal has gone; the run continues.
                        return;
                    }
                }
            });
            Ok(Screen { over, thread: Some(thread), ended })
        }
    }

    impl Drop for Screen {
        fn drop(&mut self) {
            self.over.store(true, Ordering::Relaxed);
            if self.ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                // A terminal that hangs must not delay the results.
                let _ = disable_raw_mode();
                return;
            }
            if let Some(thread) = self.thread.take() {
                let _ = thread.join();
            }
        }
    }

    /// Restores the terminal when dropped, also after a panic of the drawing thread.
    struct Restore;

    impl Drop for Restore {
        fn drop(&mut self) {
            let _ = execute!(stderr(), LeaveAlternateScreen);
            let _ = disable_raw_mode();
        }
    }

    /// Draws once, and handles the keys pressed since.
    fn show(
        terminal: &mut Terminal<CrosstermBackend<Stderr>>,
        scene: &Scene,
        view: &mut Viewport,
        title: &str,
        engine: &str,
        interrupted: &AtomicBool,
    ) -> std::io::Result<()> {
        // A copy, so that the run does not wait for a slow terminal.
        let runs = scene.runs().clone();
        terminal.draw(|frame| draw(frame, &runs, *view, title, engine))?;
        terminal::await_keys(REFRESH)?;
        if !event::poll(Duration::ZERO)? {
            return Ok(());
        }
        let Event::Key(key) = event::read()? else { return Ok(()) };
        if key.kind == KeyEventKind::Release {
            return Ok(());
        }
        let ctrl_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
        if ctrl_c && interrupted.swap(true, Ordering::Relaxed) {
            // A second Ctrl-C ends the program at once, as without a screen.
            drop(Restore);
            std::process::exit(130);
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => interrupted.store(true, Ordering::Relaxed),
            KeyCode::Tab | KeyCode::Right => *view = Viewport { run: (view.run + 1) % runs.len(), scroll: 0 },
            KeyCode::BackTab | KeyCode::Left => {
                *view = Viewport { run: (view.run + runs.len() - 1) % runs.len(), scroll: 0 };
            }
            KeyCode::Down => {
                let flows = runs.get(view.run).map_or(0, |run| run.current().count());
                view.scroll = (view.scroll + 1).min(flows.saturating_sub(1));
            }
            KeyCode::Up => view.scroll = view.scroll.saturating_sub(1),
            _ => {}
        }
        Ok(())
    }

    /// Time between two pictures.
    const REFRESH: Duration = Duration::from_millis(100);
    /// Longest wait for the last picture.
    const PATIENCE: Duration = Duration::from_secs(1);
}
