//! Finds the folders to watch for a file: a change in one of them can make the path of the file lead to another file.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

/// The maximum number of symbolic links that are followed for a path.
const LINKS_MAX: u32 = 40;

/// Returns the folders of these files, and of all symbolic links on the way to them. A folder that does not exist is
/// replaced by the nearest one above it.
pub(super) fn folders_of<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for file in files {
        if let Ok(path) = std::path::absolute(file) {
            let mut links_left = LINKS_MAX;
            add_folders(&path, &mut links_left, &mut found);
        }
    }
    found
}

fn add_folders(path: &Path, links_left: &mut u32, found: &mut BTreeSet<PathBuf>) {
    found.extend(
        path.ancestors()
            .skip(1)
            .find(|one| exists(one))
            .map(Path::to_owned),
    );
    for prefix in path.ancestors() {
        let (Ok(target), Some(folder)) = (fs::read_link(prefix), prefix.parent()) else {
            continue;
        };
        found.insert(folder.to_owned());
        if *links_left == 0 {
            return;
        }
        *links_left -= 1;
        let rest = path.strip_prefix(prefix).unwrap_or(Path::new(""));
        let target = folder.join(target);
        let path = match rest.as_os_str().is_empty() {
            true => target,
            false => target.join(rest),
        };
        add_folders(&path, links_left, found);
    }
}

/// Returns whether a folder exists, or may exist where this process has no right to look.
fn exists(path: &Path) -> bool {
    match fs::metadata(path) {
        Ok(found) => found.is_dir(),
        Err(error) => !matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn folders(root: &Path, file: &str) -> Vec<String> {
        let found = folders_of([&root.join(file)]);
        let below = found.iter().filter_map(|path| path.strip_prefix(root).ok());
        below.map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn links_are_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = fs::canonicalize(folder.path()).expect("a path");
        for name in ["plain", "mount/..1", "releases/1"] {
            fs::create_dir_all(root.join(name)).expect("a folder");
        }
        for name in ["plain/a.ini", "mount/..1/a.ini", "releases/1/a.ini"] {
            fs::write(root.join(name), "").expect("a file");
        }
        symlink("..1", root.join("mount/..data")).expect("a link");
        symlink("..data/a.ini", root.join("mount/a.ini")).expect("a link");
        symlink(root.join("releases/1"), root.join("current")).expect("a link");
        symlink("loop", root.join("loop")).expect("a link");
        assert_eq!(folders(&root, "plain/a.ini"), ["plain"]);
        // A volume of a ConfigMap.
        assert_eq!(
            folders(&root, "mount/a.ini"),
            ["mount", "mount/..1", "mount/..data"]
        );
        assert_eq!(
            folders(&root, "current/a.ini"),
            ["", "current", "releases/1"]
        );
        assert_eq!(folders(&root, "absent/too/a.ini"), [""]);
        assert_eq!(folders(&root, "loop"), [""]);
    }
}
