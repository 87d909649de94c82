//! The modules of each crate use each other in one direction: no circles, at any depth.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A module by the names of those that it is in, and its own; the root of a crate has none.
type Module = Vec<String>;
/// Which modules of the same parent each one uses.
type Arrows = BTreeMap<Module, BTreeSet<Module>>;

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of the crate").map(|entry| entry.expect("an entry").path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    files.into_iter().chain(folders.iter().flat_map(|folder| sources(folder))).collect()
}

fn module_of(file: &Path) -> Module {
    let mut module: Module = file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    module.pop_if(|last| ["lib", "mod"].contains(&last.as_str()));
    module
}

/// The modules of a crate, with their sources without comments and tests.
fn modules_of(folder: &Path) -> BTreeMap<Module, String> {
    let files = sources(folder).into_iter().filter(|file| !file.ends_with("tests.rs"));
    let read = |file: PathBuf| {
        let source = fs::read_to_string(&file).expect("a source");
        let code: Vec<&str> = source.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let code = code.join("\n");
        let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
        (module_of(file.strip_prefix(folder).expect("a file of the folder")), code)
    };
    files.map(read).collect()
}

fn parent(module: &[String]) -> &[String] {
    &module[..module.len().saturating_sub(1)]
}

/// The paths from the root of the crate that a module names.
fn paths_in(module: &Module, code: &str) -> Vec<Module> {
    let is_of_path = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    let begins = ["crate::", "super::"].into_iter().flat_map(|start| code.match_indices(start));
    let begins = begins.filter(|&(place, _)| !code[..place].ends_with(is_of_path));
    let names = |(place, start): (usize, &str)| {
        let mut base = if start == "super::" { parent(module) } else { &[] };
        let mut rest = &code[place + start.len()..];
        while let Some(after) = rest.strip_prefix("super::") {
            (base, rest) = (parent(base), after);
        }
        let list = rest.strip_prefix('{').and_then(|list| list.split('}').next());
        let parts = list.unwrap_or(&rest[..rest.find(|letter| !is_of_path(letter)).unwrap_or(rest.len())]).split(',');
        let full = |part: &str| base.iter().cloned().chain(part.trim().split("::").map(str::to_owned)).collect();
        parts.map(full).collect::<Vec<Module>>()
    };
    begins.flat_map(names).collect()
}

fn arrows_of(modules: &BTreeMap<Module, String>) -> Arrows {
    let mut arrows = Arrows::new();
    for (module, code) in modules {
        for mut path in paths_in(module, code) {
            while !modules.contains_key(&path) && path.pop().is_some() {}
            if let Some(place) = (0..module.len().min(path.len())).find(|&place| module[place] != path[place]) {
                arrows.entry(module[..=place].to_vec()).or_default().insert(path[..=place].to_vec());
            }
        }
    }
    arrows
}

/// The modules from which arrows lead back to themselves.
fn in_circles(arrows: &Arrows) -> Vec<String> {
    let is_in_circle = |module: &&Module| {
        let (mut reached, mut next) = (BTreeSet::new(), vec![*module]);
        while let Some(from) = next.pop() {
            next.extend(arrows.get(from).into_iter().flatten().filter(|to| reached.insert(*to)));
        }
        reached.contains(module)
    };
    arrows.keys().filter(is_in_circle).map(|module| module.join("::")).collect()
}

#[test]
fn no_modules_use_each_other() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of all crates");
    for name in ["kernels", "xla-ffi", "handlers", "mpi-abi", "extension"] {
        let modules = modules_of(&crates.join(name).join("src"));
        assert!(modules.len() > 3, "the crate {name}");
        let circles = in_circles(&arrows_of(&modules));
        assert!(circles.is_empty(), "{name} has circles through {circles:?}");
    }
}

#[test]
fn circles_are_found() {
    let module = |path: &str| path.split("::").map(str::to_owned).collect::<Module>();
    let circles = |sources: &[(&str, &str)]| {
        let modules = sources.iter().map(|(path, code)| (module(path), (*code).to_owned())).collect();
        in_circles(&arrows_of(&modules))
    };
    let (a, b) = (("a", "use crate::{Error, b};"), ("b::c", "fn f(value: crate::a::A) {}"));
    assert_eq!(circles(&[a, b, ("b", "")]), ["a", "b"]);
    assert!(circles(&[a, ("b", "use crate::a_of_others::A;"), ("b::c", "use super::D;")]).is_empty());
    assert_eq!(circles(&[("b::c", "use super::d::D;"), ("b::d", "use crate::b::c;")]), ["b::c", "b::d"]);
    assert_eq!(circles(&[("a", "use crate::b;"), ("b", "use crate::c;"), ("c", "use crate::a;")]), ["a", "b", "c"]);
}
