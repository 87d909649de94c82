//! What the watchers of several nodes tell each other: that a rank of theirs has said why it ends, or was lost.
//!
//! A launcher that has lost a rank on one node ends the ranks of the others, where it looks as if they were killed. So the
//! watchers of all nodes are connected to that of rank 0, which says what came first, on the node where mpirun mostly runs.
//! Who connects has to know the job's password, which the ranks exchange over MPI. Where no connection comes about, each
//! watcher speaks for itself.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// What a watcher tells another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Somewhere it has been said why the job ends.
    Reported,
    /// A rank was lost: at which time, in milliseconds since 1970, and what is to be said of it.
    Lost(u64, String),
}

impl News {
    fn line(&self) -> String {
        match self {
            Self::Reported => "reported\n".into(),
            Self::Lost(at, message) => format!("lost {at} {message}\n"),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        if line == "reported" {
            return Some(Self::Reported);
        }
        let (at, message) = line.strip_prefix("lost ")?.split_once(' ')?;
        Some(Self::Lost(at.parse().ok()?, message.chars().filter(|letter| !letter.is_control()).collect()))
    }
}

/// How a watcher finds the others.
#[derive(Debug)]
pub(super) enum Meeting {
    /// The others connect to this socket.
    Here(OwnedFd),
    /// The watcher of rank 0 listens there.
    At(SocketAddr),
}

/// The longest line that is read.
const LONGEST: usize = 4096;

struct Peer {
    stream: TcpStream,
    pending: Vec<u8>,
    is_known: bool,
}

/// The connections of a watcher.
pub(super) struct Relay {
    password: String,
    listener: Option<TcpListener>,
    peers: HashMap<RawFd, Peer>,
}

impl Relay {
    /// Connects, as far as it can be done.
    pub(super) fn new(meeting: Option<Meeting>, password: &str) -> Self {
        const PATIENCE: Duration = Duration::from_secs(5);
        let mut relay = Self { password: password.to_owned(), listener: None, peers: HashMap::new() };
        match meeting {
            None => {}
            Some(Meeting::Here(socket)) => {
                let listener = TcpListener::from(socket);
                relay.listener = listener.set_nonblocking(true).is_ok().then_some(listener);
            }
            Some(Meeting::At(address)) => {
                let connected = TcpStream::connect_timeout(&address, PATIENCE).and_then(|mut stream| {
                    stream.write_all(format!("{password}\n").as_bytes())?;
                    stream.set_nonblocking(true)?;
                    Ok(stream)
                });
                if let Ok(stream) = connected {
                    relay.add(stream, true);
                }
            }
        }
        relay
    }

    fn add(&mut self, stream: TcpStream, is_known: bool) {
        let _ = stream.set_nodelay(true); // only slower without
        self.peers.insert(stream.as_raw_fd(), Peer { stream, pending: Vec::new(), is_known });
    }

    /// Whether this is rank 0's, to which the others are connected.
    pub(super) fn is_center(&self) -> bool {
        self.listener.is_some()
    }

    /// The descriptors that have to be watched.
    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.listener.iter().map(AsFd::as_fd).chain(self.peers.values().map(|peer| peer.stream.as_fd())).collect()
    }

    /// Tells it all others. Returns whether there was one.
    pub(super) fn tell(&mut self, news: &News) -> bool {
        let line = news.line();
        self.peers.retain(|_, peer| !peer.is_known || peer.stream.write_all(line.as_bytes()).is_ok());
        self.peers.values().any(|peer| peer.is_known)
    }

    /// Takes what has come at a descriptor. One that is new has to be watched from then on.
    pub(super) fn take(&mut self, descriptor: RawFd) -> (Vec<News>, Option<RawFd>) {
        if let Some(listener) = self.listener.as_ref().filter(|listener| listener.as_raw_fd() == descriptor) {
            let accepted = listener.accept().and_then(|(stream, _)| {
                stream.set_nonblocking(true)?;
                Ok(stream)
            });
            let Ok(stream) = accepted else { return (Vec::new(), None) };
            let new = stream.as_raw_fd();
            self.add(stream, false);
            return (Vec::new(), Some(new));
        }
        let Some(peer) = self.peers.get_mut(&descriptor) else { return (Vec::new(), None) };
        let (news, is_open) = peer.read(&self.password);
        if !is_open {
            self.peers.remove(&descriptor);
        }
        (news, None)
    }
}

impl Peer {
    /// What it has said since, and whether it may go on: one without the password may not.
    fn read(&mut self, password: &str) -> (Vec<News>, bool) {
        let mut news = Vec::new();
        let mut bytes = [0; LONGEST];
        let is_open = match self.stream.read(&mut bytes) {
            Ok(0) => false,
            Ok(count) => {
                self.pending.extend_from_slice(&bytes[..count]);
                true
            }
            Err(error) => matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
        };
        while let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.pending.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line[..end]);
            if self.is_known {
                news.extend(News::parse(&line));
            } else if line == password {
                self.is_known = true;
            } else {
                return (news, false);
            }
        }
        (news, is_open && self.pending.len() < LONGEST)
    }
}
