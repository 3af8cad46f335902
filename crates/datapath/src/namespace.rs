//! Network namespaces other than the calling thread's own.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::privileges::{self, ENTER};

/// Where ip-netns(8) keeps namespaces by their names.
const FOLDER: &str = "/run/netns";
/// The namespace that the calling thread is in.
const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// There is none of this name.
    #[error("no network namespace {name:?} (`ip netns list` lists them; a path names its file)")]
    Missing {
        /// The name asked for.
        name: String,
    },
    /// The system refused.
    #[error("cannot work in network namespace {name:?}: {source} (this needs root)")]
    System {
        /// The namespace.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
}

/// A network namespace, which exists for as long as this does.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    file: File,
}

impl Namespace {
    /// Opens the namespace of a name that ip-netns(8) knows, or with a `/` that of a path.
    pub fn open(name: &str) -> Result<Self, NamespaceError> {
        // A name in the folder of namespaces, or a path of its own: never the folder itself.
        let path =
            if name.is_empty() { Path::new("").into() } else { Path::new(FOLDER).join(name) };
        let file = File::open(path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => NamespaceError::Missing { name: name.into() },
            _ => NamespaceError::System { name: name.into(), source },
        })?;
        Ok(Self { name: name.into(), file })
    }

    /// Does `work` with the calling thread in the namespace; then the thread is where it was.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> Result<T, NamespaceError> {
        let system = |source| NamespaceError::System { name: self.name.clone(), source };
        let own = File::open(OWN).map_err(system)?;
        enter(&self.file).map_err(system)?;
        let result = work();
        enter(&own).map_err(system)?;
        Ok(result)
    }
}

/// Does `work` in a namespace, or without one where the thread is.
pub fn inside<T>(
    namespace: Option<&Namespace>,
    work: impl FnOnce() -> T,
) -> Result<T, NamespaceError> {
    match namespace {
        Some(namespace) => namespace.run(work),
        None => Ok(work()),
    }
}

fn enter(file: &File) -> io::Result<()> {
    let network = Some(LinkNameSpaceType::Network);
    Ok(privileges::raised(ENTER, || move_into_link_name_space(file.as_fd(), network))??)
}

#[cfg(test)]
mod tests {
    use std::fs::read_link;

    use super::*;

    #[test]
    fn a_namespace_that_is_not_there_is_missing() {
        for name in ["", "tt-no-such", "/proc/tt-no-such/ns/net"] {
            let error = Namespace::open(name).expect_err("no such namespace");
            assert!(matches!(error, NamespaceError::Missing { .. }), "{error}");
        }
    }

    #[test]
    fn a_file_that_is_no_namespace_is_refused() {
        let error = Namespace::open("/proc/self/status").expect("opened").run(|| ());
        assert!(matches!(error, Err(NamespaceError::System { .. })));
    }

    #[test]
    fn work_is_done_there_and_the_thread_comes_back() {
        let here = read_link(OWN).expect("a namespace");
        // SAFETY: takes no pointers; only a thread of its own moves to a new namespace.
        let made = std::thread::spawn(|| unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0);
        if !made.join().expect("joined") {
            eprintln!("skipped: network namespaces need root");
            return;
        }
        let (send, receive) = std::sync::mpsc::channel();
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            // SAFETY: as above.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
            let thread = rustix::thread::gettid();
            send.send((format!("/proc/self/task/{thread}/ns/net"), read_link(OWN))).expect("sent");
            let _ = wait.recv();
        });
        let (path, there) = receive.recv().expect("received");
        let namespace = Namespace::open(&path).expect("opened");
        let seen = namespace.run(|| read_link(OWN).expect("a namespace")).expect("done");
        assert_eq!(seen, there.expect("a namespace"));
        assert_ne!(seen, here);
        assert_eq!(read_link(OWN).expect("a namespace"), here);
        assert_eq!(inside(None, || 7).expect("done"), 7);
        drop(done);
        other.join().expect("joined");
    }
}
