//! Sessions with `onefold analyze`.

use crate::common::Folder;
use crate::transcript::Transcript;

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
