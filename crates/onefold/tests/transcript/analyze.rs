//! Sessions with `onefold analyze`.

use crate::common::Folder;
use crate::transcript::Transcript;

/// Blocks that a pool and sharing in place save alike: the verdict says which of the two is for which file system.
#[test]
fn either_way() {
    let folder = Folder::new();
    let images = folder.path("images");
    std::fs::create_dir(&images).unwrap();
    // A verdict for either way takes savings of more than a gibibyte.
    let first = folder.noise("images/vm-00.raw", 64);
    for number in 1..18 {
        std::fs::copy(&first, images.join(format!("vm-{number:02}.raw"))).unwrap();
    }
    let mut session = Transcript::in_folder(&folder.path("")).masking(&["of memory", "MiB/s"]);
    session.run("analyze --quiet images").done();
    session.assert_kept("analyze-either-way");
}

#[test]
fn the_answer_first() {
    let folder = Folder::new();
    folder.image("one.raw", 1, 0);
    folder.image("two.raw", 1, 1);
    folder.noise("own.raw", 2);
    let mut session = Transcript::in_folder(&folder.path("")).masking(&["of memory", "MiB/s"]);
    session.run("analyze --quiet one.raw two.raw own.raw").done();
    session.run("analyze --quiet --details one.raw two.raw own.raw").done();
    session.run("analyze --quiet gone.raw one.raw");
    session.run("analyze --quiet --sample 4 one.raw");
    session.run("analyze --quiet --memory 1M one.raw");
    session.assert_kept("analyze");
}
