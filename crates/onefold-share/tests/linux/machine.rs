//! Which images processes of this machine have open, as a watch asks.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::PoisonError;

use onefold_linux::LinuxMachine;
use onefold_substrate::{Access, FileHandle, Files, Machine};

use crate::ground::{Ground, STARTING, on_each, random_blocks, soon};

/// A process that has a file open as its input, and ends with the test.
struct Holder(Child);

impl Holder {
    fn new(ground: &Ground, name: &str, options: &OpenOptions) -> Holder {
        let file = options.open(ground.root.join(name)).unwrap();
        let _starting = STARTING.write().unwrap_or_else(PoisonError::into_inner);
        Holder(Command::new("sleep").arg("60").stdin(Stdio::from(file)).spawn().unwrap())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn handle(ground: &Ground, name: &str) -> FileHandle {
    ground.substrate.stat(&ground.open(name, Access::Read)).unwrap().handle
}

#[test]
fn images_that_others_have_open_for_writing_are_found_under_any_name() {
    on_each(|ground| {
        let names = ["idle", "read", "written", "renamed", "own", "path"];
        for name in names {
            ground.file(name, &random_blocks(1, 1));
        }
        let machine = LinuxMachine::new(&ground.substrate);
        let images = names.map(Path::new);
        let open = || machine.open_for_writing(&images).unwrap().handles;
        assert!(soon(|| open().is_empty()), "nobody has one open: {:?}", open());

        let (reading, writing) =
            (OpenOptions::new().read(true).clone(), OpenOptions::new().read(true).write(true).clone());
        let _read = Holder::new(ground, "read", &reading);
        let written = Holder::new(ground, "written", &writing);
        let appended = Holder::new(ground, "renamed", OpenOptions::new().append(true));
        let _own = writing.open(ground.root.join("own")).unwrap();
        std::fs::hard_link(ground.root.join("renamed"), ground.root.join("other")).unwrap();
        std::fs::rename(ground.root.join("other"), ground.root.join("elsewhere")).unwrap();
        let expected = ["written", "renamed"].map(|name| handle(ground, name)).into();
        assert!(soon(|| open() == expected), "{:?} is not {expected:?}", open());

        // Nothing is told that was not asked for, and a process that is gone has nothing open.
        let one = machine.open_for_writing(&[Path::new("written"), Path::new("gone")]).unwrap();
        assert_eq!(one.handles, [handle(ground, "written")].into());
        drop((written, appended));
        assert!(soon(|| open().is_empty()), "{:?}", open());
    });
}
