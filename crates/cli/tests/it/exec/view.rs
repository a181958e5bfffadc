//! `tollway exec --view`: data and controls for a browser, over plain HTTP and in headless
//! Chromium.

use std::io::{BufRead, BufReader, ErrorKind, Lines, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Stdio};
use std::time::Instant;

use serde_json::json;

use super::*;

/// A program that downloads until it is ended, over links of 20 Mb/s and 5 ms each way.
struct Downloading {
    child: Child,
    url: String,
    stderr: Lines<BufReader<ChildStderr>>,
}

impl Downloading {
    fn start(name: &str) -> Downloading {
        let me = std::env::current_exe().unwrap();
        let port = serve(Ipv4Addr::LOCALHOST);
        let published = port.to_string();
        let link = ["exec", "--link", "20Mbps 5ms", "--publish", &published, "--view", "--timeout", "60"];
        let mut child = tollway(&link)
            .args(["--", me.to_str().unwrap(), "--exact", "exec::role", "--nocapture"])
            .env("EXEC_ROLE", format!("download server:{port} 1000000000000"))
            .env("EXEC_SAYS", folder(name).join("said"))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = stderr.next().unwrap().unwrap();
        let url = line.strip_prefix("view at ").expect("it says where the view is").to_owned();
        Downloading { child, url, stderr }
    }

    /// Sends a browser's request. Returns the status and the body.
    fn ask(&self, method: &str, path: &str, body: &str) -> (String, String) {
        ask(&self.url, method, path, body)
    }

    /// Waits until the page's data satisfies `wanted`.
    fn until(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let patience = Instant::now() + Duration::from_secs(30);
        loop {
            let (status, body) = self.ask("GET", "data", "");
            assert!(status.contains(" 200"), "{status}");
            let data: Value = serde_json::from_str(&body).unwrap();
            if wanted(&data) {
                return data;
            }
            assert!(Instant::now() < patience, "{what}: {data:#}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Ends the program, and returns the report of the run.
    fn end(mut self) -> String {
        Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        self.child.wait().unwrap();
        self.stderr.map_while(Result::ok).collect::<Vec<_>>().join("\n")
    }
}

/// Sends a request to the page at `url`. Returns the status and the body.
pub(super) fn ask(url: &str, method: &str, path: &str, body: &str) -> (String, String) {
    let (address, page) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let head =
        format!("{method} /{page}{path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {}", body.len());
    write!(stream, "{head}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect(&answer);
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

/// The keys of all objects in `data`.
fn keys(data: &Value) -> Vec<String> {
    match data {
        Value::Object(object) => {
            object.iter().flat_map(|(key, value)| [vec![key.clone()], keys(value)].concat()).collect()
        }
        Value::Array(values) => values.iter().flat_map(keys).collect(),
        _ => Vec::new(),
    }
}

fn last(data: &Value) -> &Value {
    data["moments"].as_array().unwrap().last().unwrap_or(&Value::Null)
}

/// True if the link towards the program has carried between `least` and `most` Mb/s in the last
/// half second.
fn carries(data: &Value, least: f64, most: f64) -> bool {
    let moments = data["moments"].as_array().unwrap();
    let rates: Vec<f64> =
        moments.iter().rev().take(5).map(|moment| moment["links"][0]["mbps"].as_f64().unwrap()).collect();
    let mean = rates.iter().sum::<f64>() / 5.0;
    rates.len() == 5 && (least..=most).contains(&mean)
}

#[test]
fn a_link_is_seen_and_changed_while_the_program_runs() {
    if !namespaces() {
        return;
    }
    let run = Downloading::start("view");
    assert!(run.ask("GET", "", "").1.contains("<canvas"));
    let data = run.until("the link carries what it can", |data| carries(data, 15.0, 20.5));
    assert_eq!(data["links"][0]["name"], "down");
    assert_eq!(data["links"][0]["rate_mbps"], 20.0);
    let download =
        data["moments"].as_array().unwrap().iter().rev().find(|moment| !moment["flows"][0].is_null());
    let flow = &download.unwrap()["flows"][0];
    assert!(flow["flow"].as_str().unwrap().starts_with("tcp server:"), "{flow}");

    let notes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/notes/exec.md");
    let notes = fs::read_to_string(notes).unwrap();
    let documented = notes.split("## The page's interface").nth(1).unwrap().split("\n## ").next().unwrap();
    for key in keys(&data) {
        assert!(documented.contains(&format!("`{key}`")), "`{key}` is not documented");
    }

    let (status, said) = run.ask("POST", "link", r#"{"link": "down", "rate_mbps": -3}"#);
    assert!(status.contains(" 400") && said.contains("`rate_mbps` is -3"), "{status} {said}");
    let wish = r#"{"link": "down", "rate_mbps": 4, "delay_ms": 50}"#;
    assert!(run.ask("POST", "link", wish).0.contains(" 200"));
    let data = run.until("4 Mb/s are carried", |data| carries(data, 3.0, 4.1));
    assert_eq!((&data["links"][0]["rate_mbps"], &data["links"][0]["delay_ms"]), (&json!(4.0), &json!(50.0)));
    assert_eq!(data["links"][1]["rate_mbps"], 20.0, "the way back is as it was");
    run.until("55 ms and the queue are a round trip", |data| {
        last(data)["flows"][0]["rtt_ms"].as_f64().is_some_and(|rtt| rtt >= 55.0)
    });
    assert!(run.ask("POST", "link", r#"{"link": "down", "loss": 1}"#).0.contains(" 200"));
    run.until("all is lost", |data| last(data)["links"][0]["drops"].as_u64() > Some(0));

    let said = run.end();
    assert!(said.contains("down (server"), "{said}");
}

#[test]
fn a_slider_in_a_browser_changes_the_link() {
    if !namespaces() {
        return;
    }
    let run = Downloading::start("view-browser");
    let Some(mut browser) = Browser::open(&run.url, &folder("chromium")) else { return };
    let slide = "(() => { const slider = document.querySelector('input[type=range][data-link=down][data-key=rate_mbps]'); \
                 if (!slider) return null; slider.value = 400; slider.dispatchEvent(new Event('input')); \
                 return Number(slider.nextElementSibling.value); })()";
    let wanted = browser.until("the page has its sliders", slide, Value::is_number).as_f64().unwrap();
    // The slider is logarithmic, from 0.1 to 1000 Mb/s.
    assert!((wanted - 3.98).abs() < 0.01, "{wanted}");
    run.until("the link has the slider's rate", |data| data["links"][0]["rate_mbps"] == wanted);
    run.until("it is what is carried", |data| carries(data, 0.7 * wanted, 1.05 * wanted));
    let rate =
        "(document.querySelector('#rate + ul li')?.textContent ?? '').match(/^down: ([0-9.]+) Mb/)?.[1]";
    browser.until("the page says so", rate, |said| {
        said.as_str().and_then(|said| said.parse::<f64>().ok()).is_some_and(|said| said < 1.2 * wanted)
    });
    let drawn = "(() => { const canvas = document.getElementById('rate'); \
                 const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data; \
                 for (let i = 0; i < pixels.length; i += 4) \
                 if (pixels[i] === 0 && pixels[i + 1] === 114 && pixels[i + 2] === 178 && pixels[i + 3] > 200) return true; \
                 return false; })()";
    browser.until("the first link's line is drawn", drawn, |drawn| *drawn == true);
    run.end();
    let over = "document.getElementById('state').textContent";
    browser.until("the page says that it is over", over, |said| said == "The program has ended.");
}

/// The page of a run in a narrow window.
#[test]
fn a_narrow_page_s_plots_fit_and_answer_the_pointer() {
    let dir = folder("narrow");
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/quickstart.toml");
    let run =
        tollway(&["run", scenario.to_str().unwrap(), "--quiet", "--out", dir.to_str().unwrap()]).status();
    assert!(run.is_ok_and(|status| status.success()));
    let page = format!("file://{}", dir.join("quickstart.html").display());
    let Some(mut browser) = Browser::open(&page, &folder("chromium-narrow")) else { return };
    let narrow = json!({"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": false});
    browser.call("Emulation.setDeviceMetricsOverride", &narrow);
    browser.call("Page.reload", &json!({}));
    let wide = "(() => {
        const drawn = [...document.querySelectorAll('svg')].map((svg) => svg.getBoundingClientRect());
        return innerWidth === 400 && drawn.length > 0 ? drawn.filter((box) => box.right > innerWidth).length : null;
    })()";
    browser.until("plots wider than the page", wide, |number| number == 0);
    // Three variants with four flows each.
    let curves = "document.querySelector('#plot0').querySelectorAll('path.curve').length";
    browser.until("the first plot's curves", curves, |number| number == 12);
    browser
        .call("Runtime.evaluate", &json!({"expression": "document.querySelector('#plot0 button').click()"}));
    browser.until("curves without those of a flow", curves, |number| number == 9);
    let told = "(() => {
        const svg = document.querySelector('#plot0 svg'), box = svg.getBoundingClientRect();
        const at = { clientX: box.left + box.width / 4, clientY: box.top + box.height / 2 };
        svg.dispatchEvent(new PointerEvent('pointermove', at));
        return document.querySelector('#plot0 .tip').textContent;
    })()";
    browser
        .until("values at the pointer", told, |text| text.as_str().is_some_and(|text| text.contains("f.")));
}

/// Headless Chromium with one page, controlled by its DevTools protocol over pipes.
struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    calls: u64,
    session: Option<String>,
}

impl Browser {
    /// Opens `url`; prints `SKIPPED` if Chromium is not installed.
    fn open(url: &str, profile: &Path) -> Option<Browser> {
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let found = |name: &&str| match Command::new(name).arg("--version").output() {
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            tried => tried.is_ok_and(|output| output.status.success()),
        };
        let Some(name) = names.into_iter().find(found) else {
            eprintln!("SKIPPED: no Chromium here ({})", names.join(", "));
            return None;
        };
        // The protocol's descriptors are 3 and 4.
        let script = "exec \"$@\" 3<&0 4>&1";
        let mut child = Command::new("sh")
            .args(["-c", script, "sh", name, "--headless=new", "--no-sandbox", "--disable-gpu"])
            .args(["--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg(url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut browser = Browser { child, to, from, calls: 0, session: None };
        let target = loop {
            let targets = browser.call("Target.getTargets", &json!({}));
            let targets = targets["targetInfos"].as_array().unwrap();
            if let Some(page) = targets.iter().find(|target| target["type"] == "page" && target["url"] == url)
            {
                break page["targetId"].clone();
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        let attached = browser.call("Target.attachToTarget", &json!({"targetId": target, "flatten": true}));
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        Some(browser)
    }

    fn call(&mut self, method: &str, params: &Value) -> Value {
        self.calls += 1;
        let mut message = json!({"id": self.calls, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        write!(self.to, "{message}\0").unwrap();
        loop {
            let mut bytes = Vec::new();
            assert!(self.from.read_until(0, &mut bytes).unwrap() > 0, "Chromium has ended");
            let answer: Value = serde_json::from_slice(&bytes[..bytes.len() - 1]).unwrap();
            if answer["id"] == self.calls {
                return answer["result"].clone();
            }
        }
    }

    /// Evaluates an expression in the page until its value satisfies `wanted`.
    fn until(&mut self, what: &str, expression: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let patience = Instant::now() + Duration::from_secs(30);
        loop {
            let params = json!({"expression": expression, "returnByValue": true});
            let value = self.call("Runtime.evaluate", &params)["result"]["value"].clone();
            if wanted(&value) {
                return value;
            }
            assert!(Instant::now() < patience, "{what}: {value}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
