//! Key files: a secret key, and the public keys of the other parties.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use snow::params::DHChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};

/// A key of Curve25519, secret or public.
pub type Key = [u8; 32];

/// One party's secret key, and the public keys of the others by name.
///
/// ```text
/// secret 2f…c1 a
/// public 77…0e b
/// public 90…4d r
/// ```
///
/// A line has a word, 64 hexadecimal digits and a name. Empty lines and lines that begin with `#`
/// are ignored.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyFile {
    /// Name of the party that owns the file.
    pub name: String,
    pub(super) secret: Key,
    pub(super) others: BTreeMap<String, Key>,
}

impl KeyFile {
    /// Makes keys for parties with these names: a file for each, with the public keys of all
    /// others.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub fn mesh(names: &[String]) -> io::Result<Vec<KeyFile>> {
        let mut secrets = Vec::new();
        for _ in names {
            secrets.push(crate::random()?);
        }
        let public: Vec<Key> = secrets.iter().map(public_of).collect();
        let file = |(i, secret): (usize, Key)| {
            let others = names.iter().zip(&public).filter(|(name, _)| **name != names[i]);
            let others = others.map(|(name, key)| (name.clone(), *key)).collect();
            KeyFile { name: names[i].clone(), secret, others }
        };
        Ok(secrets.into_iter().enumerate().map(file).collect())
    }

    /// Reads the text of a key file.
    ///
    /// # Errors
    /// [`KeyFileError::Line`] names the wrong line; [`KeyFileError::NoSecret`].
    pub fn parse(text: &str) -> Result<KeyFile, KeyFileError> {
        let (mut own, mut others) = (None, BTreeMap::new());
        for (line, content) in (1..).zip(text.lines()) {
            let content = content.trim();
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            let wrong = |why: &'static str| KeyFileError::Line { line, why };
            let (word, rest) = content.split_once(' ').ok_or(wrong(FORM))?;
            let (digits, name) = rest.trim_start().split_once(' ').ok_or(wrong(FORM))?;
            let key = unhex(digits).ok_or(wrong("a key has 64 hexadecimal digits"))?;
            let name = name.trim_start().to_owned();
            let known = own.as_ref().is_some_and(|(own, _)| *own == name) || others.contains_key(&name);
            match word {
                _ if known => return Err(wrong("the name already has a key")),
                "secret" if own.is_some() => return Err(wrong("a key file has one secret key")),
                "secret" => own = Some((name, key)),
                "public" => {
                    others.insert(name, key);
                }
                _ => return Err(wrong(FORM)),
            }
        }
        let (name, secret) = own.ok_or(KeyFileError::NoSecret)?;
        Ok(KeyFile { name, secret, others })
    }

    /// Reads a key file. Only its owner may have access to it.
    ///
    /// # Errors
    /// The file cannot be read, is open to other users, or is no key file.
    pub fn load(path: &Path) -> Result<KeyFile, KeyFileError> {
        let unread = |source| KeyFileError::Unread { path: path.to_owned(), source };
        let metadata = std::fs::metadata(path).map_err(unread)?;
        if !metadata.is_file() || metadata.len() > MOST_BYTES {
            return Err(KeyFileError::NoFile { path: path.to_owned() });
        }
        if metadata.mode() & 0o077 != 0 {
            return Err(KeyFileError::Open { path: path.to_owned() });
        }
        KeyFile::parse(&std::fs::read_to_string(path).map_err(unread)?)
    }

    /// Writes a new key file that only its owner may read.
    ///
    /// # Errors
    /// The system refuses, or the file exists already.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(self.to_text().as_bytes())
    }

    /// Names of the others.
    pub fn others(&self) -> impl Iterator<Item = &str> {
        self.others.keys().map(String::as_str)
    }

    fn to_text(&self) -> String {
        let mut text = format!("# Keep this file secret.\nsecret {} {}\n", hex(&self.secret), self.name);
        for (name, key) in &self.others {
            let _ = writeln!(text, "public {} {name}", hex(key));
        }
        text
    }
}

impl fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyFile")
            .field("name", &self.name)
            .field("others", &self.others)
            .finish_non_exhaustive()
    }
}

/// An error that prevents the use of a key file.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The system refused to read it.
    #[error("cannot read the key file `{}`: {source}", path.display())]
    Unread {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A device, a pipe, a folder, or a file that is too long.
    #[error("`{}` is not a key file: it is not a regular file of at most {MOST_BYTES} B", path.display())]
    NoFile {
        /// The file.
        path: PathBuf,
    },
    /// Other users may read it.
    #[error("other users can read the key file `{p}`: `chmod 600 {p}`", p = path.display())]
    Open {
        /// The file.
        path: PathBuf,
    },
    /// A line is wrong.
    #[error("line {line} of the key file: {why}")]
    Line {
        /// The line's number, from 1 on.
        line: usize,
        /// The reason.
        why: &'static str,
    },
    /// It has no secret key.
    #[error("the key file has no line `secret KEY NAME`; make key files with `tollway keys NAME…`")]
    NoSecret,
}

/// Computes the public key of a secret one.
pub(super) fn public_of(secret: &Key) -> Key {
    let mut public = Key::default();
    if let Some(mut dh) = DefaultResolver.resolve_dh(&DHChoice::Curve25519) {
        dh.set(secret);
        public.copy_from_slice(dh.pubkey());
    }
    public
}

fn hex(key: &Key) -> String {
    key.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(digits: &str) -> Option<Key> {
    let mut key = Key::default();
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    if pairs.len() != key.len() || !rest.is_empty() {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    for (byte, &[high, low]) in key.iter_mut().zip(pairs) {
        *byte = (digit(high)? << 4 | digit(low)?) as u8;
    }
    Some(key)
}

const FORM: &str = "a line is `secret KEY NAME` or `public KEY NAME`";
/// Limit of a key file's length, in bytes: more than a thousand names.
const MOST_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn files_of_a_mesh_know_each_other_and_read_back() {
        let names = ["a", "office router", "b"].map(String::from);
        let files = KeyFile::mesh(&names).unwrap();
        for file in &files {
            assert_eq!(KeyFile::parse(&file.to_text()).unwrap(), *file);
            assert!(!format!("{file:?}").contains(&hex(&file.secret)));
            for other in files.iter().filter(|other| other.name != file.name) {
                assert_eq!(file.others[&other.name], public_of(&other.secret));
            }
            assert_eq!(file.others().count(), 2);
        }
    }

    #[test]
    fn a_wrong_line_is_named() {
        let key = hex(&[7; 32]);
        let error = |text: &str| KeyFile::parse(text).unwrap_err().to_string();
        assert!(error("").contains("tollway keys"), "{}", error(""));
        assert!(error("secret 12 a").contains("line 1") && error("secret 12 a").contains("64"));
        for wrong in ["public", "public 1", &format!("private {key} a"), &format!("public {key}")] {
            assert!(error(&format!("# x\n\n{wrong}\n")).starts_with("line 3"), "{wrong}");
        }
        let twice = format!("secret {key} a\nsecret {key} b\n");
        assert!(error(&twice).contains("one secret key"));
        let twice = format!("secret {key} a\npublic {key} a\n");
        assert!(error(&twice).contains("already"));
    }

    #[test]
    fn a_file_is_private_and_never_written_over() {
        let folder = std::env::temp_dir().join(format!("tollway-keys-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("a.key");
        let file = KeyFile::mesh(&["a".into(), "b".into()]).unwrap().remove(0);
        file.save(&path).unwrap();
        assert_eq!(KeyFile::load(&path).unwrap(), file);
        assert_eq!(file.save(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(KeyFile::load(&path), Err(KeyFileError::Open { .. })));
        assert!(matches!(KeyFile::load(Path::new("/dev/zero")), Err(KeyFileError::NoFile { .. })));
        assert!(matches!(KeyFile::load(&folder.join("none")), Err(KeyFileError::Unread { .. })));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(secret|public|[a-f0-9 \n#]|[0-9a-f]{64} ){0,20}") {
            let _ = KeyFile::parse(&text);
        }
    }
}
