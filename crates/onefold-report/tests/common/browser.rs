//! A page in a real browser, and what was measured there.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
const HARNESS: &str = include_str!("../measure.html");

/// Returns the name of a browser, if one is installed.
pub(crate) fn browser() -> Option<&'static str> {
    let found = BROWSERS.into_iter().find(|name| Command::new(name).arg("--version").output().is_ok());
    if found.is_none() {
        eprintln!("SKIPPED: no browser is installed (Debian: chromium)");
    }
    found
}

/// Has a browser load a page of HTML, which is written into `folder`. Returns its standard output and its messages.
fn loaded(browser: &str, folder: &Path, html: &str, options: &[&str]) -> (Vec<u8>, String) {
    let file = folder.join("loaded.html");
    fs::write(&file, html).unwrap();
    let output = Command::new("timeout")
        .args(["120", browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"])
        .args(["--window-size=1400,1000", "--virtual-time-budget=10000"])
        .args(options)
        .arg(format!("--user-data-dir={}", folder.join("profile").to_str().unwrap()))
        .arg(format!("file://{}", file.to_str().unwrap()))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let complaints: Vec<&str> = errors.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(complaints.is_empty(), "{complaints:?}");
    (output.stdout, errors)
}

/// Prints `page` on paper, and returns the PDF.
pub(crate) fn printed(browser: &str, page: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let pdf = folder.path().join("page.pdf");
    let (_, errors) = loaded(browser, folder.path(), page, &[&format!("--print-to-pdf={}", pdf.to_str().unwrap())]);
    fs::read(&pdf).unwrap_or_else(|error| panic!("{error}: {errors}"))
}

/// Loads `page` in a frame of `width`, and returns what was measured there.
pub(crate) fn measured(browser: &str, page: &str, width: u32) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let inner = page.replace('&', "&amp;").replace('"', "&quot;");
    let html = HARNESS.replace("WIDTH", &width.to_string()).replace("PAGE", &inner);
    let (dom, errors) = loaded(browser, folder.path(), &html, &["--dump-dom"]);
    let dom = String::from_utf8(dom).unwrap();
    let start = dom.find("id=\"result\">").unwrap_or_else(|| panic!("no result: {errors}")) + "id=\"result\">".len();
    let end = start + dom[start..].find("</script>").unwrap();
    serde_json::from_str(&dom[start..end]).unwrap_or_else(|error| panic!("{error}: {}", &dom[start..end]))
}

/// Returns the marks of a figure that is shown.
pub(crate) fn figure<'a>(measured: &'a Value, id: &str) -> &'a [Value] {
    let figures = measured["figures"].as_array().unwrap();
    let figure = figures.iter().find(|figure| figure["id"] == id).unwrap_or_else(|| panic!("no {id}"));
    assert!(number(figure, "shown") > 10_000.0, "{id} is not shown");
    figure["marks"].as_array().unwrap()
}

pub(crate) fn number(mark: &Value, name: &str) -> f64 {
    match &mark[name] {
        Value::String(text) => text.parse().unwrap(),
        value => value.as_f64().unwrap(),
    }
}

/// Asserts that nothing sticks out of the page or of a figure, and that all text can be read on a screen.
pub(crate) fn check_layout(measured: &Value, width: u32) {
    check_layout_of_text(measured, width, 9.0);
}

/// As [`check_layout`], with the height of the smallest text that can be read, in pixels of 1/96 inch.
pub(crate) fn check_layout_of_text(measured: &Value, width: u32, text_px_min: f64) {
    assert!(measured["width"].as_u64().unwrap() <= u64::from(width));
    assert!(measured["scroll_width"].as_u64() <= measured["width"].as_u64(), "the page is too wide: {measured}");
    assert_eq!(measured["wide"], Value::Array(Vec::new()), "these stick out");
    for figure in measured["figures"].as_array().unwrap() {
        assert_eq!(figure["outside"], Value::Array(Vec::new()), "{}", figure["id"]);
        let (id, text_px) = (&figure["id"], number(figure, "text_px"));
        assert!(text_px >= text_px_min, "text that cannot be read: {id}, {text_px} px");
    }
}
