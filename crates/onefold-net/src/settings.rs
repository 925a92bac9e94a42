//! The place of a store and its user: options first, then environment variables, then the files of Amazon's tools.
//!
//! | setting     | option       | variables                             | key in a profile of `~/.aws/config` |
//! |-------------|--------------|---------------------------------------|-------------------------------------|
//! | address     | `--endpoint` | `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL` | `endpoint_url`                  |
//! | region      | `--region`   | `AWS_REGION`, `AWS_DEFAULT_REGION`    | `region`                            |
//! | certificate | `--ca`       | `AWS_CA_BUNDLE`                       | `ca_bundle`                         |
//!
//! Credentials are `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`, or the same in lower case in a
//! profile of `~/.aws/credentials`.
//! Credentials may also come from systemd, as `aws-credentials` in `$CREDENTIALS_DIRECTORY`, which has the form of
//! `~/.aws/credentials`. No other source is asked: no server of metadata, no program.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::{ErrorKind, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use onefold_block::Show;

use crate::NetError;
use crate::ini::Ini;

/// Name of the credentials that systemd provides.
const SYSTEMD_CREDENTIALS: &str = "aws-credentials";
/// Maximum length of a file of settings, credentials or certificates.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// The region if nothing says another one.
const REGION: &str = "us-east-1";

/// Settings from the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Address of the server; without one, that of Amazon's servers of the region.
    pub endpoint: Option<String>,
    /// Region of the bucket.
    pub region: Option<String>,
    /// A file of certificates that are trusted besides those of the system.
    pub ca: Option<PathBuf>,
    /// Whether a plain connection may lead to another machine.
    pub allow_http: bool,
    /// Whether the user promises that there is one writer at a time. The store then need not support conditions.
    pub one_writer: bool,
}

/// The environment variables of a process.
pub trait Environment {
    /// Returns the value of a variable that is set and not empty.
    fn variable(&self, name: &str) -> Option<OsString>;
}

impl<F: Fn(&str) -> Option<OsString>> Environment for F {
    fn variable(&self, name: &str) -> Option<OsString> {
        self(name).filter(|value| !value.is_empty())
    }
}

/// Settings of a store, from all sources.
#[derive(Clone, Debug)]
pub struct Settings {
    pub(crate) endpoint: Option<String>,
    pub(crate) is_plain: bool,
    pub(crate) region: String,
    /// Certificates in PEM form.
    pub(crate) ca: Option<Vec<u8>>,
    pub(crate) credentials: Credentials,
    pub(crate) one_writer: bool,
}

/// An access key.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) key: String,
    pub(crate) secret: String,
    pub(crate) token: Option<String>,
}

impl fmt::Debug for Credentials {
    /// Shows no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Settings {
    /// Finds the settings of a store.
    ///
    /// # Errors
    /// When there are no credentials, a file cannot be read, or the address is invalid or a plain connection that is
    /// not allowed.
    pub fn find(options: &Options, environment: &dyn Environment) -> Result<Settings, NetError> {
        let source = Source::open(environment)?;
        let text = |name: &str| source.text(name);
        let endpoint = options.endpoint.clone().or_else(|| text("AWS_ENDPOINT_URL_S3"));
        let endpoint = endpoint.or_else(|| text("AWS_ENDPOINT_URL")).or_else(|| source.configured("endpoint_url"));
        let is_plain = match &endpoint {
            Some(endpoint) => is_plain(endpoint, options.allow_http)?,
            None => false,
        };
        let region = options.region.clone().or_else(|| text("AWS_REGION")).or_else(|| text("AWS_DEFAULT_REGION"));
        let region = region.or_else(|| source.configured("region")).unwrap_or_else(|| REGION.to_owned());
        let ca = options.ca.clone().or_else(|| environment.variable("AWS_CA_BUNDLE").map(PathBuf::from));
        let ca = ca.or_else(|| source.configured("ca_bundle").map(PathBuf::from));
        let ca = ca.map(|path| read(&path)).transpose()?;
        let credentials = source.credentials()?;
        Ok(Settings { endpoint, is_plain, region, ca, credentials, one_writer: options.one_writer })
    }
}

/// Checks the address of a server. Returns whether connections to it are plain.
pub(crate) fn is_plain(endpoint: &str, allow_http: bool) -> Result<bool, NetError> {
    let url = reqwest::Url::parse(endpoint);
    // The rest may contain a secret, which belongs in no message.
    let text = match &url {
        Ok(url) => without_secrets(url),
        Err(_) if endpoint.contains(['@', '?', '#']) => "...".to_owned(),
        Err(_) => endpoint.to_owned(),
    };
    let wrong = |what| NetError::Endpoint { text: text.clone(), what };
    let url = url.map_err(|_| wrong("an address begins with `https://` or `http://`"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("it contains a user; credentials do not belong into an address"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("it has more than a host, a port and a path"));
    }
    if url.host_str().is_none() {
        return Err(wrong("it has no host"));
    }
    match url.scheme() {
        "https" => Ok(false),
        "http" if is_loopback(&url) || allow_http => Ok(true),
        "http" => Err(NetError::PlainHttp { text }),
        _ => Err(wrong("an address begins with `https://` or `http://`")),
    }
}

/// Returns whether an address leads to this machine.
pub(crate) fn is_loopback(url: &reqwest::Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Returns scheme, host and port of an address.
fn without_secrets(url: &reqwest::Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    match url.host_str() {
        Some(host) => format!("{}://{host}{port}", url.scheme()),
        None => format!("{}:...", url.scheme()),
    }
}

/// Environment and files.
struct Source<'a> {
    environment: &'a dyn Environment,
    profile: String,
    config: Ini,
}

impl Source<'_> {
    fn open(environment: &dyn Environment) -> Result<Source<'_>, NetError> {
        let profile = environment.variable("AWS_PROFILE").and_then(|name| name.into_string().ok());
        let profile = profile.unwrap_or_else(|| "default".to_owned());
        let config = match file_of(environment, "AWS_CONFIG_FILE", "config") {
            Some(path) => read_ini(&path)?.unwrap_or_default(),
            None => Ini::default(),
        };
        Ok(Source { environment, profile, config })
    }

    fn text(&self, name: &str) -> Option<String> {
        self.environment.variable(name).and_then(|value| value.into_string().ok())
    }

    fn configured(&self, key: &str) -> Option<String> {
        self.config.get(&self.profile, key).map(str::to_owned)
    }

    fn credentials(&self) -> Result<Credentials, NetError> {
        let found = both(
            "the environment",
            self.text("AWS_ACCESS_KEY_ID"),
            self.text("AWS_SECRET_ACCESS_KEY"),
            self.text("AWS_SESSION_TOKEN"),
        )?;
        if let Some(found) = found {
            return Ok(found);
        }
        let systemd = self.environment.variable("CREDENTIALS_DIRECTORY");
        let systemd = systemd.map(|folder| PathBuf::from(folder).join(SYSTEMD_CREDENTIALS));
        let own = file_of(self.environment, "AWS_SHARED_CREDENTIALS_FILE", "credentials");
        for path in [systemd, own].into_iter().flatten() {
            let Some(ini) = read_ini(&path)? else {
                continue;
            };
            let get = |key: &str| ini.get(&self.profile, key).map(str::to_owned);
            let place = format!("`{}`", path.as_path().shown());
            let (key, secret) = (get("aws_access_key_id"), get("aws_secret_access_key"));
            if let Some(found) = both(&place, key, secret, get("aws_session_token"))? {
                return Ok(found);
            }
        }
        Err(NetError::NoCredentials)
    }
}

/// Returns credentials of which both parts are there, or none at all.
fn both(
    place: &str,
    key: Option<String>,
    secret: Option<String>,
    token: Option<String>,
) -> Result<Option<Credentials>, NetError> {
    let half = |has, lacks| Err(NetError::HalfCredentials { place: place.to_owned(), has, lacks });
    match (key, secret) {
        (Some(key), Some(secret)) => Ok(Some(Credentials { key, secret, token })),
        (Some(_), None) => half("an access key", "secret"),
        (None, Some(_)) => half("a secret", "access key"),
        (None, None) => Ok(None),
    }
}

/// Returns the path of a file that a variable names, or that is in the user's folder `.aws`.
fn file_of(environment: &dyn Environment, variable: &str, name: &str) -> Option<PathBuf> {
    match environment.variable(variable) {
        Some(path) => Some(PathBuf::from(path)),
        None => environment.variable("HOME").map(|home| PathBuf::from(home).join(".aws").join(name)),
    }
}

/// Reads a file of settings; `None` if it does not exist.
fn read_ini(path: &Path) -> Result<Option<Ini>, NetError> {
    let bytes = match read(path) {
        Err(NetError::File { source, .. }) if source.kind() == ErrorKind::NotFound => return Ok(None),
        read => read?,
    };
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_| NetError::Content { path: path.to_owned(), what: "is not a text".to_owned() })?;
    Ok(Some(Ini::parse(&text)))
}

/// Reads a file of certificates.
///
/// # Errors
/// When it cannot be read, or is too long.
pub(crate) fn read_certificates(path: &Path) -> Result<Vec<u8>, NetError> {
    read(path)
}

/// Reads a file of bounded length.
fn read(path: &Path) -> Result<Vec<u8>, NetError> {
    let failed = |source| NetError::File { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    fs::File::open(path).map_err(failed)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(NetError::Content { path: path.to_owned(), what: "is too long".to_owned() });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn find(options: &Options, variables: &[(&str, &str)]) -> Result<Settings, NetError> {
        let variables: HashMap<String, OsString> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), OsString::from(value))).collect();
        Settings::find(options, &move |name: &str| variables.get(name).cloned())
    }

    const KEY: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret")];

    #[test]
    fn plain_connections_lead_to_this_machine_only() {
        let with = |endpoint: &str, allow_http| {
            find(&Options { endpoint: Some(endpoint.to_owned()), allow_http, ..Options::default() }, &KEY)
        };
        for endpoint in ["http://127.0.0.1:9000", "http://[::1]:9000", "http://localhost:9000", "http://127.9.9.9"] {
            assert!(with(endpoint, false).unwrap().is_plain, "{endpoint}");
        }
        for endpoint in ["http://10.0.0.1", "http://localhost.example.com", "http://example.com:9000", "http://[::2]"] {
            assert!(matches!(with(endpoint, false), Err(NetError::PlainHttp { .. })), "{endpoint}");
            assert!(with(endpoint, true).unwrap().is_plain);
        }
        assert!(!with("https://example.com", false).unwrap().is_plain);
        for endpoint in ["127.0.0.1:9000", "ftp://127.0.0.1", "https://u:p@example.com", "https://example.com/?a=b", ""]
        {
            assert!(matches!(with(endpoint, true), Err(NetError::Endpoint { .. })), "{endpoint}");
        }
    }

    #[test]
    fn no_secret_of_an_address_is_shown() {
        for endpoint in [
            "https://user:secret@example.com",
            "https://example.com/?X-Amz-Security-Token=secret",
            "https://example.com/#secret",
            "http://example.com/secret",
            "user:secret@example.com",
            "https://user:secret@exa mple.com",
        ] {
            let options = Options { endpoint: Some(endpoint.to_owned()), ..Options::default() };
            let error = find(&options, &KEY).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
        }
    }

    #[test]
    fn options_come_before_variables_and_variables_before_files() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config");
        fs::write(&config, "[default]\nregion = file\nendpoint_url = https://file\n[profile lab]\nregion = lab\n")
            .unwrap();
        let config = config.to_str().unwrap();
        let mut variables = vec![("AWS_CONFIG_FILE", config), KEY[0], KEY[1]];
        let none = Options::default();
        let settings = find(&none, &variables).unwrap();
        assert_eq!((settings.region.as_str(), settings.endpoint.as_deref()), ("file", Some("https://file")));
        variables.push(("AWS_PROFILE", "lab"));
        let settings = find(&none, &variables).unwrap();
        assert_eq!((settings.region.as_str(), settings.endpoint.as_deref()), ("lab", None));
        variables.extend([("AWS_REGION", "variable"), ("AWS_ENDPOINT_URL", "https://variable")]);
        let settings = find(&none, &variables).unwrap();
        assert_eq!((settings.region.as_str(), settings.endpoint.as_deref()), ("variable", Some("https://variable")));
        let options = Options { region: Some("option".to_owned()), ..none };
        assert_eq!(find(&options, &variables).unwrap().region, "option");
        assert_eq!(find(&Options::default(), &KEY).unwrap().region, REGION);
    }

    #[test]
    fn credentials_come_from_environment_systemd_or_file_and_are_whole() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        fs::create_dir_all(home.join(".aws")).unwrap();
        let home = home.to_str().unwrap();
        assert!(matches!(find(&Options::default(), &[("HOME", home)]), Err(NetError::NoCredentials)));
        let text = |key: &str| format!("[default]\naws_access_key_id = {key}\naws_secret_access_key = secret\n");
        fs::write(folder.path().join("home/.aws/credentials"), text("file")).unwrap();
        let key = |variables: &[(&str, &str)]| find(&Options::default(), variables).unwrap().credentials.key;
        assert_eq!(key(&[("HOME", home)]), "file");
        fs::write(folder.path().join(SYSTEMD_CREDENTIALS), text("systemd")).unwrap();
        let systemd = ("CREDENTIALS_DIRECTORY", folder.path().to_str().unwrap());
        assert_eq!(key(&[("HOME", home), systemd]), "systemd");
        assert_eq!(key(&[("HOME", home), systemd, KEY[0], KEY[1]]), "key");
        let half = find(&Options::default(), &[("HOME", home), KEY[0]]);
        assert!(matches!(half, Err(NetError::HalfCredentials { lacks: "secret", .. })));
        let settings = find(&Options::default(), &KEY).unwrap();
        assert!(!format!("{settings:?}").contains("secret"));
    }
}
