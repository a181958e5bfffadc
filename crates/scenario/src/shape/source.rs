//! Where policies come from, and when there are new ones.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::{Policies, PolicyError};

/// A place that policies come from.
pub trait Source {
    /// What is new since the last call; called at every tick, so that it must not wait.
    fn poll(&mut self) -> News;

    /// What people call it.
    fn describe(&self) -> String;
}

/// What a source has to say.
#[derive(Debug)]
pub enum News {
    /// Nothing.
    None,
    /// Policies that are good.
    Policies(Box<Policies>),
    /// Something that is not: what was in force stays.
    Wrong(Box<PolicyError>),
    /// The source itself can't be reached: what was in force stays.
    Away(String),
}

/// A file that is watched.
#[derive(Debug)]
pub struct FileSource {
    path: PathBuf,
    /// What it was when it was read last.
    mark: Option<Mark>,
    next: Instant,
}

/// What of a file changes when it does: the length too, since a clock may be coarse, and the number, since editors write another file.
type Mark = (SystemTime, u64, u64);

impl FileSource {
    /// Watches `path`, and reads it for the first time.
    ///
    /// # Errors
    /// It can't be read, or is wrong.
    pub fn open(path: &Path) -> Result<(FileSource, Policies), PolicyError> {
        let mark = mark(path).ok();
        let policies = Policies::load(path)?;
        Ok((FileSource { path: path.to_owned(), mark, next: Instant::now() + LOOK }, policies))
    }
}

impl Source for FileSource {
    fn poll(&mut self) -> News {
        let now = Instant::now();
        if now < self.next {
            return News::None;
        }
        self.next = now + LOOK;
        let new = match mark(&self.path) {
            Ok(new) => Some(new),
            // Between an editor's two steps there may be none.
            Err(error) if self.mark.is_some() => {
                self.mark = None;
                return News::Away(format!("`{}` cannot be read: {error}", self.path.display()));
            }
            Err(_) => None,
        };
        if new.is_none() || new == self.mark {
            return News::None;
        }
        self.mark = new;
        match Policies::load(&self.path) {
            Ok(policies) => News::Policies(Box::new(policies)),
            Err(error) => News::Wrong(Box::new(error)),
        }
    }

    fn describe(&self) -> String {
        self.path.display().to_string()
    }
}

fn mark(path: &Path) -> std::io::Result<Mark> {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata(path)?;
    Ok((meta.modified()?, meta.len(), meta.ino()))
}

/// How often a file is looked at.
const LOOK: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

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
        let (mut source, first) = FileSource::open(&path).unwrap();
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
        std::fs::remove_file(&path).unwrap();
    }
}
