//! Progress on a terminal.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::{Folder, has, onefold, text};

/// `script` runs the command on a terminal of its own, and prints what appears there.
#[test]
fn progress_is_one_rewritten_line_and_stays_out_of_the_result() {
    if !has("script", "bsdutils") {
        return;
    }
    let folder = Folder::new();
    let (pool, result) = (folder.pool(), folder.path("result.json"));
    onefold("pool import --quiet", &[&pool, &folder.noise("base.raw", 8)]).done();
    let program = env!("CARGO_BIN_EXE_onefold");
    let command =
        format!("stty -F /dev/tty cols 80; {program} pool scrub --json --rate 4M {} >{}", text(&pool), text(&result));
    let mut script = Command::new("script");
    script.args(["-q", "-e", "-c", &command, "/dev/null"]).env("TERM", "xterm").stdin(Stdio::null());
    let output = script.output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{shown:?}");
    assert!(shown.matches("scrubbing").count() > 2 && shown.contains('\r'), "{shown:?}");
    assert!(!shown.contains('\n'), "a line was left behind: {shown:?}");
    // A terminal of 80 columns goes up a row to clear a line that was wider.
    assert!(!shown.contains("\u{1b}[1A"), "a line took two rows: {shown:?}");
    let result: Value = serde_json::from_str(&fs::read_to_string(&result).unwrap()).unwrap();
    assert!(result["target"].is_string(), "{result}");
}
