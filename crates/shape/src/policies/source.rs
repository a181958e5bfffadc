//! Sources of policies, and the detection of changes.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tollway_agent::file::{self, Mark, Watch};
use tollway_scenario::file::ScenarioError;

use super::Policies;

/// A source of policies.
pub trait Source {
    /// Returns the news since the last call. Must not block: it is called at every tick.
    fn poll(&mut self) -> News;

    /// A name of the source for users.
    fn describe(&self) -> String;
}

/// The news from a source.
#[derive(Debug)]
pub enum News {
    /// No change.
    None,
    /// New policies without mistakes.
    Policies(Box<Policies>),
    /// New policies with mistakes: those in force stay.
    Wrong(Box<ScenarioError>),
    /// The source can't be read, or is empty, with the reason: the policies in force stay.
    Away(String),
}

/// True if the policies in force have a tenant. Policies without one do not replace them. A shell's
/// `>` empties a file first, and a store may be between two keys.
#[derive(Debug, Default)]
pub(super) struct Pacing(bool);

impl Pacing {
    /// The first policies may be without a tenant.
    pub(super) fn begin(policies: &Policies) -> Pacing {
        Pacing(!policies.regime().tenants.is_empty())
    }

    /// The news for policies without mistakes from `source`.
    pub(super) fn news(&mut self, source: &str, policies: Policies) -> News {
        let about = !policies.regime().tenants.is_empty();
        if self.0 && !about {
            return News::Away(format!(
                "`{source}` has no `[aggregate.NAME]` any more (to pace nothing, stop the agent)"
            ));
        }
        self.0 = about;
        News::Policies(Box::new(policies))
    }
}

/// A policy file under watch.
pub struct FileSource {
    path: PathBuf,
    open: Opener,
    watch: Watch,
    pacing: Pacing,
    /// The reason why the file could not be read, and the time of the next try. Its permissions may
    /// change while the mark does not.
    unread: Option<(String, Instant)>,
}

/// Opens the file that has the name now, without waiting for the writer of a FIFO.
pub type Opener = Box<dyn FnMut() -> io::Result<File> + Send>;

impl FileSource {
    /// Watches the file that `open` opens, and reads it for the first time. Messages name it
    /// `path`.
    ///
    /// # Errors
    /// The file can't be read, or has mistakes.
    pub fn open(path: &Path, mut open: Opener) -> Result<(FileSource, Policies), ScenarioError> {
        let unreadable = |error| ScenarioError::Unreadable { path: path.to_owned(), error };
        let file = open().map_err(unreadable)?;
        let mark = mark(&file).ok();
        let policies = Policies::read(path, &file)?;
        let pacing = Pacing::begin(&policies);
        let watch = Watch::new(mark);
        Ok((FileSource { path: path.to_owned(), open, watch, pacing, unread: None }, policies))
    }
}

impl std::fmt::Debug for FileSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileSource").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Source for FileSource {
    fn poll(&mut self) -> News {
        let found = (self.open)().and_then(|file| Ok((mark(&file)?, file)));
        let (new, now) = (found.as_ref().ok().map(|&(mark, _)| mark), Instant::now());
        let again = self.unread.as_ref().is_some_and(|&(_, at)| at <= now);
        if !self.watch.is_due(new, again) {
            return News::None;
        }
        let before = self.unread.take();
        let path = self.describe();
        let file = match found {
            Ok((_, file)) => file,
            Err(error) => return News::Away(format!("`{path}` cannot be read: {error}")),
        };
        match Policies::read(&self.path, &file) {
            Ok(policies) => self.pacing.news(&path, policies),
            Err(error) => {
                if error.mistakes().is_empty() {
                    let why = error.to_string();
                    let said = before.is_some_and(|(said, _)| said == why);
                    self.unread = Some((why, now + AGAIN));
                    if said {
                        return News::None;
                    }
                }
                News::Wrong(Box::new(error))
            }
        }
    }

    fn describe(&self) -> String {
        self.path.display().to_string()
    }
}

fn mark(file: &File) -> io::Result<Mark> {
    let meta = file.metadata()?;
    if !meta.is_file() {
        // To read a pipe would block until there is a writer.
        return Err(io::Error::other("it is not a file"));
    }
    file::mark(&meta)
}

/// Interval between tries to read a file that can't be read.
const AGAIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::os::unix::fs::OpenOptionsExt;

    use super::*;

    fn opener(path: &Path) -> Opener {
        let path = path.to_owned();
        // O_NONBLOCK.
        Box::new(move || File::options().read(true).custom_flags(0o4000).open(&path))
    }

    fn await_news(source: &mut FileSource) -> News {
        loop {
            match source.poll() {
                News::None => std::thread::sleep(Duration::from_millis(5)),
                news => return news,
            }
        }
    }

    #[test]
    fn a_file_is_read_again_when_it_changes_and_stays_in_force_when_it_is_wrong() {
        let path = std::env::temp_dir().join(format!("tollway-policies-{}.toml", std::process::id()));
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        write("version = \"a\"\n[link]\nrate = \"10 Mbps\"\n[aggregate.all]\n");
        let (mut source, first) = FileSource::open(&path, opener(&path)).unwrap();
        assert_eq!(first.regime().version, "a");
        assert!(matches!(source.poll(), News::None));
        write("version = \"b\"\n[link]\nrate = \"10 Mbqs\"\n[aggregate.all]\n");
        let News::Wrong(error) = await_news(&mut source) else { panic!("a wrong unit is wrong") };
        assert!(error.to_string().contains("Mbqs"), "{error}");
        write("version = \"c\"\n[link]\nrate = \"100 Mbps\"\n[aggregate.all]\n");
        let News::Policies(third) = await_news(&mut source) else { panic!("this is good") };
        assert_eq!(third.regime().version, "c");
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(await_news(&mut source), News::Away(_)));
        write("version = \"d\"\n[link]\nrate = \"100 Mbps\"\n[aggregate.all]\n");
        assert!(matches!(await_news(&mut source), News::Policies(_)));
        // A shell's `>` empties the file first. A file without a tenant does not end all pacing.
        for empty in ["", "version = \"e\"\n[link]\nrate = \"100 Mbps\"\n"] {
            write(empty);
            let News::Away(why) = await_news(&mut source) else { panic!("nothing is left") };
            assert!(why.contains("stop the agent"), "{why}");
            assert!(matches!(source.poll(), News::None), "it is said once");
        }
        std::fs::remove_file(&path).unwrap();
        // Policies that never had a tenant may stay without one.
        write("");
        let (mut source, _) = FileSource::open(&path, opener(&path)).unwrap();
        write("version = \"f\"\n");
        assert!(matches!(await_news(&mut source), News::Policies(_)));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_cannot_be_read_is_said_once_and_read_when_it_can_be() {
        let path = std::env::temp_dir().join(format!("tollway-unread-{}.toml", std::process::id()));
        let right =
            |version: &str| format!("version = \"{version}\"\n[link]\nrate = \"10 Mbps\"\n[aggregate.all]\n");
        std::fs::write(&path, right("a")).unwrap();
        let (mut source, _) = FileSource::open(&path, opener(&path)).unwrap();
        // Root may read every file, so the test uses another encoding. Its bytes change while its
        // mark does not.
        std::fs::write(&path, [0xff, 0xfe, 0]).unwrap();
        let News::Wrong(error) = await_news(&mut source) else { panic!("it cannot be read") };
        assert!(error.to_string().contains("UTF-16"), "{error}");
        let tried = source.unread.as_ref().unwrap().1;
        while source.unread.as_ref().unwrap().1 == tried {
            assert!(matches!(source.poll(), News::None), "it is said once");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::fs::write(&path, right("b")).unwrap();
        source.watch = Watch::new(mark(&opener(&path)().unwrap()).ok());
        let News::Policies(policies) = await_news(&mut source) else { panic!("now it can be read") };
        assert_eq!(policies.regime().version, "b");
        // A pipe without a writer does not block.
        std::fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let News::Away(why) = await_news(&mut source) else { panic!("it is not a file") };
        assert!(why.contains("it is not a file"), "{why}");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_that_is_still_written_to_is_not_read() {
        let path = std::env::temp_dir().join(format!("tollway-written-{}.toml", std::process::id()));
        let whole = "[link]\nrate = \"10 Mbps\"\n[aggregate.a]\n[aggregate.b]\nto-port = 80\n";
        std::fs::write(&path, whole).unwrap();
        let (mut source, _) = FileSource::open(&path, opener(&path)).unwrap();
        // Up to here each time, which alone is a valid file.
        let half = whole.find("[aggregate.b]").unwrap();
        std::fs::write(&path, &whole[..half]).unwrap();
        assert!(matches!(source.poll(), News::None));
        std::fs::write(&path, format!("{whole}# All of it.\n")).unwrap();
        let News::Policies(policies) = await_news(&mut source) else { panic!("it is right") };
        assert_eq!(policies.regime().tenants.len(), 2);
        std::fs::remove_file(&path).unwrap();
    }
}
