//! The rooms of this crate use each other in one direction.

use std::fs;
use std::path::{Path, PathBuf};

/// A room may use itself and those before it.
const ROOMS: [&str; 5] = ["numbers", "sites", "connected", "amplitudes", "sampling"];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of the crate").map(|entry| entry.expect("an entry").path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    files.into_iter().chain(folders.iter().flat_map(|folder| sources(folder))).collect()
}

/// Where a room uses one that comes after it, among the lines of a source.
fn against_the_arrows(rank: usize, source: &str) -> Vec<String> {
    let uses = |line: &str, room: &str| {
        let starts = line.match_indices("crate::").map(|(start, path)| &line[start + path.len()..]);
        starts.into_iter().any(|rest| {
            rest.starts_with(room)
                && !rest[room.len()..].starts_with(|next: char| next.is_alphanumeric() || next == '_')
        })
    };
    let wrong = |line: &&str| line.contains("crate::{") || ROOMS[rank + 1..].iter().any(|room| uses(line, room));
    source.lines().filter(wrong).map(str::to_owned).collect()
}

#[test]
fn rooms_use_those_before_them_alone() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for (rank, room) in ROOMS.iter().enumerate() {
        let files = sources(&src.join(room));
        assert!(files.len() > 1, "the room {room}");
        for file in files {
            let wrong = against_the_arrows(rank, &fs::read_to_string(&file).expect("a source"));
            assert!(wrong.is_empty(), "{} is in the room {room}, but has {wrong:?}", file.display());
        }
    }
}

#[test]
fn a_use_against_the_arrows_is_found() {
    let source = "use crate::Error;\nuse crate::sites::Sites;\nuse crate::sampling::run;\nuse crate::{error, sites};";
    assert_eq!(against_the_arrows(1, source), ["use crate::sampling::run;", "use crate::{error, sites};"]);
    assert_eq!(against_the_arrows(0, "fn f(sites: &crate::sites::Sites) {}").len(), 1);
    assert_eq!(against_the_arrows(0, "use crate::sites_of_lattices::Lattice;").len(), 0);
}
